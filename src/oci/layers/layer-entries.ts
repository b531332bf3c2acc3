/**
 * The entries that a layer may have. buildah unpacks a layer in a chroot of the layer's directory, as root: nothing of it
 * reaches the rest of the machine. These rules hold as well, so that no rule depends on the other side, and so that the
 * refusal names the entry.
 *
 * E1 No path has ".." or is longer than a path can be. A leading slash stands for the root of the image, and `/` alone is the root.
 * E2 An entry may lie below a symbolic link of its layer, and a hard link may lead through one. Whoever reads the layer follows it as
 *    buildah did, which unpacks in a chroot: an absolute target begins at the root of the layer, and `..` does not leave it. A link
 *    that was passed stays, so that what lies below it is found again under its name. A path below a link of an earlier layer becomes
 *    a directory of this layer.
 * E3 A hard link leads to a path of the layer.
 * E4 Overlayfs stores deletions as character devices 0:0, and redirections as attributes `overlay`. Layers say deletions with
 *    `.wh.` names; a raw device or attribute would let one layer show files of another, or of no layer.
 * E5 Devices are the few that the OCI runtime gives every container, which distributions put into /dev. Roots of containers
 *    are mounted without devices, and control groups of instances deny all others, so these open nothing more. Any other
 *    device would be one node on the disk of this machine away from its disks and memory, behind a single bound: below /dev, where
 *    nothing of an image is seen, it is counted, and the store's nodes are removed before the image has a row
 *    (`Images.removeDevices`); elsewhere it is refused.
 * E6 Entries, memory for the paths and targets of links, and the work to follow them are bounded.
 */
import { LIMITS } from "../../base/limits.ts";
import { type LayerEntry, refusal, shownName } from "./layer-tar.ts";

const NAME_BYTES_MAX = 255;
/** As Linux has it. */
const LINKS_MAX = 40;
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

const tooLong = (name: string): Error => refused(name, `is too long (limit ${LIMITS.path_bytes_max} bytes)`);

const partsOf = (path: string): string[] => path.split("/").filter((part) => part !== "" && part !== ".");

/** Returns the path of a name without "." and doubled slashes, "" for the root. Throws IMAGE_INVALID (E1). */
function pathOf(entry: string, name: string): string {
  const path = isPlain(name) ? name : normalized(entry, name);
  if (path.length > LIMITS.path_bytes_max) throw tooLong(entry);
  if (path.length > NAME_BYTES_MAX && path.split("/").some((part) => part.length > NAME_BYTES_MAX))
    throw refused(entry, `has a name that is too long (limit ${NAME_BYTES_MAX} bytes)`);
  return path;
}

/** True for most names: nothing in them begins with a dot or is empty. */
function isPlain(name: string): boolean {
  return !name.startsWith(".") && !name.startsWith("/") && !name.endsWith("/") && !/\/[./]/.test(name) && name !== "";
}

function normalized(entry: string, name: string): string {
  const parts = partsOf(name);
  if (parts.includes("..")) throw refused(entry, `leads out of the layer: ${shownName(name)}`);
  return parts.join("/");
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));
/** A copy: a part of a longer text keeps all of that in memory. */
const copyOf = (text: string): string => Buffer.from(text, "latin1").toString("latin1");

interface Link {
  readonly target: string;
  /** True if an entry lies below it (E2). */
  isPassed: boolean;
}

export class LayerEntries {
  /** Symbolic links that are not replaced, by their paths. */
  readonly #links = new Map<string, Link>();
  #links_bytes = 0;
  #resolved_bytes = 0;
  #entry_count = 0;
  #disk_bytes = 0;
  #hole_bytes = 0;
  #skipped_devices = 0;
  /** The directory of the last entry and where it leads to, if no link has been made since. */
  #last: { readonly directory: string; readonly resolved: string } | null = null;

