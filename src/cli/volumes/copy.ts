/**
 * `cp` between this machine and a container or a volume, with the rules of cp(1): into a directory that is there, else
 * under the new name; `dir/.` is what is in it. Archives are made and unpacked by this machine's tar(1), as they go.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { lstatSync, type Stats, statSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { LIMITS } from "../../base/limits.ts";
import type { OpenAnswer } from "../../client/client.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { metered } from "../session/meter.ts";
import { isRefusal, type Session, type Words } from "../session/session.ts";
import { TarBytes } from "./tar-bytes.ts";
import { passing, unzipped } from "./tar-entries.ts";

/** A container's or a volume's files. */
export interface Tree {
  open(path: string): Promise<OpenAnswer>;
  /** Unpacks at `path`, which is made where it is missing; the operation that does. */
  send(path: string, pieces: AsyncIterable<Uint8Array>): Promise<string>;
}

type Kind = "missing" | "file" | "directory";

/** Of what tar has to say the end is kept. */
const WORDS_LENGTH_MAX = 4_096;

/** `name:/path`, null for a path of this machine, which begins with '/' or '.', or has no colon. */
export function parsePlace(text: string): { readonly name: string; readonly path: string } | null {
  const match = /^([^/.:][^/:]*):(.*)$/s.exec(text);
  if (match === null) return null;
  const [, name = "", path = ""] = match;
  return { name, path: path.startsWith("/") ? path : `/${path}` };
}

export const containerTree = (session: Session, container_id: string): Tree => ({
  open: (path) =>
    session.client().open("GET /api/containers/:container_id/archive", { params: { container_id }, query: { path } }),
  send: async (path, pieces) =>
    accepted(
      await session.client(LIMITS.cli_call_timeout_ms).request("POST /api/containers/:container_id/archive", {
        params: { container_id },
        query: { path },
        upload: { content_type: "application/x-tar", pieces },
      }),
    ),
});

export const volumeTree = (session: Session, volume: string): Tree => {
  const params = session.volume(volume);
  return {
    open: (path) => session.client().open("GET /api/volumes/:name/archive", { params, query: { path } }),
    send: async (path, pieces) =>
      accepted(
        await session.client(LIMITS.cli_call_timeout_ms).request("POST /api/volumes/:name/archive", {
          params,
          query: { path },
          upload: { content_type: "application/x-tar", pieces },
        }),
      ),
  };
};

/** Ends an answer that nobody reads: only a reader that has begun can give it up. */
async function leave({ pieces }: OpenAnswer): Promise<void> {
  for await (const _ of pieces) return;
}

/** What is there: `path/.` is refused for what is no directory. */
async function kindOf(tree: Tree, path: string): Promise<Kind> {
  try {
    await leave(await tree.open(`${path}/.`));
    return "directory";
  } catch (error) {
    if (isRefusal(error, "INVALID_ARGUMENT")) return "file";
    if (!isRefusal(error, "NOT_FOUND")) throw error;
    // Thrown on where it is the container or the volume that is missing.
    await leave(await tree.open("/."));
    return "missing";
  }
}

/** What is not copied, by the types of its entries in an archive (POSIX ustar). */
const OTHERS: Readonly<Record<string, string>> = { "3": "a device", "4": "a device", "6": "a pipe" };

function otherOf(info: Stats): string | null {
  if (info.isFIFO()) return "a pipe";
  if (info.isSocket()) return "a socket";
  return info.isFile() || info.isDirectory() ? null : "a device";
}

async function localKind(path: string): Promise<Kind> {
  try {
    const info = await stat(path);
    const other = otherOf(info);
    if (other !== null) throw usage(`cannot copy ${path}: it is ${other}`, "copy a file or a directory");
    return info.isDirectory() ? "directory" : "file";
  } catch (error) {
    if (error instanceof Failure) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return "missing";
    throw usage(`cannot read ${path}: ${message}`);
  }
}

const isContent = (path: string) => /(^|\/)\.\/*$/.test(path);

/** What gives a file of an archive another name, as an argument of tar. */
export const renaming = (name: string) => `--transform=s,.*,${name.replace(/[\\&,]/g, "\\$&")},rSH`;

/** This machine's tar, which reads an archive or writes one. */
class Tar {
  readonly #child: ChildProcess;
  readonly #onWord: (line: string) => void;
  #words = "";

