/** Files of a tree as the API shows them: pages of a directory, contents of a file, archives in both directions. */
import { closing, Streamed } from "../base/answer.ts";
import { toHttpDate } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { JSON_TYPE, preferredType } from "../base/media-types.ts";
import { counted } from "../base/plurals.ts";
import type { ExtractOptions, FileEntry, FileOwner, FileSession, OpenFiles } from "../engine/ports.ts";
import type { Operations } from "../operations/service.ts";
import type { FileContent } from "./schema.ts";

const BYTES_TYPE = "application/octet-stream";
const TYPES = { tar: "application/x-tar", "tar.gz": "application/gzip" } as const;

/** The digits of a mode as people write them: 420 is 644. */
const octal = (mode: number): number => Number(mode.toString(8));
export const modeOf = (digits: number): number => Number.parseInt(String(digits), 8);

export function plain(path: string): string {
  return `/${path
    .split("/")
    .filter((part) => part !== "" && part !== ".")
    .join("/")}`;
}

/** Opens a tree for one piece of work; `close` ends the helper that is jailed in it. */
export type OpenTree = () => Promise<OpenFiles>;

/** Opens the tree for as long as `work` takes. */
async function during<Result>(open: OpenTree, work: (session: FileSession) => Promise<Result>): Promise<Result> {
  const { session, close } = await open();
  try {
    return await work(session);
  } finally {
    close();
  }
}

/** One page of a directory. */
export async function listed(open: OpenTree, request: { path: string; page: number; page_size: number }) {
  const { page, page_size } = request;
  const path = plain(request.path);
  const { entries, total_count } = await during(open, (session) => session.list({ path, page, page_size }));
  const total_pages = Math.max(1, Math.ceil(total_count / page_size));
  return {
    path,
    files: entries.map((entry) => shown(path, entry)),
    page,
    page_size,
    total: total_count,
    total_pages,
    has_more: page < total_pages,
  };
}

function shown(folder: string, { name, type, size, mode, mtime_ms, uid, gid, target }: FileEntry) {
  return {
    name,
    path: folder === "/" ? `/${name}` : `${folder}/${name}`,
    type,
    size,
    mode: octal(mode),
    modified_at: Math.floor(mtime_ms / 1_000),
    uid,
    gid,
    target,
  };
}

interface Range {
  readonly start: number;
  /** Not included. */
  readonly end: number;
}

/** RFC 9110 §14: one range of bytes; null where all are wanted, or where it is none that we know. */
function parseRange(header: string | null, size: number): Range | null {
  const found = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (found === null || (found[1] === "" && found[2] === "")) return null;
  const [, first = "", last = ""] = found;
  const range =
    first === ""
      ? { start: Math.max(0, size - Number(last)), end: size }
      : { start: Number(first), end: last === "" ? size : Math.min(size, Number(last) + 1) };
  if (range.start < range.end) return range;
  if (first !== "" && last !== "" && Number(first) > Number(last)) return null;
  throw new AppError("RANGE_NOT_SATISFIABLE", `range beyond the end of the file (${size} bytes)`, {
    details: { received: header },
  });
}

/** The bytes in base64 as they come, whatever they are: a file may be larger than this process's memory. */
async function* inJson(source: AsyncIterable<Uint8Array>, rest: Omit<FileContent, "content">) {
  yield Buffer.from('{"content":"');
  // Three bytes make four characters; what is left of a piece goes with the next.
  let left = Buffer.alloc(0);
  for await (const piece of source) {
    const bytes = Buffer.concat([left, piece]);
    const whole = bytes.length - (bytes.length % 3);
    left = bytes.subarray(whole);
    yield Buffer.from(bytes.toString("base64", 0, whole));
  }
  yield Buffer.from(`${left.toString("base64")}",${JSON.stringify(rest).slice(1)}`);
}

