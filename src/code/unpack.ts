/**
 * Unpacks the entries of an archive of code into an empty tree that nobody else uses. Every path is checked twice: here by
 * `CodeTree`, and by the helper, which is jailed in the tree and follows no link out of it.
 *
 * Files and directories belong to root, with mode 644 or 755 and one time, so that the digest determines the tree. A file is
 * executable if the archive says so or if it begins with `#!`: archives made on Windows have no modes.
 */
import { createHash, hash } from "node:crypto";
import { giveBack } from "../base/buffer-memory.ts";
import { LIMITS } from "../base/limits.ts";
import { SCRIPT_START } from "../base/tree-digest.ts";
import type { ArchiveEntry, ArchiveReader, FileAttributes, FileSession } from "../engine/ports.ts";
import { type CodeTree, pathOf, refusal } from "./tree.ts";

/** Content up to this goes with its request in one frame. */
const SMALL_BYTES = 64 * 1024;
/** 1980-01-01: the oldest time that a zip can hold. */
export const CODE_MTIME_MS = 315_532_800_000;
const BENEATH = { isBeneath: true };
const DIRECTORY: FileAttributes = { mode: 0o755 };
const OWNER_EXECUTES = 0o100;

/** Finds out from its first two bytes whether a file is a script; they may come in two pieces. */
class ScriptSign {
  #start = "";

  get isScript(): boolean {
    return this.#start === SCRIPT_START;
  }

  add(piece: Uint8Array): void {
    const missing_count = SCRIPT_START.length - this.#start.length;
    if (missing_count > 0) this.#start += String.fromCharCode(...piece.subarray(0, missing_count));
  }
}

class Unpacking {
  readonly #session: FileSession;
  readonly #reader: ArchiveReader;
  readonly #tree: CodeTree;
  readonly #strip_components: number;
  #entry_count = 0;
  #byte_count = 0;
  #failure: unknown = null;
  #last: Promise<void> = Promise.resolve();

  constructor(session: FileSession, reader: ArchiveReader, tree: CodeTree, strip_components: number) {
    this.#session = session;
    this.#reader = reader;
    this.#tree = tree;
    this.#strip_components = strip_components;
  }

  async run(): Promise<void> {
    await this.#session.setBase("/");
    for (let entry = await this.#reader.next(); entry !== null; entry = await this.#reader.next()) {
      await this.#add(entry);
      await this.#turn();
    }
    await this.#tree.checkLinks();
    // A new entry changes the time of its directory.
    for (const path of this.#tree.directories()) {
      this.#follow(this.#session.setAttributes(bytesOf(path), { ...DIRECTORY, mtime_ms: CODE_MTIME_MS }, BENEATH));
      await this.#turn();
    }
    await this.#last;
    this.#check();
  }

  async #add(entry: ArchiveEntry): Promise<void> {
    this.#count(entry);
    const path = pathOf(entry.name, entry.name, this.#strip_components);
    if (path === null) return;
    if (entry.type === "directory") {
      if (this.#tree.addDirectory(path)) this.#follow(this.#session.mkdir(bytesOf(path), DIRECTORY, BENEATH));
      return;
    }
    this.#tree.checkPlace(path);
    if (entry.type === "file") {
      await this.#addFile(path, entry);
    } else if (entry.type === "symlink") {
      this.#tree.addLink(path, entry.link);
      const attributes = { mtime_ms: CODE_MTIME_MS };
      this.#follow(this.#session.symlink(bytesOf(path), bytesOf(entry.link), attributes, BENEATH));
    } else {
      const existing = pathOf(entry.name, entry.link, this.#strip_components) ?? "";
      this.#tree.addName(path, existing);
      this.#follow(this.#session.link(bytesOf(path), bytesOf(existing), BENEATH));
    }
  }

  #count({ name, size }: ArchiveEntry): void {
    if (++this.#entry_count > LIMITS.code_entries_max)
      throw refusal(name, `exceeds the number of entries of code (limit ${LIMITS.code_entries_max})`);
    this.#byte_count += size;
    if (this.#byte_count > LIMITS.code_bytes_max)
      throw refusal(name, `of ${size} bytes exceeds the size of code (limit ${LIMITS.code_bytes_max} bytes)`);
  }

  async #addFile(path: string, { mode, size }: ArchiveEntry): Promise<void> {
    const isMarked = (mode & OWNER_EXECUTES) !== 0;
    const sign = new ScriptSign();
    if (size <= SMALL_BYTES) {
      const content = await this.#reader.content();
      sign.add(content);
      const isExecutable = isMarked || sign.isScript;
      this.#follow(this.#session.put(bytesOf(path), content, attributesOf(isExecutable), BENEATH));
      this.#tree.addFile(path, isExecutable, hash("sha256", content, "binary"), size);
      return;
    }
    const writer = this.#session.beginWrite(bytesOf(path), attributesOf(isMarked), BENEATH);
    this.#follow(writer.done);
    const sum = createHash("sha256");
    for (let piece = await this.#reader.piece(); piece !== null; piece = await this.#reader.piece()) {
      const bytes = piece;
      sum.update(bytes);
      sign.add(bytes);
      if (!writer.add(bytes, () => giveBack(bytes))) break;
      if (!this.#session.hasRoom) await this.#session.room();
    }
    writer.end();
    const isExecutable = isMarked || sign.isScript;
    if (isExecutable && !isMarked)
      this.#follow(this.#session.setAttributes(bytesOf(path), attributesOf(true), BENEATH));
    this.#tree.addFile(path, isExecutable, sum.digest("binary"), size);
  }

  async #turn(): Promise<void> {
    if (!this.#session.hasRoom) await this.#session.room();
    this.#check();
  }

  /** Requests are not waited for one by one: they are answered in their order, and the first failure ends the work. */
  #follow(request: Promise<void>): void {
    this.#last = request.catch((error: unknown) => {
      this.#failure ??= error;
    });
  }

  #check(): void {
    if (this.#failure !== null) throw this.#failure;
  }
}

function attributesOf(isExecutable: boolean): FileAttributes {
  return { mode: isExecutable ? 0o755 : 0o644, mtime_ms: CODE_MTIME_MS };
}

const bytesOf = (text: string): Uint8Array => Buffer.from(text, "latin1");

/**
 * Unpacks all entries of the reader and adds them to the tree. Rejects with INVALID_ARGUMENT that names the entry, with
 * STORAGE_FULL, or with the error of the source; then the files are to be thrown away.
 */
export function unpack(
  session: FileSession,
  reader: ArchiveReader,
  tree: CodeTree,
  strip_components: number,
): Promise<void> {
  return new Unpacking(session, reader, tree, strip_components).run();
}
