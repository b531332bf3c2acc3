/**
 * Profiles: resolves names to releases, starts builds, and moves channels. The catalog owns the files of releases, the image
 * store their images; builds.ts runs the builds.
 *
 * N1. What a name resolves to is one release, whose reference is its digest.
 * N2. A first use builds a missing release of `latest`. `stable` and versions are never built: their content is chosen.
 */
import type { Clock } from "../base/clock.ts";
import { AppError, errorText } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { OperationRecord } from "../operations/schema.ts";
import type { OperationContext, Operations } from "../operations/service.ts";
import type { BuildView, ProfileBuilds, Waiting } from "./builds.ts";
import type { Catalog, ChannelName, Release } from "./catalog.ts";
import { CHANNELS } from "./catalog.ts";
import type { ProfileRecord, ReleaseDiff, ReleaseRecord } from "./schema.ts";
import { parseSelector, profileReference, type Selector } from "./selectors.ts";
import type { ProfileState } from "./states.ts";
import { type FoundUpdates, ProfileUpdates } from "./updates.ts";

export interface ProfilesOptions {
  readonly catalog: Catalog;
  readonly builds: ProfileBuilds;
  readonly operations: Operations;
  readonly clock: Clock;
  readonly log: Log;
  /** Hours between automatic rebuilds; 0: none. */
  readonly rebuild_hours: number;
}

interface BuildInput {
  readonly profile: string;
  readonly rebuild: boolean;
}

/** Part of a reference behind its host. */
interface NamedImage {
  readonly repository: string;
  readonly tag: string | null;
  readonly digest: string | null;
}

interface Preparing {
  readonly signal: AbortSignal;
  readonly onProgress?: (pct: number, message: string) => void;
}

export interface Moved {
  readonly version: string;
  readonly previous_version: string | null;
}

export class Profiles {
  readonly #options: ProfilesOptions;
  readonly #updates: ProfileUpdates;
  #rebuilt_ms: number;

  constructor(options: ProfilesOptions) {
    this.#options = options;
    this.#updates = new ProfileUpdates(options.builds, options.clock, options.log);
    this.#rebuilt_ms = options.clock.monotonicMs();
    options.operations.register<BuildInput>("nightly.build", {
      resumable: true,
      cancellable: true,
      // Its turn comes after other builds; each has a deadline of its own.
      timeout_ms: LIMITS.profile_wait_ms,
      running_max: LIMITS.profile_children_waiting_max,
      run: (context) => this.#build(context),
    });
  }

  /** `isOperator`: the logs of failed builds are shown. */
  list(isOperator: boolean): ProfileRecord[] {
    return this.#options.catalog.names().map((name) => this.get(name, isOperator));
  }

  /** Throws NOT_FOUND. */
  get(name: string, isOperator: boolean): ProfileRecord {
    const { catalog, builds } = this.#options;
    const { profile, recipe_id } = catalog.recipe(name);
    const latest = this.find(name, "latest");
    const stable = this.find(name, "stable");
    const releases = catalog.releases(name);
    const build = builds.running(name);
    const failure = builds.failure(name);
    const updates = this.#updates.known(name, latest?.version ?? null);
    return {
      profile: name,
      title: profile.title,
      description: profile.description,
      from: profile.from,
      state: stateOf(build, latest, failure !== null),
      progress_pct: build?.progress_pct ?? null,
      message: build?.message ?? null,
      recipe_id,
      channels: { latest: latest?.version ?? null, stable: stable?.version ?? null },
      size_bytes: latest?.size_bytes ?? null,
      own_bytes: latest?.own_bytes ?? null,
      package_count: latest?.package_count ?? null,
      release_count: releases.length,
      disk_bytes: releases.reduce((sum, { own_bytes }) => sum + own_bytes, 0),
      tools: [...profile.tools],
      updates: updates === null ? null : countsOf(updates),
      last_failure:
        failure === null
          ? null
          : {
              failed_at: failure.failed_at,
              failures_count: failure.failures_count,
              retry_after: builds.backoffSeconds(name),
              error: isOperator ? failure.error : null,
              hint: isOperator ? failure.hint : null,
              log: isOperator ? failure.log : null,
            },
    };
  }

  /** The release that a channel names; null: none. Throws NOT_FOUND for an unknown profile. */
  find(name: string, channel: ChannelName): Release | null {
    const { catalog } = this.#options;
    catalog.recipe(name);
    const version = catalog.channel(name, channel)?.version;
    return version === undefined ? null : (catalog.releases(name).find((one) => one.version === version) ?? null);
  }

