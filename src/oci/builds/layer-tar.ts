/**
 * The difference of a root as a layer of an image (OCI image-spec, layer.md). It comes as the tar that the engine writes
 * (`Containers.difference`), and every header is written anew.
 *
 * L1. A deletion, which overlayfs stores as character device 0:0, becomes `.wh.<name>`. A replaced directory, which has the
 *     attribute `trusted.overlay.opaque`, has `.wh..wh..opq` in it.
 * L2. Of extended attributes, `user.*` and `security.capability` stay. Ids of user namespaces in the latter are left out.
 * L3. Mount points that the runtime made in the root are no part of it: those that a container always has, while they are empty.
 * L4. Times are whole seconds. The order is that of names: the same files make the same bytes.
 */
import { AppError } from "../../base/errors.ts";

export interface TarMember {
  readonly type: string;
  /** Byte strings: one character a byte. */
  readonly name: string;
  readonly link: string;
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtime: number;
  readonly device: string;
  readonly attributes: ReadonlyMap<string, string>;
}

export const BLOCK_BYTES = 512;
const ZEROS = Buffer.alloc(BLOCK_BYTES);
const XATTR = "SCHILY.xattr.";
const OPAQUE = "trusted.overlay.opaque";
const CAPABILITY = "security.capability";
const WHITEOUT = ".wh.";
/** Files of every container, and directories for file systems of the kernel and the socket of a container (L3). */
const MOUNTED_FILES = new Set(["etc/hosts", "etc/hostname", "etc/resolv.conf"]);
const MOUNTED_DIRECTORIES = ["dev", "proc", "sys", "run/hearth"];
/** VFS_CAP_REVISION_3 of include/uapi/linux/capability.h, whose data end with the id of a root. */
const REVISION_2 = 0x02;
const REVISION_3 = 0x03;
const REVISION_2_BYTES = 20;
const OCTAL_MAX = 0o7777777;
const SIZE_MAX = 0o77777777777;

/** Parses a header of GNU tar in its format pax, with the records of the extended header before it. */
export function memberOf(block: Buffer, pax: ReadonlyMap<string, string>): TarMember {
  const text = (at: number, length: number) => {
    const bytes = block.toString("latin1", at, at + length);
    const end = bytes.indexOf("\0");
    return end < 0 ? bytes : bytes.slice(0, end);
  };
  const number = (at: number, length: number) => Number.parseInt(text(at, length).trim() || "0", 8);
  const prefix = text(345, 155);
  const attributes = new Map<string, string>();
  for (const [key, value] of pax) if (key.startsWith(XATTR)) attributes.set(key.slice(XATTR.length), value);
  const type = String.fromCharCode(block[156] ?? 0);
  const seconds = Math.floor(Number(pax.get("mtime") ?? number(136, 12)));
  return {
    type,
    name: pax.get("path") ?? (prefix === "" ? text(0, 100) : `${prefix}/${text(0, 100)}`),
    link: pax.get("linkpath") ?? text(157, 100),
    size: type === "0" ? Number(pax.get("size") ?? number(124, 12)) : 0,
    mode: number(100, 8) & 0o7777,
    uid: Number(pax.get("uid") ?? number(108, 8)),
    gid: Number(pax.get("gid") ?? number(116, 8)),
    mtime: Number.isSafeInteger(seconds) && seconds >= 0 ? seconds : 0,
    device: `${number(329, 8)}:${number(337, 8)}`,
    attributes,
  };
}

/** Parses the records of an extended header. */
export function paxRecords(bytes: Buffer): Map<string, string> {
  const found = new Map<string, string>();
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(0x20, at);
    const end = at + Number(bytes.toString("latin1", at, space));
    const equals = bytes.indexOf(0x3d, space);
    if (space < 0 || !(end > at) || end > bytes.length || equals < 0 || equals >= end) {
      throw new AppError("INTERNAL", "corrupt extended header of tar");
    }
    found.set(bytes.toString("latin1", space + 1, equals), bytes.toString("latin1", equals + 1, end - 1));
    at = end;
  }
  return found;
}

/**
 * Returns the headers that stand in the layer for a member, and whether its content follows; null: it is no part of the
 * layer. Throws IMAGE_INVALID.
 */