  /** `onWord` receives what it says although it succeeds. */
  constructor(args: readonly string[], onWord: (line: string) => void) {
    this.#onWord = onWord;
    const isReader = args[0] === "-x";
    this.#child = spawn("tar", args, {
      stdio: [isReader ? "pipe" : "ignore", isReader ? "ignore" : "pipe", "pipe"],
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (piece: string) => {
      this.#words = (this.#words + piece).slice(-WORDS_LENGTH_MAX);
    });
  }

  /** The archive that it writes. Throws Failure where it could not. */
  async *written(): AsyncGenerator<Buffer> {
    const { stdout } = this.#child;
    const closed = once(this.#child, "close");
    closed.catch(() => {});
    try {
      if (stdout !== null) yield* stdout as AsyncIterable<Buffer>;
      await this.#check(closed);
    } finally {
      this.#child.kill();
    }
  }

  async read(archive: AsyncIterable<Uint8Array>): Promise<void> {
    const { stdin } = this.#child;
    const closed = once(this.#child, "close");
    closed.catch(() => {});
    let broken: unknown = null;
    if (stdin !== null) {
      await pipeline(archive, stdin).catch((error: unknown) => {
        broken = error;
      });
    }
    // Its own words say more than the pipe that it left.
    if (!isPipeBroken(broken) && broken !== null) {
      this.#child.kill();
      throw broken;
    }
    await this.#check(closed);
  }

  async #check(closed: Promise<unknown[]>): Promise<void> {
    let code: unknown;
    try {
      [code] = await closed;
    } catch (cause) {
      throw new Failure(
        EXIT.usage,
        "tar is not installed on this machine",
        "install tar; hearth packs and unpacks copies with it",
        cause,
      );
    }
    // 1: a file has changed while it was read.
    if (code === 0 || code === 1) {
      for (const line of this.#words.split("\n").filter((one) => one !== "")) this.#onWord(line);
      return;
    }
    const [first = ""] = this.#words.split("\n");
    throw new Failure(EXIT.usage, first === "" ? `tar exited with ${code}` : first);
  }
}

const isPipeBroken = (error: unknown) => (error as NodeJS.ErrnoException | null)?.code === "EPIPE";

/** Of all files below, for who watches; it is known when it is. */
function sizeOf(path: string, isWatched: boolean): { bytes: number | null } {
  const size: { bytes: number | null } = { bytes: null };
  if (!isWatched) return size;
  const child = spawn("du", ["-sb", "--", path], { stdio: ["ignore", "pipe", "ignore"] });
  // Without du there is no bar.
  child.on("error", () => {});
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    size.bytes ??= Number.parseInt(text, 10) || null;
  });
  return size;
}

const skipped = ({ terminal }: Session, what: string) => terminal.note(`skipped ${visible(what)}`);

/** What tar says of sockets, in our words. */
const sayTars = (session: Session) => (line: string) => {
  const [, socket] = /^tar: (.*): socket ignored$/.exec(line) ?? [];
  if (socket === undefined) session.terminal.note(visible(line));
  else skipped(session, `${socket}: it is a socket`);
};

/** Files, directories and links of an archive. */
function withoutOthers(session: Session, archive: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  return passing(archive, {
    keeps({ type, name }) {
      const other = OTHERS[type];
      if (other !== undefined) skipped(session, `${name}: it is ${other}`);
      return other === undefined;
    },
  });
}

/** Throws Failure where an entry would take the place of a directory here, or a directory that of something else. */
function checkPlace(into: string, name: string, type: string): void {
  // With its slash, a directory of an archive would not find a file.
  const path = join(into, name.replace(/\/+$/, ""));
  // A link to a directory is none where a file takes its place.
  const info = (type === DIRECTORY ? statSync : lstatSync)(path, { throwIfNoEntry: false });
  if (info === undefined || info.isDirectory() === (type === DIRECTORY)) return;
  const what = info.isDirectory()
    ? "it is a directory here, and a file there"
    : "it is a file here, and a directory there";
  throw usage(`cannot replace ${path}: ${what}`);
}

/** Type of a directory in an archive. */
const DIRECTORY = "5";
/** How the daemon begins comments of an archive that name what it has not. */
const LEFT_OUT = "left out: ";

