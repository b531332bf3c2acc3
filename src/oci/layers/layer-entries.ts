/**
 * The entries that a layer may have. buildah unpacks a layer in a chroot of the layer's directory, as root: nothing of it
 * reaches the rest of the machine. These rules hold as well, so that no rule depends on the other side, and so that the
 * refusal names the entry.
 *
 * E1 No path is absolute, has "..", or is longer than a path can be.
 * E2 No entry lies below a symbolic link that the layer itself made, and no hard link leads through one. A path below a link
 *    of an earlier layer becomes a directory of this layer.
 * E3 A hard link leads to a path of the layer. A leading slash stands for the root of the image.
 * E4 Overlayfs stores deletions as character devices 0:0, and redirections as attributes `overlay`. Layers say deletions with
 *    `.wh.` names; a raw device or attribute would let one layer show files of another, or of no layer.
 * E5 Devices are the few that the OCI runtime gives every container, which distributions put into /dev. Roots of containers
 *    are mounted without devices, and control groups of instances deny all others, so these open nothing more. Any other
 *    device would be one node on the disk of this machine away from its disks and memory, behind a single bound.
 * E6 Entries, and memory for the paths of links, are bounded.
 */
import { LIMITS } from "../../base/limits.ts";
import { type LayerEntry, refusal, shownName } from "./layer-tar.ts";

const NAME_BYTES_MAX = 255;
const WHITEOUT = ".wh.";
/** Types by their flags. */
const KNOWN_TYPES = "0123456g";
/** null, zero, full, random, urandom, tty, console, ptmx. */
const HARMLESS_DEVICES = new Set(["1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:1", "5:2"]);
/** Attributes of overlayfs, of both kinds of mounts. */
const OVERLAY_ATTRIBUTE = /^(trusted|user)\.overlay\./;

function refused(name: string, why: string): Error {
  return refusal(`layer entry ${shownName(name)} ${why}`);
}

/** Returns the path of a name without "." and doubled slashes, "" for the root. Throws IMAGE_INVALID (E1). */
function pathOf(entry: string, name: string): string {
  const path = isPlain(name) ? name : normalized(entry, name);
  if (path.length > LIMITS.path_bytes_max) throw refused(entry, `is too long (limit ${LIMITS.path_bytes_max} bytes)`);
  if (path.length > NAME_BYTES_MAX && path.split("/").some((part) => part.length > NAME_BYTES_MAX))
    throw refused(entry, `has a name that is too long (limit ${NAME_BYTES_MAX} bytes)`);
  return path;
}

/** True for most names: nothing in them begins with a dot or is empty. */
function isPlain(name: string): boolean {
  return !name.startsWith(".") && !name.startsWith("/") && !name.endsWith("/") && !/\/[./]/.test(name) && name !== "";
}

function normalized(entry: string, name: string): string {
  if (name.startsWith("/")) throw refused(entry, "has an absolute path");
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) throw refused(entry, `leads out of the layer: ${shownName(name)}`);
  return parts.join("/");
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));

export class LayerEntries {
  /** Paths of symbolic links that are not replaced. */
  readonly #links = new Set<string>();
  #links_bytes = 0;
  #entry_count = 0;
  #disk_bytes = 0;
  #hole_bytes = 0;
  /** The directory of the last entry, if no link has been made since it was checked. */
  #checked: string | null = null;

  /** Bytes that files, with the holes of sparse ones, and directories take on the disk. */
  get disk_bytes(): number {
    return this.#disk_bytes;
  }

  /** Bytes of holes of sparse files. */
  get hole_bytes(): number {
    return this.#hole_bytes;
  }