export function layerHeaders(member: TarMember): { readonly headers: Buffer; readonly has_content: boolean } | null {
  const name = member.name.replace(/^\.\//, "").replace(/\/+$/, "");
  if (name === "" || name === "." || isMountPoint(name, member)) return null;
  const base = name.slice(name.lastIndexOf("/") + 1);
  if (base.startsWith(WHITEOUT)) {
    throw new AppError("IMAGE_INVALID", `reserved file name in image: ${shown(name)} (prefix .wh. marks deletions)`);
  }
  if (member.type === "3" && member.device === "0:0") {
    const parent = name.slice(0, name.length - base.length);
    return { headers: header({ ...bare, name: `${parent}${WHITEOUT}${base}` }), has_content: false };
  }
  // Pipes are kept; devices cannot be made in a build.
  if (!"01256".includes(member.type)) return null;
  const attributes = new Map(keptAttributes(member.attributes));
  const link = member.type === "1" ? member.link.replace(/^\.\//, "") : member.link;
  const own = { ...member, attributes, link, name: member.type === "5" ? `${name}/` : name };
  const parts = [header(own)];
  if (member.type === "5" && member.attributes.has(OPAQUE)) {
    parts.push(header({ ...bare, name: `${name}/${WHITEOUT}${WHITEOUT}.opq` }));
  }
  return { headers: Buffer.concat(parts), has_content: member.type === "0" };
}

/** The headers of an entry that has root as its owner. */
export const tarHeader = (member: Pick<TarMember, "type" | "name"> & Partial<TarMember>): Buffer =>
  header({ ...bare, ...member });

/** The two blocks at the end. */
export const layerEnd = (): Buffer => Buffer.alloc(2 * BLOCK_BYTES);

const bare: TarMember = {
  type: "0",
  name: "",
  link: "",
  size: 0,
  mode: 0o600,
  uid: 0,
  gid: 0,
  mtime: 0,
  device: "",
  attributes: new Map(),
};

const shown = (name: string): string => Buffer.from(name, "latin1").toString("utf8").slice(0, 256);

/** L3. */
function isMountPoint(name: string, { type, size }: TarMember): boolean {
  if (MOUNTED_FILES.has(name)) return type === "0" && size === 0;
  return MOUNTED_DIRECTORIES.some((directory) => name === directory || name.startsWith(`${directory}/`));
}

/** L2. */
function* keptAttributes(attributes: ReadonlyMap<string, string>): Generator<readonly [string, string]> {
  for (const [name, value] of attributes) {
    if (name === CAPABILITY) yield [name, capability(value)];
    else if (name.startsWith("user.") && !name.startsWith("user.overlay.")) yield [name, value];
  }
}

function capability(value: string): string {
  const bytes = Buffer.from(value, "latin1");
  if (bytes[3] !== REVISION_3) return value;
  const plain = Buffer.from(bytes.subarray(0, REVISION_2_BYTES));
  plain[3] = REVISION_2;
  return plain.toString("latin1");
}

/** A header, with an extended one before it for what does not fit. */
function header(member: TarMember): Buffer {
  const records: string[] = [];
  const note = (key: string, value: string) => records.push(paxRecord(key, value));
  if (member.name.length > 100) note("path", member.name);
  if (member.link.length > 100) note("linkpath", member.link);
  if (member.size > SIZE_MAX) note("size", String(member.size));
  if (member.uid > OCTAL_MAX) note("uid", String(member.uid));
  if (member.gid > OCTAL_MAX) note("gid", String(member.gid));
  for (const [name, value] of [...member.attributes].sort()) note(`${XATTR}${name}`, value);
  const own = block(member);
  if (records.length === 0) return own;
  const body = Buffer.from(records.join(""), "latin1");
  const before = block({ ...bare, type: "x", name: "pax", size: body.length });
  return Buffer.concat([before, body, padding(body.length), own]);
}

export const padding = (size: number): Buffer => ZEROS.subarray(0, (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);

function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (`${length}${rest}`.length !== length) length++;
  return `${length}${rest}`;
}

function block(member: TarMember): Buffer {
  const bytes = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, at: number, length: number, max: number) =>
    bytes.write((value > max ? 0 : value).toString(8).padStart(length - 1, "0"), at, "latin1");
  bytes.write(member.name.slice(0, 100), 0, "latin1");
  octal(member.mode, 100, 8, OCTAL_MAX);
  octal(member.uid, 108, 8, OCTAL_MAX);
  octal(member.gid, 116, 8, OCTAL_MAX);
  octal("0x".includes(member.type) ? member.size : 0, 124, 12, SIZE_MAX);
  octal(member.mtime, 136, 12, SIZE_MAX);
  bytes.write("        ", 148, "latin1");
  bytes.write(member.type, 156, "latin1");
  bytes.write(member.link.slice(0, 100), 157, "latin1");
  bytes.write("ustar\x0000", 257, "latin1");
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}