  /** The release of a native selector, if the node has it. Throws INVALID_ARGUMENT for an unknown profile, NOT_FOUND for a release that is not here. */
  select(text: string): Release {
    const selector = this.#selector(text);
    const release = this.#selected(selector);
    if (release !== null) return release;
    throw missing(selector);
  }

  /** True for the native selector of a profile of this node, whose release may be missing. */
  isSelector(text: string): boolean {
    return this.#known(text) !== null;
  }

  /** True if the first use of a selector has to wait for a build (N2). Never throws. */
  mustBuild(text: string): boolean {
    const selector = this.#known(text);
    return selector?.channel === "latest" && this.#selected(selector) === null;
  }

  /** Returns the release of a native selector, built if need be (N2). */
  async ensure(tenant_id: string, text: string, waiting: Waiting): Promise<Release> {
    const { profile } = this.#selector(text);
    if (this.mustBuild(text)) await this.#options.builds.ensure(tenant_id, profile, waiting);
    return this.select(text);
  }

  /** For containers: true if a selector needs a build first. `run` waits for it. */
  isNeeded(text: string, oci: boolean): boolean {
    return !oci && this.mustBuild(text);
  }

  async run(tenant_id: string, text: string, { signal, onProgress = () => {} }: Preparing): Promise<void> {
    await this.ensure(tenant_id, text, {
      signal,
      timeout_ms: LIMITS.profile_wait_ms,
      onProgress: ({ progress_pct, message }) => onProgress(progress_pct, message),
    });
  }

  names(): readonly string[] {
    return this.#options.catalog.names();
  }

  /** For pulls: the image that a reference with the reserved host names. */
  async imageId(
    tenant_id: string,
    { repository, tag, digest }: NamedImage,
    asked: Preparing & { readonly platform: string },
  ) {
    checkPlatform(asked.platform);
    if (digest !== null) return this.byDigest(repository, digest).image_id;
    const text = `${repository}:${tag ?? "latest"}`;
    await this.run(tenant_id, text, asked);
    return this.select(text).image_id;
  }

  /** Returns the release of a digest. Throws NOT_FOUND. */
  byDigest(name: string, digest: string): Release {
    const { catalog } = this.#options;
    const found = catalog.names().includes(name)
      ? catalog.releases(name).find((one) => one.digest === digest)
      : undefined;
    if (found !== undefined) return found;
    throw new AppError("NOT_FOUND", `release '${profileReference(name, digest)}' not found on this node`, {
      hint: `GET /api/nightly/profiles/${name}/releases lists the releases`,
    });
  }

  releases(name: string): ReleaseRecord[] {
    this.#options.catalog.recipe(name);
    return this.#options.catalog.releases(name).map((release) => this.recordOf(release));
  }

  /** Throws NOT_FOUND. */
  release(name: string, version: string): Release {
    this.#options.catalog.recipe(name);
    const found = this.#options.catalog.releases(name).find((one) => one.version === version);
    if (found !== undefined) return found;
    throw new AppError("NOT_FOUND", `release '${version}' of profile '${name}' not found`, {
      hint: `GET /api/nightly/profiles/${name}/releases lists the releases`,
    });
  }

  detail(name: string, version: string) {
    const release = this.release(name, version);
    const packages = this.#options.catalog
      .packages(name, version)
      .map((one) => ({ ...one, licences: [...one.licences] }));
    return { ...this.recordOf(release), packages };
  }

  recordOf(release: Release): ReleaseRecord {
    const { catalog } = this.#options;
    const { profile, version, digest } = release;
    return {
      profile,
      version,
      channels: CHANNELS.filter((channel) => catalog.channel(profile, channel)?.version === version),
      recipe_id: release.recipe_id,
      suite: release.suite,
      platform: nodePlatform(),
      oci_reference: profileReference(profile, digest),
      oci_digest: digest,
      image_id: `sha256:${release.image_id}`,
      base_version: release.base_version,
      created_at: release.created_at,
      size_bytes: release.size_bytes,
      own_bytes: release.own_bytes,
      package_count: release.package_count,
    };
  }