/** A file's bytes, or a part of them; as JSON in base64 where the client wants JSON and nothing else. */
export async function download(
  open: OpenTree,
  path: string,
  header: (name: string) => string | null,
): Promise<Streamed> {
  const { session, close } = await open();
  try {
    const entry = await session.stat(path, true);
    if (entry.type !== "file") throw new AppError("INVALID_ARGUMENT", `${plain(path)} is a ${entry.type}, not a file`);
    if (preferredType(header("accept"), [BYTES_TYPE, JSON_TYPE]) === JSON_TYPE) {
      const { stream, mode } = await session.read(path);
      const json = inJson(stream, { path: plain(path), mode: octal(mode) });
      return new Streamed(closing(json, close), { content_type: JSON_TYPE });
    }
    const range = parseRange(header("range"), entry.size);
    const { stream, size, mode, mtime_ms } = await session.read(path, range ?? {});
    const sent = range === null ? size : range.end - range.start;
    return new Streamed(closing(stream, close), {
      content_type: BYTES_TYPE,
      is_exclusive: true,
      status: range === null ? 200 : 206,
      headers: {
        "content-length": String(sent),
        "accept-ranges": "bytes",
        "x-file-path": encodeURI(plain(path)),
        "x-file-mode": String(octal(mode)),
        "last-modified": toHttpDate(mtime_ms),
        ...(range === null ? {} : { "content-range": `bytes ${range.start}-${range.end - 1}/${size}` }),
      },
    });
  } catch (error) {
    close();
    throw error;
  }
}

/** A directory's content, or one file, as an archive. */
export async function downloadArchive(open: OpenTree, path: string, format: keyof typeof TYPES): Promise<Streamed> {
  const { session, close } = await open();
  try {
    const { type } = await session.stat(path, true);
    if (type !== "file" && type !== "directory") {
      throw new AppError("INVALID_ARGUMENT", `path: not a file or directory: ${path} (${type.replace("_", " ")})`);
    }
    const archive = session.pack(path, { isGzip: format === "tar.gz" });
    return new Streamed(closing(archive, close), { content_type: TYPES[format], is_exclusive: true });
  } catch (error) {
    close();
    throw error;
  }
}

/** Target and options of unpacking an archive. */
export interface Unpacking {
  readonly path: string;
  readonly strip_components: number;
}

/**
 * Registers an operation that unpacks its attachment: the body of its request, which is read while it runs. `findOwner` says to
 * whom what it makes belongs; null, or without it: root.
 */
export function registerUnpack<Input extends object>(
  operations: Operations,
  type: string,
  openTree: (input: Input, tenant_id: string) => ReturnType<OpenTree>,
  findOwner: (input: Input, tenant_id: string, session: FileSession) => Promise<FileOwner | null> = async () => null,
): void {
  operations.register<Input & Unpacking>(type, {
    // The body went with the process that read it.
    resumable: false,
    cancellable: true,
    timeout_ms: LIMITS.tree_operation_ms,
    run: async (context) => {
      const { tenant_id, input, attachment, signal } = context;
      const source = until(attachment as AsyncIterable<Uint8Array>, signal);
      const { path, strip_components } = input;
      const options: ExtractOptions = {
        path,
        strip_components,
        onProgress: ({ entry_count, byte_count }) =>
          context.progress(null, `${entriesText(entry_count)}, ${counted(byte_count, "byte")}`),
      };
      const done = await during(
        () => openTree(input, tenant_id),
        async (session) => {
          const owner = await findOwner(input, tenant_id, session);
          return session.extract(source, owner === null ? options : { ...options, owner });
        },
      );
      return { result: { ...done }, message: entriesText(done.entry_count) };
    },
  });
}

const entriesText = (count: number) => counted(count, "entry", "entries");

/** Ends with the signal, also while the source gives nothing. */
async function* until(source: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const pieces = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await unlessStopped(signal, pieces.next());
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // It may wait for a piece, and ends after that.
    pieces.return?.().catch(() => {});
  }
}

function unlessStopped<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const stop = () => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop, { once: true });
  work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  return promise;
}
