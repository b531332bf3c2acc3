/**
 * Deployments create or update several functions, all or none. A missing function is created, a different one gets another
 * version, an equal one stays as it is. Afterwards all of them are active.
 */
import { toEpochSeconds } from "../../base/clock.ts";
import { AppError, invariant } from "../../base/errors.ts";
import { type Author, apiScopes, type FunctionParts } from "../parts.ts";
import { type FunctionRow, versioned } from "../rows.ts";
import { type FunctionRecord, hasOwnImage } from "../schema.ts";
import { functionStates } from "../states.ts";
import { type Activation, changedMeanwhile, naming, type Plan } from "./activation.ts";
import { differences, FUNCTION_FIELDS, VERSIONED_FIELDS } from "./differences.ts";
import type { ForeseenImage, Waiting } from "./images.ts";
import { nextVersion } from "./next.ts";
import type { DeployedFunction, DeployFunction } from "./schema.ts";

const FIELDS = [...VERSIONED_FIELDS, ...FUNCTION_FIELDS];

/** One function of a deployment as it is to be. */
type Target = DeployFunction & ReturnType<typeof versioned>;

/** One function of a deployment: its answer, and the plan of its change. */
interface Step {
  readonly deployed: DeployedFunction;
  /** Null: nothing changes. */
  readonly plan: Plan | null;
}

export class Deployments {
  readonly #parts: FunctionParts;
  readonly #activation: Activation;

  constructor(parts: FunctionParts, activation: Activation) {
    this.#parts = parts;
    this.#activation = activation;
  }

  /**
   * Creates or updates all functions, or only returns the changes: a dry run builds and keeps nothing. Throws INVALID_ARGUMENT, which names the function,
   * HANDLER_FAILED, START_FAILED, QUOTA_EXCEEDED, WRONG_STATE; then no function is changed.
   */
  async apply(
    author: Author,
    wanted: readonly DeployFunction[],
    { is_dry_run }: { readonly is_dry_run: boolean },
    waiting: Waiting,
  ): Promise<DeployedFunction[]> {
    const { rows, images } = this.#parts;
    const found = await Promise.all(wanted.map(({ name }) => rows.byName(author.tenant_id, name)));
    const ids = found.flatMap((row) => (row === null ? [] : [row.record.id]));
    const held: ForeseenImage[] = [];
    if (!is_dry_run) {
      // What a dry run refuses is refused before a build begins.
      if (images.mustBuild(wanted)) await this.apply(author, wanted, { is_dry_run: true }, waiting);
      await images.prepare(author.tenant_id, wanted, waiting);
    }
    const work = async () => {
      const steps: Step[] = [];
      for (const one of wanted) steps.push(await this.#step(author, one, is_dry_run, held));
      // Another request created the function after the turns were taken: its turn is not among them.
      const others = steps.filter(({ deployed, plan }) => plan?.from && !ids.includes(deployed.function_id));
      if (others.length > 0 && !is_dry_run) throw changedMeanwhile();
      const plans = steps.flatMap(({ plan }) => (plan === null ? [] : [plan]));
      if (is_dry_run || plans.length === 0) return steps.map(({ deployed }) => deployed);
      await this.#activation.run(plans, this.#activation.guards(author.tenant_id, plans));
      return steps.map(({ deployed }) => deployed);
    };
    try {
      return await this.#activation.exclusively(is_dry_run ? [] : ids, work);
    } finally {
      for (const { leave } of held) leave();
    }
  }

  /** `held` gets the image of the function, which the caller leaves. */
  async #step(author: Author, wanted: DeployFunction, is_dry_run: boolean, held: ForeseenImage[]): Promise<Step> {
    const { rows, checks, images } = this.#parts;
    const { tenant_id } = author;
    const row = await rows.byName(author.tenant_id, wanted.name);
    if (row !== null) rows.checkHeld(row);
    try {
      const chosen = { ...wanted, tenant_id };
      const made = await (is_dry_run ? images.foresee(chosen) : images.choose(chosen));
      held.push(made);
      const fields = await checks.checked({ ...versioned(wanted), ...made.fields, tenant_id }, made);
      await checks.deployable({ ...fields, id: row?.record.id ?? null }, made);
      const target = { ...wanted, ...fields };
      return row === null ? this.#create(author, target, made) : await this.#change(author, row, target, made);
    } catch (error) {
      if (!(error instanceof AppError) || !["INVALID_ARGUMENT", "NOT_FOUND"].includes(error.code)) throw error;
      throw naming(wanted.name, error);
    }
  }