  /** Nodes below /dev that no container may open (E5). */
  get skipped_devices(): number {
    return this.#skipped_devices;
  }

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
    if (type === "2" && entry.link.length > LIMITS.path_bytes_max)
      throw refused(name, `is a symbolic link with a target that is too long (limit ${LIMITS.path_bytes_max} bytes)`);
    const own = this.#resolvedPath(name, path);
    this.#checkWhiteout(name, path);
    this.#checkAttributes(entry);
    if ((type === "3" || type === "4") && !isHarmless(entry)) {
      if (!path.startsWith("dev/")) throw refused(name, `is a device that no container may open: ${deviceText(entry)}`);
      this.#skipped_devices++;
    }
    if (type === "5") this.#disk_bytes += LIMITS.layer_directory_bytes;
    if (type === "0") {
      this.#disk_bytes += entry.size;
      this.#hole_bytes += entry.hole_bytes;
    }
    this.#note(name, own, type === "2" ? entry.link : type === "1" ? this.#targetOfHardLink(entry) : null);
  }

  /** The target of the symbolic link that a hard link is another name of; null: it leads to none (E3). */
  #targetOfHardLink({ name, link }: LayerEntry): string | null {
    const path = pathOf(name, link);
    if (path === "") throw refused(name, "is a hard link to the root of the image");
    return this.#links.get(this.#resolvedPath(name, path))?.target ?? null;
  }

  /** The path of an entry without links above it. */
  #resolvedPath(name: string, path: string): string {
    const directory = parentOf(path);
    if (this.#last?.directory !== directory) this.#last = { directory, resolved: this.#resolved(name, directory) };
    const { resolved } = this.#last;
    return resolved === directory
      ? path
      : `${resolved === "" ? "" : `${resolved}/`}${path.slice(directory.length + 1)}`;
  }

  /** E2. Resolves a directory by the links of the layer. Throws IMAGE_INVALID. */
  #resolved(name: string, directory: string): string {
    if (this.#links.size === 0) return directory;
    // The next part is the last one.
    const rest = partsOf(directory).reverse();
    const at: string[] = [];
    let links_count = 0;
    for (let part = rest.pop(); part !== undefined; part = rest.pop()) {
      this.#spend(name, LIMITS.layer_link_bytes);
      if (part === "..") {
        at.pop();
        continue;
      }
      const above = at.at(-1) ?? "";
      const path = above === "" ? part : `${above}/${part}`;
      if (path.length > LIMITS.path_bytes_max) throw tooLong(name);
      this.#spend(name, path.length);
      const link = this.#links.get(path);
      if (link === undefined) {
        at.push(path);
        continue;
      }
      if (++links_count > LINKS_MAX) throw refused(name, `lies below too many symbolic links (limit ${LINKS_MAX})`);
      link.isPassed = true;
      if (link.target.startsWith("/")) at.length = 0;
      for (const one of partsOf(link.target).reverse()) rest.push(one);
    }
    return at.at(-1) ?? "";
  }

  /** E6. */
  #spend(name: string, bytes: number): void {
    this.#resolved_bytes += bytes;
    const limit = LIMITS.layer_resolved_bytes_max;
    if (this.#resolved_bytes > limit)
      throw refused(name, `exceeds what all directories may cost below symbolic links (limit ${limit} bytes of paths)`);
  }

  /** `target`: of the symbolic link that the entry is; null: it is none. */
  #note(name: string, path: string, target: string | null): void {
    const there = this.#links.get(path);
    if (target === null && there === undefined) return;
    if (there !== undefined) {
      if (there.isPassed && target !== there.target)
        throw refused(name, "replaces a symbolic link that has entries below it");
      this.#links.delete(path);
      this.#links_bytes -= path.length + there.target.length + LIMITS.layer_link_bytes;
    }
    if (target === null) return;
    this.#links.set(copyOf(path), { target: copyOf(target), isPassed: there?.isPassed === true });
    this.#links_bytes += path.length + target.length + LIMITS.layer_link_bytes;
    this.#last = null;
    if (this.#links_bytes > LIMITS.layer_links_bytes_max)
      throw refused(path, `exceeds the bytes of all symbolic links (limit ${LIMITS.layer_links_bytes_max})`);
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
function isHarmless({ type, name, device_major, device_minor }: LayerEntry): boolean {
  const device = `${device_major}:${device_minor}`;
  if (type === "3" && device === "0:0") throw refused(name, "is a raw whiteout: character device 0:0");
  return type === "3" && HARMLESS_DEVICES.has(device);
}

function deviceText({ type, device_major, device_minor }: LayerEntry): string {
  return `${type === "3" ? "character" : "block"} device ${device_major}:${device_minor}`;
}