  /** Throws IMAGE_INVALID for an entry that no layer may have. */
  add(entry: LayerEntry): void {
    const { type, name } = entry;
    if (++this.#entry_count > LIMITS.layer_entries_max)
      throw refused(name, `exceeds the number of entries of a layer (limit ${LIMITS.layer_entries_max})`);
    if (!KNOWN_TYPES.includes(type)) throw refused(name, `is of an unknown type: '${shownName(type)}'`);
    const path = pathOf(name, name);
    if (path === "" && type !== "5" && type !== "g") throw refused(name, "is the root of the image, and no directory");
    this.#checkParent(name, path);
    this.#checkWhiteout(name, path);
    this.#checkAttributes(entry);
    if (type === "3" || type === "4") checkDevice(entry);
    if (type === "5") this.#disk_bytes += LIMITS.layer_directory_bytes;
    if (type === "0") {
      this.#disk_bytes += entry.size;
      this.#hole_bytes += entry.hole_bytes;
    }
    this.#note(path, type === "2" || (type === "1" && this.#isLinkToLink(entry)));
  }

  /** E2, E3. */
  #isLinkToLink({ name, link }: LayerEntry): boolean {
    const target = pathOf(name, link.replace(/^\/+/, ""));
    if (target === "") throw refused(name, "is a hard link to the root of the image");
    for (const above of this.#linksAbove(target))
      throw refused(name, `is a hard link through the symbolic link ${shownName(above)}`);
    return this.#links.has(target);
  }

  /** E2. */
  #checkParent(name: string, path: string): void {
    const parent = parentOf(path);
    if (parent === this.#checked) return;
    for (const above of this.#linksAbove(path)) throw refused(name, `lies below the symbolic link ${shownName(above)}`);
    this.#checked = parent;
  }

  *#linksAbove(path: string): Generator<string> {
    if (this.#links.size === 0) return;
    for (let end = path.indexOf("/"); end >= 0; end = path.indexOf("/", end + 1)) {
      const above = path.slice(0, end);
      if (this.#links.has(above)) yield above;
    }
  }

  #note(path: string, isLink: boolean): void {
    if (isLink) {
      if (this.#links.has(path)) return;
      // A copy: a part of a longer text keeps all of that in memory.
      this.#links.add(Buffer.from(path, "latin1").toString("latin1"));
      this.#links_bytes += path.length + LIMITS.layer_link_bytes;
      this.#checked = null;
      if (this.#links_bytes > LIMITS.layer_links_bytes_max)
        throw refused(path, `exceeds the bytes of all symbolic links' paths (limit ${LIMITS.layer_links_bytes_max})`);
    } else if (this.#links.size > 0 && this.#links.delete(path)) {
      this.#links_bytes -= path.length + LIMITS.layer_link_bytes;
    }
  }

  /** A whiteout deletes one name beside it. */
  #checkWhiteout(name: string, path: string): void {
    if (!path.includes(WHITEOUT)) return;
    const base = path.slice(path.lastIndexOf("/") + 1);
    if ([WHITEOUT, `${WHITEOUT}.`, `${WHITEOUT}..`].includes(base)) throw refused(name, "is a whiteout of no name");
  }

  /** E4. */
  #checkAttributes({ name, attributes }: LayerEntry): void {
    // LIBARCHIVE writes names with percent signs; buildah takes no attribute from those, and no other reader is meant.
    const wrong = attributes.find((attribute) => OVERLAY_ATTRIBUTE.test(decoded(attribute)));
    if (wrong !== undefined) throw refused(name, `has an attribute of overlayfs: ${shownName(wrong)}`);
  }
}

function decoded(attribute: string): string {
  return attribute.replace(/%([0-9A-Fa-f]{2})/g, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** E4, E5. */
function checkDevice({ type, name, device_major, device_minor }: LayerEntry): void {
  const device = `${device_major}:${device_minor}`;
  if (type === "3" && device === "0:0") throw refused(name, "is a raw whiteout: character device 0:0");
  if (type === "3" && HARMLESS_DEVICES.has(device)) return;
  throw refused(
    name,
    `is a device that no container may open: ${type === "3" ? "character" : "block"} device ${device}`,
  );
}