  diff(name: string, version: string, other: string): ReleaseDiff {
    const { catalog } = this.#options;
    const [before, after] = [this.release(name, version), this.release(name, other)];
    const versions = (of: string) =>
      new Map(catalog.packages(name, of).map((one) => [`${one.name}:${one.architecture}`, one]));
    const [left, right] = [versions(version), versions(other)];
    const only = (a: typeof left, b: typeof left) =>
      [...a].filter(([key]) => !b.has(key)).map(([, one]) => ({ name: one.name, version: one.version }));
    return {
      profile: name,
      version,
      other,
      added: only(right, left),
      removed: only(left, right),
      changed: [...left].flatMap(([key, one]) => {
        const now = right.get(key);
        return now === undefined || now.version === one.version
          ? []
          : [{ name: one.name, from: one.version, to: now.version }];
      }),
      size_delta_bytes: after.size_bytes - before.size_bytes,
    };
  }

  /** Throws NOT_FOUND without a release. */
  async updates(name: string, isFresh: boolean): Promise<FoundUpdates> {
    const latest = this.find(name, "latest");
    if (latest === null) throw missing({ profile: name, channel: "latest", version: null });
    return this.#updates.of(name, latest.version, isFresh);
  }

  /** Throws NOT_FOUND, CAPACITY_FULL. */
  build(tenant_id: string, name: string, rebuild: boolean): Promise<OperationRecord> {
    this.#options.catalog.recipe(name);
    const input: BuildInput = { profile: name, rebuild };
    return this.#options.operations.accept(tenant_id, {
      type: "nightly.build",
      target: { type: "profile", id: name },
      input,
    });
  }

  /** Throws NOT_FOUND for a release that is not here, INVALID_ARGUMENT for `latest` of another recipe. */
  async promote(name: string, channel: ChannelName, version: string): Promise<Moved> {
    const { catalog, builds } = this.#options;
    const { recipe_id } = this.release(name, version);
    const own = catalog.recipe(name).recipe_id;
    if (channel === "latest" && recipe_id !== own) {
      throw new AppError(
        "INVALID_ARGUMENT",
        `version: release '${version}' is of another recipe (latest takes ${own})`,
        {
          hint: "promote it to stable",
        },
      );
    }
    const previous_version = this.find(name, channel)?.version ?? null;
    await builds.child(["promote", name, `--channel=${channel}`, `--version=${version}`]);
    return { version, previous_version };
  }

  /** Throws WRONG_STATE without an earlier release. */
  async rollback(name: string, channel: ChannelName): Promise<Moved> {
    const { catalog, builds } = this.#options;
    const previous_version = this.find(name, channel)?.version ?? null;
    const known = new Set(catalog.releases(name).map(({ version }) => version));
    const version = catalog.channel(name, channel)?.history.find((one) => known.has(one) && one !== previous_version);
    if (version === undefined) {
      throw new AppError("WRONG_STATE", `channel ${channel} of profile '${name}' has no earlier release`, {
        hint: `GET /api/nightly/profiles/${name}/releases lists the releases; promote one`,
      });
    }
    await builds.child(["rollback", name, `--channel=${channel}`, `--version=${version}`]);
    return { version, previous_version };
  }

  readiness() {
    const all = this.list(false);
    const isReady = all.some(({ profile, channels }) => profile === "prod" && channels.latest !== null);
    return {
      status: isReady ? ("ok" as const) : ("degraded" as const),
      concern: "nightly" as const,
      profile_count: all.length,
      ready_count: all.filter(({ channels }) => channels.latest !== null).length,
      reason: isReady ? null : "the image store does not have the image of the profile prod",
    };
  }

  /** Rebuilds releases with newer packages, if the setting asks for it and its time has come. */
  async prune(): Promise<void> {
    const { rebuild_hours, clock, log } = this.#options;
    const isDue = rebuild_hours > 0 && clock.monotonicMs() - this.#rebuilt_ms >= rebuild_hours * HOUR_MS;
    if (!isDue) return;
    this.#rebuilt_ms = clock.monotonicMs();
    // In the background: other periodic work continues meanwhile.
    this.#rebuildAll().catch((error) => log.warn("profiles not rebuilt", { error: errorText(error) }));
  }

  /** The lowest profiles first: a layer is rebuilt on the new release below it. A profile that fails stops no other one. */
  async #rebuildAll(): Promise<void> {
    const { catalog, log } = this.#options;
    const names = catalog.names().filter((name) => this.find(name, "latest") !== null);
    const depth = (name: string): number => {
      const { from } = catalog.recipe(name).profile;
      return from === null ? 0 : 1 + depth(from);
    };
    for (const profile of names.sort((a, b) => depth(a) - depth(b))) {
      await this.#rebuildOutdated(profile).catch((error) =>
        log.warn("profile not rebuilt", { profile, error: errorText(error) }),
      );
    }
  }

  async #rebuildOutdated(profile: string): Promise<void> {
    const { builds, log } = this.#options;
    const { version, updates } = await this.updates(profile, true);
    if (updates.length === 0) return;
    const { signal } = new AbortController();
    await builds.run(profile, "rebuild-only", { signal, timeout_ms: LIMITS.profile_build_ms });
    const now = this.find(profile, "latest")?.version ?? version;
    log.info("profile rebuilt", { profile, version: now, earlier_version: version, updates_count: updates.length });
  }

  async #build(context: OperationContext<BuildInput>) {
    const { builds } = this.#options;
    const { signal, input } = context;
    const { profile, rebuild } = input;
    if (!rebuild && this.find(profile, "latest") !== null && builds.running(profile) === null) {
      return this.#built(profile, "the release is present");
    }
    const cancel = (): void => builds.cancel(profile);
    signal.addEventListener("abort", cancel);
    const onProgress = ({ progress_pct, message }: BuildView): void => context.progress(progress_pct, message);
    try {
      await builds.run(profile, rebuild ? "rebuild" : "build", {
        signal,
        timeout_ms: LIMITS.profile_wait_ms,
        onProgress,
      });
    } catch (error) {
      const output = error instanceof AppError ? (error.details?.output ?? "") : "";
      if (!(error instanceof AppError) || output === "") throw error;
      throw new AppError(error.code, `${error.message}\n${output}`.slice(0, LIMITS.operation_message_length_max), {
        ...{ reason_code: error.reason_code, cause: error },
        ...(error.hint === null ? {} : { hint: error.hint }),
      });
    } finally {
      signal.removeEventListener("abort", cancel);
    }
    return this.#built(profile, "profile built");
  }

  #built(profile: string, message: string) {
    const release = this.find(profile, "latest");
    if (release === null) throw missing({ profile, channel: "latest", version: null });
    const { version, digest } = release;
    return {
      result: { profile, version, oci_reference: profileReference(profile, digest), oci_digest: digest },
      message,
    };
  }

  /** Null: no selector of a profile of this node. */
  #known(text: string): Selector | null {
    const selector = parseSelector(text);
    return selector !== null && this.#options.catalog.names().includes(selector.profile) ? selector : null;
  }

  #selector(text: string): Selector {
    const selector = this.#known(text);
    if (selector !== null) return selector;
    throw new AppError("INVALID_ARGUMENT", `image: unknown profile '${text}' on this node`, {
      details: { expected: this.#options.catalog.names(), received: text },
      hint: "for an OCI image, pull it by POST /api/oci/images/pull and send oci: true",
    });
  }

  #selected({ profile, channel, version }: Selector): Release | null {
    if (channel !== null) return this.find(profile, channel);
    return this.#options.catalog.releases(profile).find((one) => one.version === version) ?? null;
  }
}

