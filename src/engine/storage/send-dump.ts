/**
 * The paths that differ between two snapshots, read from what `btrfs receive --dump` prints of a `btrfs send --no-data`
 * stream: the kernel compares the trees of both and names each change, without reading what is the same. The stream says how
 * to make one of the other step by step, with temporary names; here the steps are played in memory to learn what each path
 * was called before and is called after.
 *
 * Paths are text of one character for each byte (latin1): names need not be UTF-8.
 */
import type { TouchedPath } from "../ports/storage.ts";

interface Node {
  name: string;
  parent: Node | null;
  readonly before: string | null;
  readonly children: Map<string, Node>;
  isTouched: boolean;
  hasTimes: boolean;
  isOpaqueChanged: boolean;
}

/** `<command> <path> [<fields>]`; in a path a backslash stands before a space, a letter or three octal digits. */
const LINE = /^(\w+)\s+((?:\\.|[^\\\s])+)(?:\s+(.*))?$/s;
const ESCAPE = /\\([0-7]{3}|.)/gs;
const LETTERS: Readonly<Record<string, string>> = {
  ...{ a: "\x07", b: "\b", e: "\x1b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" },
};
const OVERLAY = "trusted.overlay.";

const unescaped = (text: string): string =>
  text.replace(ESCAPE, (_, code: string) =>
    code.length === 3 ? String.fromCharCode(Number.parseInt(code, 8)) : (LETTERS[code] ?? code),
  );

/** Removes `./<name of the snapshot>/`. */
const inside = (path: string): string => unescaped(path).split("/").slice(2).join("/");

/** Returns the value of `<field>=`, which is a path. */
function fieldOf(fields: string | undefined, field: string): string | null {
  const match = new RegExp(`(?:^|\\s)${field}=((?:\\\\.|[^\\\\\\s])+)`, "s").exec(fields ?? "");
  return match?.[1] ?? null;
}

/** Plays the steps of a dump, line by line. */
export class SendDump {
  readonly #root: Node = this.#node("", null, "");
  readonly #gone: Node[] = [];

  /** Plays one line. Lines of unknown commands are left out. */
  line(text: string): void {
    const match = LINE.exec(text);
    if (match === null) return;
    const [, command = "", first = "", fields] = match;
    const path = inside(first);
    if (command === "mkfile" || command === "mkdir" || command === "mknod" || command === "mkfifo") this.#make(path);
    else if (command === "mksock" || command === "symlink" || command === "link") this.#make(path);
    else if (command === "rename") this.#rename(path, inside(fieldOf(fields, "dest") ?? ""));
    else if (command === "unlink" || command === "rmdir") this.#remove(path);
    else if (command === "utimes") this.#find(path).hasTimes = true;
    else if (command === "set_xattr" || command === "remove_xattr") {
      const node = this.#find(path);
      const name = fieldOf(fields, "name") ?? "";
      // The overlay's own notes are no attributes of the container's files.
      if (!name.startsWith(OVERLAY)) node.isTouched = true;
      if (name === `${OVERLAY}opaque`) node.isOpaqueChanged = true;
    } else if (CHANGES.has(command)) this.#find(path).isTouched = true;
  }

  /** Yields what differs: what is gone first, then the rest from the root down. */
  *touched(): Generator<TouchedPath, void, undefined> {
    for (const { before } of this.#gone) {
      if (before !== null) yield { path: null, before, isTimesAlone: false, isOpaqueChanged: false };
    }
    yield* this.#below(this.#root, "");
  }

  *#below(node: Node, path: string): Generator<TouchedPath, void, undefined> {
    for (const child of node.children.values()) {
      const own = path === "" ? child.name : `${path}/${child.name}`;
      const { before, isTouched, hasTimes, isOpaqueChanged } = child;
      if (before !== own || isTouched || hasTimes || isOpaqueChanged) {
        const isTimesAlone = before === own && !isTouched;
        yield { path: own, before, isTimesAlone, isOpaqueChanged };
      }
      yield* this.#below(child, own);
    }
  }

  #node(name: string, parent: Node | null, before: string | null): Node {
    return { name, parent, before, children: new Map(), isTouched: false, hasTimes: false, isOpaqueChanged: false };
  }

  /** What is not known yet was there before. */
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

const CHANGES: ReadonlySet<string> = new Set([
  ...["write", "clone", "truncate", "update_extent", "chmod", "chown", "fallocate", "fileattr", "enable_verity"],
]);
