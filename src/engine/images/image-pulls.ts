/**
 * Pulls: buildah brings an image into the store, and the store keeps it under a name of this daemon.
 *
 * I1 Each pull has a directory with a note, made before buildah starts and removed when nothing of the pull is left. The next
 *    boot clears up after each note that it finds.
 * I2 An image gets its kept name before the name that buildah gave it is taken away. A name that stood for an image before
 *    stands for that image again.
 * I3 buildah's command line names the pull's directory: so a cancelled pull, or one of a dead daemon, is found and killed with
 *    all its processes.
 * I4 A pull holds a shared lock on a file beside the store, in buildah's process. Layers without an image are removed under the
 *    exclusive lock alone: no pull of any daemon relies on them then.
 * I5 Layers that come uncompressed look like those of a commit that is running. The note has their digests, and stays until they
 *    are removed: the end of a later pull tries again.
 */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { KeyedMutex, Semaphore } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import { ENVIRONMENT, type LauncherClient, type SpawnResult } from "../launcher/launcher.ts";
import type { ImagePull } from "../ports/images.ts";
import { type ImageStore, isLoss } from "./image-store.ts";
import { killCommands, runKillable } from "./killable-commands.ts";
import { orphanLayers, type PulledLayers } from "./orphan-layers.ts";
import type { StoreFiles } from "./store-files.ts";

const COMMAND_TIMEOUT_MS = 30_000;
const NOTE = "pull.json";
/** Pattern of a complete reference: a registry, a repository, and a tag or a digest. */
const COMPLETE = /^[\w.-]+(:\d+)?(\/[\w.-]+)+(:[\w.-]+|@sha256:[0-9a-f]{64})$/;
const ID = /^[0-9a-f]{64}$/;
/** Errors of a layer whose tar cannot be unpacked as it is, in a chroot of its own: a path leads through no directory, or is there twice. */
const NOT_UNPACKED =
  /layer with blob "(sha256:[0-9a-f]{64})": processing tar file\((.*(?:no such file or directory|not a directory|is a directory|file exists|too many levels of symbolic links|file name too long))\)/;
const TWICE = /layer with blob "(sha256:[0-9a-f]{64})": .*duplicates of file paths not supported/;
/** A killed pull holds its lock for a moment after it is gone from the list of processes. */
const LOCK_WAIT_SECONDS = 1;
/** Exit status of flock if the lock is taken. */
const LOCK_TAKEN = 75;

/** Note of a pull under way, whose leftovers a sweep removes. */
interface Note extends PulledLayers {
  /** The name that buildah gives to the image. */
  readonly name: string;
  /** Id of the image that had the name before; null: none. */
  readonly before: string | null;
}

type Sweep = "done" | "again" | "locked";

export interface ImagePullsOptions {
  readonly images: ImageStore;
  readonly files: StoreFiles;
  /** buildah, and the command line of containers/storage, with their global flags. */
  readonly buildah: readonly string[];
  readonly storage: readonly string[];
  /** A directory of its own, on a disk. */
  readonly directory: string;
  /** A file beside the store (I4). */
  readonly lock_file: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly withLauncher: <Result>(work: (launcher: LauncherClient) => Promise<Result>) => Promise<Result>;
}