/** Gives how much was in the files. */
async function upload(session: Session, tree: Tree, source: string, target: string): Promise<number> {
  const isStdin = source === "-";
  const kind = isStdin ? "directory" : await localKind(source);
  if (kind === "missing") throw usage(`no such file or directory: ${source}`);
  const there = await kindOf(tree, target);
  if (kind === "directory" && there === "file") throw usage(`${target} is a file`, "copy a directory to a directory");
  const isInto = there === "directory" || target.endsWith("/");
  const args = ["-c", "-f", "-", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"];
  let into = target;
  if (isStdin) into = target;
  else if (kind === "directory") {
    if (isInto && !isContent(source)) into = posix.join(target, basename(resolve(source)));
    args.push("-C", source, ".");
  } else {
    if (!isInto) into = posix.dirname(target);
    const name = isInto ? basename(source) : posix.basename(target);
    args.push(renaming(name), "--dereference", "-C", dirname(source), "--", `./${basename(source)}`);
  }
  const total = sizeOf(source, !isStdin && process.stderr.isTTY);
  const passed = { bytes: 0 };
  const archive = isStdin ? unzipped(process.stdin) : new Tar(args, sayTars(session)).written();
  const pieces = withoutOthers(session, archive);
  const operation_id = await tree.send(into, metered(session, "sending", pieces, total, passed));
  const { result } = await succeeded(session, operation_id, "unpacking");
  return Number(result?.byte_count ?? passed.bytes);
}

/** The same. */
async function download(session: Session, tree: Tree, source: string, target: string): Promise<number> {
  const passed = { bytes: 0 };
  const found = new TarBytes();
  const archive = async function* ({ pieces }: OpenAnswer): AsyncGenerator<Uint8Array> {
    for await (const piece of metered(session, "receiving", pieces, { bytes: null }, passed)) {
      found.add(piece);
      yield piece;
    }
  };
  if (target === "-") {
    for await (const piece of archive(await tree.open(source))) await session.terminal.pass("out", piece);
    return passed.bytes;
  }
  const here = await localKind(target);
  const content = await tree.open(`${source}/.`).catch((error: unknown) => {
    if (isRefusal(error, "INVALID_ARGUMENT")) return null;
    throw error;
  });
  const isInto = here === "directory" || target.endsWith("/");
  const args = ["-x", "-f", "-", "--no-same-owner", "--no-same-permissions"];
  let place = { into: target, name: null as string | null };
  if (content === null) {
    const name = isInto ? posix.basename(source) : basename(target);
    place = { into: isInto ? target : dirname(target), name };
    args.push(renaming(name), "-C", place.into);
  } else {
    if (here === "file") throw usage(`${target} is a file`, "copy a directory to a directory");
    const into = isInto && !isContent(source) ? join(target, posix.basename(source)) : target;
    await mkdir(into).catch(({ code, message }: NodeJS.ErrnoException) => {
      if (code !== "EEXIST") throw usage(`cannot create ${into}: ${message}`);
    });
    place = { into, name: null };
    args.push("-C", into);
  }
  const checked = passing(archive(content ?? (await tree.open(source))), {
    keeps({ type, name }) {
      checkPlace(place.into, place.name ?? name, type);
      return true;
    },
    onComment(text) {
      if (text.startsWith(LEFT_OUT)) skipped(session, text.slice(LEFT_OUT.length));
    },
  });
  await new Tar(args, sayTars(session)).read(checked);
  return found.bytes;
}

/** Both ways, between this machine and the tree that `treeOf` gives for a name. */
export async function copyBetween(
  session: Session,
  [source = "", target = ""]: Words,
  treeOf: (name: string) => Promise<Tree>,
): Promise<void> {
  const [from, to] = [parsePlace(source), parsePlace(target)];
  if ((from === null) === (to === null)) {
    throw usage(
      from === null ? "neither side is <name>:<path>" : "both sides are <name>:<path>",
      "one side must be a local path, or - for a tar archive",
    );
  }
  let size = 0;
  if (to !== null) size = await upload(session, await treeOf(to.name), source, to.path);
  else if (from !== null) size = await download(session, await treeOf(from.name), from.path, target);
  if (target !== "-") session.show({ bytes_count: size }, () => `${bytes(size)} copied to ${visible(target)}\n`);
}

export function copy(session: Session, words: Words): Promise<void> {
  return copyBetween(session, words, async (name) => containerTree(session, await session.containerId(name)));
}
