/**
 * The paths that differ between two snapshots, read from a stream of `btrfs send --no-data` (fs/btrfs/send.h, version 1 to 3):
 * the kernel compares the trees of both and names each change, without reading what is the same. The stream says how to make
 * one of the other step by step, with temporary names; here the steps are played in memory to learn what each path was called
 * before and is called after.
 *
 * Paths are text of one character for each byte (latin1): names need not be UTF-8. All numbers are little-endian.
 */
import { AppError } from "../../base/errors.ts";
import type { TouchedPath } from "../ports/storage.ts";

const MAGIC = "btrfs-stream\0";
/** Magic and a u32, the version. */
const HEAD_BYTES = MAGIC.length + 4;
/** Of a command: u32 length of its attributes, u16 number, u32 checksum. */
const COMMAND_BYTES = 10;
/** Of an attribute: u16 type, u16 length. */
const ATTRIBUTE_BYTES = 4;
/** Without data a command has some paths and an attribute of a file: names and values have at most 64 KiB. */
const COMMAND_BYTES_MAX = 256 * 1024;

const MADE = new Set([3, 4, 5, 6, 7, 8, 10]);
const RENAME = 9;
const REMOVED = new Set([11, 12]);
const XATTR = new Set([13, 14]);
const UTIMES = 20;
/** Write, clone, truncate, chmod, chown, update_extent, fallocate, fileattr, encoded_write, enable_verity. */
const CHANGED = new Set([15, 16, 17, 18, 19, 22, 23, 24, 25, 26]);
const ATTRIBUTE = { xattr_name: 13, path: 15, path_to: 16 } as const;

/** Prefix of the overlay's own notes, which are no attributes of the container's files. */
const OVERLAY = "trusted.overlay.";

interface Node {
  name: string;
  parent: Node | null;
  readonly before: string | null;
  readonly children: Map<string, Node>;
  isTouched: boolean;
  hasTimes: boolean;
  isOpaqueChanged: boolean;
}

/** Plays a stream that comes in pieces. What is cut in the middle of a command counts up to there. */
export class SendStream {
  readonly #root: Node = this.#node("", null, "");
  readonly #gone: Node[] = [];
  #left: Buffer = Buffer.alloc(0);
  #hasHead = false;

  /** Throws INTERNAL for what is no such stream. */
  push(piece: Buffer): void {
    const bytes = this.#left.length === 0 ? piece : Buffer.concat([this.#left, piece]);
    let at = 0;
    if (!this.#hasHead) {
      if (bytes.length < HEAD_BYTES) {
        this.#left = bytes;
        return;
      }
      if (bytes.toString("latin1", 0, MAGIC.length) !== MAGIC) throw new AppError("INTERNAL", "not a btrfs stream");
      this.#hasHead = true;
      at = HEAD_BYTES;
    }
    while (bytes.length - at >= COMMAND_BYTES) {
      const length = bytes.readUInt32LE(at);
      if (length > COMMAND_BYTES_MAX) throw new AppError("INTERNAL", `command of ${length} bytes in a btrfs stream`);
      if (bytes.length - at < COMMAND_BYTES + length) break;
      const begin = at + COMMAND_BYTES;
      this.#play(bytes.readUInt16LE(at + 4), attributesOf(bytes.subarray(begin, begin + length)));
      at = begin + length;
    }
    this.#left = bytes.subarray(at);
  }

  /** Yields what differs: what is gone first, then the rest from the root down. */
  *touched(): Generator<TouchedPath, void, undefined> {
    for (const { before } of this.#gone) {
      if (before !== null) yield { path: null, before, isTimesAlone: false, isOpaqueChanged: false };
    }
    yield* this.#below(this.#root, "");
  }

  #play(command: number, attributes: ReadonlyMap<number, string>): void {
    const path = attributes.get(ATTRIBUTE.path);
    if (path === undefined) return;
    if (MADE.has(command)) this.#make(path);
    else if (command === RENAME) this.#rename(path, attributes.get(ATTRIBUTE.path_to) ?? path);
    else if (REMOVED.has(command)) this.#remove(path);
    else if (command === UTIMES) this.#find(path).hasTimes = true;
    else if (XATTR.has(command)) {
      const node = this.#find(path);
      const name = attributes.get(ATTRIBUTE.xattr_name) ?? "";
      if (!name.startsWith(OVERLAY)) node.isTouched = true;
      if (name === `${OVERLAY}opaque`) node.isOpaqueChanged = true;
    } else if (CHANGED.has(command)) this.#find(path).isTouched = true;
  }

  *#below(node: Node, path: string): Generator<TouchedPath, void, undefined> {
    for (const child of node.children.values()) {
      const own = path === "" ? child.name : `${path}/${child.name}`;
      const { before, isTouched, hasTimes, isOpaqueChanged } = child;
      if (before !== own || isTouched || hasTimes || isOpaqueChanged) {
        yield { path: own, before, isTimesAlone: before === own && !isTouched, isOpaqueChanged };
      }
      yield* this.#below(child, own);
    }
  }

  #node(name: string, parent: Node | null, before: string | null): Node {
    return { name, parent, before, children: new Map(), isTouched: false, hasTimes: false, isOpaqueChanged: false };
  }

  /** Returns the node of a path. A path without a node existed before: it gets one. */
  #find(path: string): Node {
    let node = this.#root;
    for (const name of path.split("/").filter((part) => part !== "")) {
      const found = node.children.get(name);
      if (found !== undefined) {
        node = found;
        continue;
      }
      const before = node.before === null ? null : node.before === "" ? name : `${node.before}/${name}`;
      const made = this.#node(name, node, before);
      node.children.set(name, made);
      node = made;
    }
    return node;
  }

  #make(path: string): void {
    const { parent, name } = this.#place(path);
    const node = this.#node(name, parent, null);
    node.isTouched = true;
    parent.children.set(name, node);
  }

  #rename(from: string, to: string): void {
    const node = this.#find(from);
    node.parent?.children.delete(node.name);
    const { parent, name } = this.#place(to);
    node.parent = parent;
    node.name = name;
    parent.children.set(name, node);
  }

  #remove(path: string): void {
    const node = this.#find(path);
    node.parent?.children.delete(node.name);
    this.#gone.push(node);
  }

  #place(path: string): { readonly parent: Node; readonly name: string } {
    const at = path.lastIndexOf("/");
    return { parent: this.#find(path.slice(0, Math.max(at, 0))), name: path.slice(at + 1) };
  }
}

/** The attributes of a command by their type, as text of bytes. */
function attributesOf(bytes: Buffer): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  for (let at = 0; bytes.length - at >= ATTRIBUTE_BYTES; ) {
    const [type, length] = [bytes.readUInt16LE(at), bytes.readUInt16LE(at + 2)];
    at += ATTRIBUTE_BYTES;
    found.set(type, bytes.toString("latin1", at, at + length));
    at += length;
  }
  return found;
}