export class ImagePulls {
  readonly #options: ImagePullsOptions;
  readonly #pulls = new Semaphore(LIMITS.image_pulls_at_once, LIMITS.image_pulls_waiting_max, () => {
    return new AppError("CAPACITY_FULL", "too many pulls of images", { retry_after: 10 });
  });
  /** Pulls of one name, one after the other. */
  readonly #turns = new KeyedMutex();
  /** Notes of failed pulls whose layers may still be there (I5), by their directories. */
  readonly #left = new Map<string, PulledLayers>();
  #cleared: Promise<void> | null = null;

  constructor(options: ImagePullsOptions) {
    this.#options = options;
  }

  /** Clears up after pulls of an earlier process, once. Never rejects: what is left is found at the next boot. */
  begin(): Promise<void> {
    this.#cleared ??= this.#clear().catch((error: unknown) => {
      this.#options.log.warn("pulls of an earlier process not cleared up", { error: errorText(error) });
    });
    return this.#cleared;
  }

  /** Begins, and tries again to remove what a taken lock has left (I5). Never rejects. */
  async clearUp(): Promise<void> {
    const isFirst = this.#cleared === null;
    await this.begin();
    if (!isFirst && this.#left.size > 0) await this.#removeLeft();
  }

  /** Pulls an image. `keep` gives it its kept name (I2). Rejects like `Images.pull`. */
  async pull(of: ImagePull, keep: (id: string) => Promise<void>): Promise<void> {
    await this.begin();
    if (of.transport === "containers-storage") return this.#take(of.reference, keep);
    if (!COMPLETE.test(of.reference)) {
      throw new AppError("INVALID_ARGUMENT", `reference of an image not complete: ${of.reference.slice(0, 512)}`);
    }
    await this.#pulls.run(() => this.#turns.run(of.reference, () => this.#pull(of, keep)));
  }

  /** Keeps an image that the store has already, beside the names that it has. */
  async #take(reference: string, keep: (id: string) => Promise<void>): Promise<void> {
    const { images, withLauncher } = this.#options;
    const { id } = await withLauncher((launcher) => images.find(launcher, reference));
    await keep(id);
  }

  async #pull(of: ImagePull, keep: (id: string) => Promise<void>): Promise<void> {
    of.signal.throwIfAborted();
    if (this.#left.size >= LIMITS.image_pulls_left_max) await this.#removeLeft();
    if (this.#left.size >= LIMITS.image_pulls_left_max) {
      throw new AppError("CAPACITY_FULL", "too many failed pulls whose layers are not removed yet", {
        retry_after: 10,
      });
    }
    const { reference: name, diff_ids } = of;
    const note: Note = {
      ...{ name, before: await this.#holder(name) },
      ...{ diff_ids, started_ms: this.#options.clock.epochMs() },
    };
    const directory = await this.#make(note);
    failpoint("images.pull.noted");
    try {
      const id = await this.#run(of, directory);
      failpoint("images.pull.stored");
      await keep(id);
      failpoint("images.pull.named");
      await this.#unname(note);
      failpoint("images.pull.unnamed");
    } catch (error) {
      await this.#undo(note, directory);
      throw error;
    }
    await rm(directory, { recursive: true, force: true });
    if (this.#left.size > 0) await this.#removeLeft();
  }

  async #make(note: Note): Promise<string> {
    await mkdir(this.#options.directory, { recursive: true, mode: 0o700 });
    const directory = await mkdtemp(join(this.#options.directory, "pull-"));
    await mkdir(join(directory, "tmp"));
    await mkdir(join(directory, "registries.conf.d"));
    await writeFile(join(directory, "auth.json"), "{}");
    await writeFile(join(directory, NOTE), JSON.stringify(note));
    return directory;
  }

  /** Runs buildah to its end. Returns the id of the image. */
  async #run(of: ImagePull, directory: string): Promise<string> {
    const { clock, withLauncher } = this.#options;
    const result = await withLauncher((launcher) =>
      runKillable(launcher, this.#command(of, directory), { clock, directory, signal: of.signal }),
    );
    of.signal.throwIfAborted();
    const id = result.stdout.trim().split("\n").at(-1)?.trim() ?? "";
    if (result.exit_code === 0 && !result.timed_out && !result.spawn_failed && ID.test(id)) return id;
    throw failureOf(of, result);
  }

  #command(of: ImagePull, directory: string) {
    const { buildah, lock_file } = this.#options;
    const { reference, platform, registries_conf, policy_file, timeout_ms } = of;
    const own = (name: string) => join(directory, name);
    const argv = [
      ...["flock", "--shared", "--no-fork", lock_file],
      ...buildah,
      ...["--registries-conf-dir", own("registries.conf.d")],
      ...(registries_conf === null ? [] : ["--registries-conf", registries_conf]),
      ...["pull", "--quiet", "--policy", "always", "--retry", "0", "--authfile", own("auth.json")],
      ...["--os", platform.os, "--arch", platform.architecture],
      ...(platform.variant === null ? [] : ["--variant", platform.variant]),
      ...(policy_file === null ? [] : ["--signature-policy", policy_file]),
      ...["--", `docker://${reference}`],
    ];
    const conf = registries_conf === null ? [] : [`CONTAINERS_REGISTRIES_CONF=${registries_conf}`];
    // Layers lie here, as they came, until they are unpacked.
    return { argv, timeout_ms, environment: [...ENVIRONMENT, `TMPDIR=${own("tmp")}`, ...conf] };
  }

  /** Returns the id of the image that has the name, null if there is none. */
  async #holder(name: string): Promise<string | null> {
    const images = await this.#options.files.images();
    return images.find(({ names }) => names?.includes(name))?.id ?? null;
  }

  /** I2. An image that has no other name is removed with its name. */
  async #unname({ name, before }: Note): Promise<void> {
    const { files, images, withLauncher } = this.#options;
    const rows = await files.images();
    const holder = rows.find(({ names }) => names?.includes(name));
    if (holder === undefined || holder.id === before) return;
    if (before === null || !rows.some(({ id }) => id === before)) {
      await withLauncher((launcher) => images.unname(launcher, name));
      return;
    }
    await withLauncher((launcher) => images.rename(launcher, before, name));
    if (holder.names?.length === 1) await withLauncher((launcher) => images.unname(launcher, holder.id));
  }

  /** After a failure. Never rejects: the next boot finds the note of what is left (I1). */
  async #undo(note: Note, directory: string): Promise<void> {
    try {
      await this.#unname(note);
      this.#left.set(directory, note);
      await rm(join(directory, "tmp"), { recursive: true, force: true });
      await this.#removeLeft();
    } catch (error) {
      this.#options.log.warn("failed pull not cleared up", { image: note.name, error: errorText(error) });
    }
  }

  /** Removes the layers of failed pulls, and then their notes (I5). Never rejects. */
  async #removeLeft(): Promise<void> {
    const left = [...this.#left.keys()];
    try {
      const isSwept = await this.#sweep();
      for (const directory of left) {
        // Without such layers there is nothing that only the note tells.
        if (!isSwept && (this.#left.get(directory)?.diff_ids.length ?? 0) > 0) continue;
        await rm(directory, { recursive: true, force: true });
        this.#left.delete(directory);
      }
    } catch (error) {
      this.#options.log.warn("layers of failed pulls not removed", { error: errorText(error) });
    }
  }

  /** Clears up after pulls of an earlier process. */
  async #clear(): Promise<void> {
    const { directory } = this.#options;
    const left = await readdir(directory).catch(() => []);
    for (const name of left) {
      const own = join(directory, name);
      await killCommands(this.#options.clock, own);
      const text = await readFile(join(own, NOTE), "utf8").catch(() => "");
      const note = noteOf(text);
      if (note !== null) await this.#unname(note);
      this.#left.set(own, { diff_ids: note?.diff_ids ?? [], started_ms: note?.started_ms ?? 0 });
    }
    if (left.length === 0) await this.#sweep();
    else await this.#removeLeft();
  }

  /** I4. Returns false if a pull has the lock, or the removal failed. Also lets containers/storage remove layers that are not complete, which it does whenever it opens the store. */
  async #sweep(): Promise<boolean> {
    // A layer that is not complete needs its parents: they are orphans once it is removed.
    const first = await this.#sweepOnce();
    return (first === "again" ? await this.#sweepOnce() : first) !== "locked";
  }

  /** Returns `again` if layers that were not complete are removed. */
  async #sweepOnce(): Promise<Sweep> {
    const { files, storage, lock_file, clock, withLauncher } = this.#options;
    const layers = await files.layers();
    const lists = { layers, images: await files.images(), containers: await files.containers() };
    const ids = orphanLayers(lists, clock.epochMs(), LIMITS.orphan_layer_ms, [...this.#left.values()]);
    const hasIncomplete = layers.some(({ flags }) => flags?.incomplete === true);
    if (ids.length === 0 && !hasIncomplete) return "done";
    const verb = ids.length === 0 ? ["layers"] : ["delete-layer", ...ids];
    const wait = ["--timeout", String(LOCK_WAIT_SECONDS), "--conflict-exit-code", String(LOCK_TAKEN)];
    const locked = ["flock", "--exclusive", ...wait, lock_file];
    const result = await withLauncher((launcher) =>
      launcher.spawn({ argv: [...locked, ...storage, ...verb], timeout_ms: COMMAND_TIMEOUT_MS }),
    );
    // The other pull's end, or the next boot, finds them again. An image that came meanwhile has its layers.
    if (result.exit_code === 0) return hasIncomplete ? "again" : "done";
    if (result.exit_code !== LOCK_TAKEN) {
      this.#options.log.warn("layers without an image not removed", { error: result.stderr.trim().slice(-500) });
    }
    return "locked";
  }
}

/** A crash may cut a note: then buildah was not started. */
function noteOf(text: string): Note | null {
  try {
    return JSON.parse(text) as Note;
  } catch {
    return null;
  }
}

function failureOf({ reference, timeout_ms }: ImagePull, result: SpawnResult): AppError {
  const text = result.stderr.trim();
  const last = text.split("\n").at(-1)?.slice(-1_000) ?? "";
  if (result.timed_out) return new AppError("TIMEOUT", `pull of ${reference} did not end within ${timeout_ms} ms`);
  if (/no space left on device|disk quota exceeded/i.test(text))
    return new AppError("CAPACITY_FULL", `no disk space for the image ${reference}`);
  if (/is rejected by policy|[Ss]ource image rejected/.test(text))
    return new AppError("FORBIDDEN", `image rejected by the signature policy of this node: ${reference}`);
  const [, layer = "", why = "it has a path twice"] = NOT_UNPACKED.exec(text) ?? TWICE.exec(text) ?? [];
  if (layer !== "") return new AppError("IMAGE_INVALID", `layer ${layer} cannot be unpacked: ${why.slice(0, 500)}`);
  return new AppError("INTERNAL", `buildah could not pull ${reference}: ${last}`, { retryable: isLoss(text) });
}