  #create(author: Author, wanted: Target, { image, settings, use }: ForeseenImage): Step {
    const { rows, ids, clock } = this.#parts;
    const id = ids.next("fn");
    const now = toEpochSeconds(clock.epochMs());
    const by = { by: author.key_id, note: wanted.note ?? null };
    const api_scopes = apiScopes(author, wanted);
    const made = { id, version_id: ids.next("fv"), settings, api_scopes, now, ...by };
    const record: FunctionRecord = {
      ...functionFields(wanted),
      ...versioned(wanted),
      api_scopes,
      id,
      function_id: id,
      tenant_id: author.tenant_id,
      cluster_id: null,
      owner_node_id: rows.node_id,
      name: wanted.name,
      state: "active",
      current_version: 1,
      version: 1,
      created_at: now,
      updated_at: now,
      last_invoked_at: null,
      invocation_count: 0,
      error_count: 0,
      error_message: null,
    };
    return {
      deployed: { name: wanted.name, function_id: id, action: "created", version: 1, changes: [] },
      plan: {
        from: null,
        opening: { record, image, settings },
        use,
        smoke: wanted.smoke ?? null,
        makes_version: true,
        event_type: "created",
        statements: () => {
          invariant(image !== null, "what is only planned is not written");
          const inserted = rows.insert(author.tenant_id, { ...made, image }, wanted);
          return [...inserted, rows.moveState(id, "pending", "active", null, now)];
        },
      },
    };
  }

  async #change(author: Author, row: FunctionRow, wanted: Target, made: ForeseenImage): Promise<Step> {
    const { rows, classes, clock } = this.#parts;
    const { record: from } = row;
    const { id, name, state } = from;
    functionStates.next(state, "deploy");
    functionStates.next(state, "update");
    const fields = { ...functionFields(wanted), ...versioned(wanted) };
    // A new release of the image that all share is no change of the function.
    const isShared = !hasOwnImage(from) && !hasOwnImage(fields);
    const api_scopes = apiScopes(author, wanted);
    // A key with more scopes gives them to the version; one with fewer leaves an equal version as it is.
    const hasMore = api_scopes.some((scope) => !from.api_scopes.includes(scope));
    const to = { ...fields, api_scopes, ...(isShared ? { image_id: from.image_id } : {}) };
    const changes = differences(from, to, hasMore ? [...FIELDS, "api_scopes"] : FIELDS);
    const told = { name, function_id: id, changes };
    if (changes.length > 0) {
      const plan = await nextVersion(this.#parts, author, row, { ...from, ...fields, state: "active" }, wanted, made);
      return { deployed: { ...told, action: "updated", version: plan.opening.record.version }, plan };
    }
    if (state === "active") return { deployed: { ...told, action: "unchanged", version: from.version }, plan: null };
    return {
      deployed: { ...told, action: "activated", version: from.version },
      plan: {
        from,
        opening: {
          record: { ...from, state: "active" },
          image: await classes.available(row.image, hasOwnImage(from)),
          settings: row.settings,
        },
        use: null,
        smoke: wanted.smoke ?? null,
        makes_version: false,
        event_type: "activated",
        statements: () => [rows.moveState(id, state, "active", null, toEpochSeconds(clock.epochMs()))],
      },
    };
  }
}

function functionFields(wanted: DeployFunction): Pick<FunctionRecord, (typeof FUNCTION_FIELDS)[number]> {
  return {
    description: wanted.description ?? null,
    min_instances: wanted.min_instances,
    max_instances: wanted.max_instances,
    concurrency_limit: wanted.concurrency_limit ?? null,
    api_access: wanted.api_access,
    cleanup_on_exit: wanted.cleanup_on_exit,
  };
}
