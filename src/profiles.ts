/** Composes the profiles of this node: the catalog reads the files of the installation, and a child process builds releases. */
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Clock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { AppError, errorText } from "./base/errors.ts";
import { LIMITS } from "./base/limits.ts";
import type { Log } from "./base/log.ts";
import { SETTINGS } from "./base/settings.ts";
import type { ResolveImage } from "./containers/admission.ts";
import type { Engine } from "./engine/ports.ts";
import { helperPath, imageStore, PROJECT_DIR } from "./installation/paths.js";
import { type ProfileImage, profileImage, profileNames } from "./installation/profiles.js";
import { readChannel, readPackages, readReleases, releasesDir } from "./installation/releases.js";
import { ProfileBuilds, type RunSetup } from "./nightly/builds.ts";
import type { Catalog, Channel, ChannelName, Package, Recipe, Release } from "./nightly/catalog.ts";
import { ImageContracts } from "./nightly/contracts.ts";
import { causeOf } from "./nightly/failures.ts";
import { Profiles } from "./nightly/service.ts";
import type { TenantImages } from "./oci/service.ts";
import type { Operations } from "./operations/service.ts";

const SETUP = join(PROJECT_DIR, "src/setup/index.js");

/** Keys stay in the daemon. */
const SECRET_VARIABLES = Object.values(SETTINGS).flatMap((setting) =>
  "is_secret" in setting ? [setting.variable] : [],
);

interface Parts {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  /** Steps that take the parts down. */
  readonly undo: { add(step: () => Promise<unknown>): void };
}

/** Recipes are those of the daemon's start. Releases and channels are read again when a file of theirs, or the image store, changed. */
class InstalledCatalog implements Catalog {
  readonly #image_dir: string;
  readonly #recipes: ReadonlyMap<string, ProfileImage>;
  readonly #read = new Map<string, { readonly state: string; readonly releases: readonly Release[] }>();
  readonly #channels = new Map<string, { readonly state: string; readonly channel: Channel | null }>();

