/**
 * Versions of functions: what a PUT makes, and which one is current. A version never changes once it is written; the
 * function's pointer selects one. activation.ts moves it.
 */
import { toEpochSeconds } from "../../base/clock.ts";
import { together } from "../../base/concurrency.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Listed, Place } from "../../base/paging.ts";
import type { Author, FunctionParts } from "../parts.ts";
import { type FunctionRow, versioned } from "../rows.ts";
import {
  complaintAbout,
  type FunctionRecord,
  hasOwnImage,
  PROFILE,
  type UpdateFunction,
  type VersionRecord,
} from "../schema.ts";
import { functionStates } from "../states.ts";
import type { Activation, Plan } from "./activation.ts";
import { differences, VERSIONED_FIELDS } from "./differences.ts";
import { holding, type Waiting } from "./images.ts";
import { nextVersion } from "./next.ts";
import type { VersionDiff } from "./schema.ts";

/** A record with the fields of an update; what is absent stays. Throws INVALID_ARGUMENT where the whole makes no sense. */
export function updated(record: FunctionRecord, input: UpdateFunction): FunctionRecord {
  if (input.name !== undefined && input.name !== record.name) {
    throw new AppError("INVALID_ARGUMENT", "name: cannot be changed", {
      details: { expected: [record.name], received: input.name },
    });
  }
  const { source_code: _, cluster_id: __, smoke: ___, note: ____, ...fields } = input;
  // An image that is cleared is the profile's.
  const all = fields.image === null ? { ...fields, image: PROFILE, oci: fields.oci ?? false } : fields;
  const given = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  const merged: FunctionRecord = { ...record, ...given };
  const complaint = complaintAbout(merged);
  if (complaint !== null) {
    throw new AppError("INVALID_ARGUMENT", `${complaint.field}: ${complaint.message}`, { hint: complaint.hint });
  }
  return merged;
}

const isChoosing = ({ image, oci }: UpdateFunction): boolean => image !== undefined || oci !== undefined;

export class Versions {
  readonly #parts: FunctionParts;
  readonly #activation: Activation;

  constructor(parts: FunctionParts, activation: Activation) {
    this.#parts = parts;
    this.#activation = activation;
  }

  /**
   * Makes the next version and points to it, after the build of its image if this node lacks that; on an active function after as many of its instances are ready as the
   * version before had, its handler is loaded and its smoke call has succeeded. Throws INVALID_ARGUMENT, HANDLER_FAILED,
   * START_FAILED when they do not get ready, QUOTA_EXCEEDED where the tenant may not have them; the pointer then stays, and
   * nothing is changed.
   */
  async update(author: Author, id: string, input: UpdateFunction, waiting: Waiting): Promise<FunctionRecord> {
    const { rows, images, checks } = this.#parts;
    if (isChoosing(input)) {
      const { record } = await rows.held(author.tenant_id, id);
      functionStates.next(record.state, "update");
      const wanted = updated(record, input);
      if (images.mustBuild([wanted])) {
        const foreseen = await images.foresee(wanted);
        await holding(foreseen, () => checks.checked({ ...wanted, ...foreseen.fields }, foreseen));
      }
      await images.prepare(author.tenant_id, [wanted], waiting);
    }
    return this.#change(author, id, input, () => false);
  }

  #change(
    author: Author,
    id: string,
    input: UpdateFunction,
    isSame: (record: FunctionRecord) => boolean,
  ): Promise<FunctionRecord> {
    const { rows, checks, images } = this.#parts;
    const { tenant_id } = author;
    return this.#activation.exclusively([id], async () => {
      const row = await rows.held(tenant_id, id);
      functionStates.next(row.record.state, "update");
      if (isSame(row.record)) return row.record;
      const wanted = updated(row.record, input);
      const made = await (isChoosing(input) ? images.choose(wanted) : images.kept({ ...row, record: wanted }));
      return holding(made, async () => {
        const merged = await checks.checked({ ...wanted, ...made.fields }, made);
        if (row.record.state === "active") await checks.deployable(merged, made);
        const plan = await nextVersion(this.#parts, author, row, merged, input, made);
        await this.#activation.run([plan], this.#activation.guards(tenant_id, [plan]));
        return (await rows.found(tenant_id, id)).record;
      });
    });
  }

  /** Makes the next version with other code, as `update` does. The function stays as it is if it has this code. */
  setCode(author: Author, id: string, to: { readonly code_sha256: string; readonly note: string | null }) {
    return this.#change(author, id, to, ({ code_sha256 }) => code_sha256 === to.code_sha256);
  }

  /** Returns the digest of a version's code. Throws NOT_FOUND. */
  async codeOf(tenant_id: string, id: string, version: number): Promise<string> {
    const { code_sha256 } = await this.get(tenant_id, id, version);
    if (code_sha256 === null) throw new AppError("NOT_FOUND", `version ${version} of function '${id}' has no code`);
    return code_sha256;
  }

  /** Returns what differs from one version to the other. Throws NOT_FOUND. */
  async diff(tenant_id: string, id: string, from_version: number, to_version: number): Promise<VersionDiff> {
    const [from, to] = await together(this.get(tenant_id, id, from_version), this.get(tenant_id, id, to_version));
    const changes = differences(from, to, VERSIONED_FIELDS);
    const { files, is_truncated } =
      from.code_sha256 === to.code_sha256
        ? { files: [], is_truncated: false }
        : await this.#parts.code.diff(tenant_id, from.code_sha256, to.code_sha256, LIMITS.diff_files_max);
    return { from_version, to_version, changes, files: [...files], is_truncated };
  }

  /** Points to an earlier (or later) version. Throws NOT_FOUND for an unknown version, else as `update`. */
  rollback(tenant_id: string, id: string, version: number): Promise<FunctionRecord> {
    const { classes, rows, clock } = this.#parts;
    return this.#activation.exclusively([id], async () => {
      const row = await rows.held(tenant_id, id);
      functionStates.next(row.record.state, "update");
      if (version === row.record.version) return row.record;
      const found = await this.#found(row, version);
      const next: FunctionRecord = { ...row.record, ...versioned(found.record), version, current_version: version };
      const plan: Plan = {
        from: row.record,
        opening: {
          record: next,
          image: await classes.available(found.image, hasOwnImage(next)),
          settings: found.settings,
        },
        use: null,
        smoke: null,
        makes_version: false,
        event_type: "rolled_back",
        statements: () => [rows.movePointer(row.record, version, toEpochSeconds(clock.epochMs()))],
      };
      await this.#activation.run([plan], []);
      return (await rows.found(tenant_id, id)).record;
    });
  }

  /** Returns one version. Throws NOT_FOUND. */
  async get(tenant_id: string, id: string, version: number): Promise<VersionRecord> {
    return (await this.#found(await this.#parts.rows.found(tenant_id, id), version)).record;
  }

  async #found(row: FunctionRow, version: number) {
    const found = await this.#parts.rows.version(row, version);
    if (found !== null) return found;
    throw new AppError("NOT_FOUND", `function '${row.record.name}' has no version ${version}`, {
      hint: "list the versions with GET /api/functions/<id>/versions",
    });
  }

  /** Newest first. */
  async list(tenant_id: string, id: string, place: Place): Promise<Listed<VersionRecord>> {
    return this.#parts.rows.versions(await this.#parts.rows.found(tenant_id, id), place);
  }
}