const HOUR_MS = 3_600_000;

/** Throws INVALID_ARGUMENT for another platform than the node's. */
export function checkPlatform(platform: string): void {
  if (platform === nodePlatform()) return;
  throw new AppError("INVALID_ARGUMENT", `platform: profiles of this node are for ${nodePlatform()}: '${platform}'`, {
    details: { expected: [nodePlatform()], received: platform },
  });
}

/** Platform of this node as images name it. */
export function nodePlatform(): string {
  return `linux/${process.arch === "x64" ? "amd64" : process.arch}`;
}

export function stateOf(build: BuildView | null, latest: Release | null, hasFailed: boolean): ProfileState {
  if (build !== null) return "building";
  if (latest !== null) return "ready";
  return hasFailed ? "failed" : "absent";
}

function countsOf({ checked_at, updates }: FoundUpdates) {
  const security_count = updates.filter(({ is_security }) => is_security).length;
  return { checked_at, count: updates.length, security_count };
}

function missing({ profile, channel, version }: Selector): AppError {
  if (channel === "latest") {
    return new AppError("NOT_FOUND", `profile '${profile}' has no release on this node yet`, {
      hint: `ask the operator for POST /api/nightly/profiles/${profile}/build, or create a container or function with it`,
    });
  }
  const what = channel === null ? `release '${version}'` : `channel ${channel}`;
  return new AppError("NOT_FOUND", `${what} of profile '${profile}' not found on this node`, {
    hint:
      channel === null
        ? `GET /api/nightly/profiles/${profile}/releases lists the releases`
        : "the operator promotes a release to it",
  });
}