  constructor({ image_dir, profiles_dir }: Config) {
    this.#image_dir = image_dir;
    const options = { further_dir: profiles_dir };
    const names = profileNames(options);
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) {
      throw new AppError(
        "INVALID_ARGUMENT",
        `profile '${twice}' of HEARTH_PROFILES_DIR has the name of a built-in profile`,
      );
    }
    this.#recipes = new Map(names.map((name) => [name, profileImage(name, options)]));
  }

  names(): readonly string[] {
    return [...this.#recipes.keys()];
  }

  recipe(name: string): Recipe {
    return this.#image(name);
  }

  releases(name: string): readonly Release[] {
    const state = this.#state(name);
    const known = this.#read.get(name);
    if (known !== undefined && known.state === state) return known.releases;
    const releases = readReleases(this.#image_dir, name);
    this.#read.set(name, { state, releases });
    return releases;
  }

  packages(name: string, version: string): readonly Package[] {
    return readPackages(this.#image_dir, name, version);
  }

  channel(name: string, channel: ChannelName): Channel | null {
    const state = this.#state(name);
    const key = `${name} ${channel}`;
    const known = this.#channels.get(key);
    if (known !== undefined && known.state === state) return known.channel;
    const read = readChannel(this.#image_dir, this.#image(name), channel);
    this.#channels.set(key, { state, channel: read });
    return read;
  }

  #image(name: string): ProfileImage {
    const found = this.#recipes.get(name);
    if (found !== undefined) return found;
    throw new AppError("NOT_FOUND", `profile '${name}' not found`, {
      details: { expected: this.names(), received: name },
      hint: "GET /api/nightly/profiles lists the profiles",
    });
  }

  /** Every file of a release and of a channel is replaced by a rename, which changes the directory. */
  #state(name: string): string {
    return [releasesDir(this.#image_dir, name), imageStore(this.#image_dir).images_file].map(stateOf).join(" ");
  }
}

function stateOf(path: string): string {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? "" : `${stats.ino} ${stats.mtimeNs}`;
}

/** Returns what runs set-up as a child. The child ends with the daemon: it watches its parent. */
function setupRunner({ config, clock }: Parts): RunSetup {
  const flags = [`--data-dir=${config.data_dir}`, `--image-dir=${config.image_dir}`, "--progress=json"];
  const further = config.profiles_dir === null ? [] : [`--profiles-dir=${config.profiles_dir}`];
  const command = [...SECRET_VARIABLES.flatMap((name) => ["-u", name]), "nice", "-n", "10", process.execPath, SETUP];
  return async ([verb = "", ...args], { onProgress, signal }) => {
    signal.throwIfAborted();
    // A name has no leading dash, so flags cannot be taken for one.
    const argv = [...command, "profile", verb, ...args, ...flags, ...further];
    const child = spawn("env", argv, { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      output = (output + text).slice(-LIMITS.profile_log_bytes_max);
    });
    let result: Readonly<Record<string, unknown>> = {};
    createInterface({ input: child.stdout }).on("line", (line) => {
      const said = parseLine(line);
      if (said?.result !== undefined) result = said.result;
      else if (said !== null) onProgress(said);
    });
    const kill = (): boolean => child.kill("SIGTERM");
    signal.addEventListener("abort", kill);
    // Its own deadlines are shorter; this one holds if it hangs.
    const cancelTimer = clock.after(LIMITS.profile_build_ms, () => child.kill("SIGKILL"));
    try {
      const code = await new Promise<number | string>((resolve, reject) => {
        child.on("error", reject);
        child.on("close", (code, killed_by) => resolve(code ?? killed_by ?? "unknown"));
      });
      if (signal.aborted) throw signal.reason;
      if (code !== 0) throw failureOf(code, output);
      return result;
    } finally {
      signal.removeEventListener("abort", kill);
      cancelTimer();
    }
  };
}

interface SaidLine {
  readonly percent?: number;
  readonly message?: string;
  readonly result?: Readonly<Record<string, unknown>>;
}

function parseLine(line: string): SaidLine | null {
  try {
    return JSON.parse(line) as SaidLine;
  } catch {
    return null;
  }
}

function failureOf(code: number | string, output: string): AppError {
  const message = /^hearth set-up: (.*)$/m.exec(output)?.[1] ?? `set-up ended with ${code}`;
  const { error, hint } = causeOf(message, output);
  return new AppError("START_FAILED", error, {
    reason_code: "PROFILE_BUILD_FAILED",
    details: { output },
    ...(hint === null ? {} : { hint }),
  });
}

/** True if a build that was killed left files. A build that runs has them too. */
function hasLeftovers({ data_dir, image_dir }: Config): boolean {
  const temporary = join(data_dir, "tmp/setup");
  if (existsSync(temporary) && readdirSync(temporary).length > 0) return true;
  try {
    const list = join(imageStore(image_dir).root, "overlay-containers/containers.json");
    return readFileSync(list, "utf8").includes('"hearth-setup"');
  } catch {
    return false;
  }
}

export function makeCatalog(config: Config): Catalog {
  return new InstalledCatalog(config);
}

export function makeProfiles(
  base: Parts,
  parts: {
    readonly catalog: Catalog;
    readonly engine: Engine;
    readonly operations: Operations;
    readonly onBuilt: (profile: string, outcome: string) => void;
  },
) {
  const { config, clock, log, undo } = base;
  const { catalog, engine, operations, onBuilt } = parts;
  const clean = (): void => {
    if (!hasLeftovers(config)) return;
    builds.child(["clean"]).catch((error) => log.warn("leftovers of a build not removed", { error: errorText(error) }));
  };
  const builds: ProfileBuilds = new ProfileBuilds({
    runSetup: setupRunner(base),
    clock,
    log,
    onEnd: (profile, outcome) => {
      onBuilt(profile, outcome);
      // A child that was killed has left them.
      if (outcome === "failed") clean();
    },
  });
  undo.add(() => builds.close());
  const { profile_rebuild_hours: rebuild_hours } = config;
  const profiles = new Profiles({ catalog, builds, operations, clock, log, rebuild_hours });
  const contracts = new ImageContracts({
    images: () => engine.images,
    catalog,
    minit: helperPath(config.data_dir),
    log,
  });
  return { profiles, builds, contracts, clean };
}

/** Returns what resolves the image of a container: a profile of this node, or an image of the tenant. */
export function imageResolver(profiles: Profiles, tenant_images: TenantImages): ResolveImage {
  return async (tenant_id, selector, oci) => {
    if (oci) return { ...(await tenant_images.resolve(tenant_id, selector)), release: null };
    const { reference, version } = profiles.select(selector);
    // By its reference: a remembered one keeps the image mounted between containers.
    return { reference, release: version, image_id: null, use: null };
  };
}
