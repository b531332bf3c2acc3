/**
 * The GPUs that CDI files describe: devices of a kind `<vendor>/gpu`, each under an id that clients send.
 *
 * G1 An id is the vendor's first word and a number: device `0` of `nvidia.com/gpu` is `nvidia0`. Devices with other names
 *    (UUIDs, parts of a GPU) get the free numbers in the order of their names.
 * G2 Devices with the same nodes are one GPU under several names: it has one id, and is given once.
 * G3 A device whose nodes are some of another's is never held together with it: parts of a GPU, and the GPU.
 * G4 A name that two files of one directory define names no device. A later directory overrides an earlier one.
 */
import { LIMITS } from "../../base/limits.ts";
import type { FoundDirectories } from "./cdi-directories.ts";
import type { CdiEdits, CdiFile, CdiNode } from "./cdi-file.ts";

/** A GPU, as files of this machine describe it. */
export interface KnownGpu {
  readonly gpu_id: string;
  /** `<vendor>/<class>=<name>` */
  readonly device: string;
  /** Further names of the same GPU. */
  readonly aliases: readonly string[];
  readonly vendor: string;
  /** Its own nodes on this machine, in order: paths, or the numbers of those that the file gives numbers. */
  readonly nodes: readonly string[];
  /** Edits for it alone, and those of its file for any device of it. */
  readonly edits: CdiEdits;
  readonly file_edits: CdiEdits;
}

export interface Inventory {
  /** In the order of ids. */
  readonly gpus: readonly KnownGpu[];
  readonly warnings: readonly string[];
}

const CLASS = "gpu";
/** All GPUs of a file at once, which nvidia-ctk adds: none of its own. */
const ALL = "all";

interface Candidate extends Omit<KnownGpu, "gpu_id" | "aliases"> {
  readonly name: string;
}

/** Returns the inventory that the files describe. */
export function inventoryOf(directories: FoundDirectories): Inventory {
  const warnings: string[] = [];
  const candidates = new Map<string, Candidate>();
  for (const { files, warnings: of_directory } of directories) {
    warnings.push(...of_directory);
    const defined = new Map<string, Candidate>();
    const conflicting = new Map<string, string>();
    for (const { path, file, warning } of files) {
      if (warning !== null) warnings.push(warning);
      if (file === null) continue;
      warnings.push(...file.warnings);
      for (const one of candidatesOf(file)) {
        if (defined.has(one.device)) conflicting.set(one.device, path);
        else defined.set(one.device, one);
      }
    }
    for (const [device, path] of conflicting) {
      warnings.push(`${path}: ${device} left out: another file of the directory defines it, too`);
      defined.delete(device);
      candidates.delete(device);
    }
    for (const [device, one] of defined) candidates.set(device, one);
  }
  return { gpus: numbered(merged([...candidates.values()])), warnings: bounded(warnings) };
}

function candidatesOf({ kind, devices, edits: file_edits }: CdiFile): Candidate[] {
  const [vendor = "", of_class = ""] = kind.split("/");
  if (of_class !== CLASS) return [];
  return devices
    .filter(({ name }) => name !== ALL)
    .map(({ name, edits }) => {
      const nodes = [...new Set(edits.nodes.map(nodeName))].sort();
      return { name, device: `${kind}=${name}`, vendor, nodes, edits, file_edits };
    });
}

const nodeName = ({ host_path, type, major, minor }: CdiNode): string =>
  major === null ? host_path : `${type} ${major}:${minor}`;

const isNumber = (name: string): boolean => /^(0|[1-9]\d{0,2})$/.test(name);

/** Numbers first, in their order; then other names. */
function compare(a: Candidate, b: Candidate): number {
  const [first, second] = [isNumber(a.name), isNumber(b.name)];
  if (first !== second) return first ? -1 : 1;
  if (first && Number(a.name) !== Number(b.name)) return Number(a.name) - Number(b.name);
  return a.device < b.device ? -1 : 1;
}

/** G2: of several names the first stands. */
function merged(candidates: Candidate[]): (Candidate & Pick<KnownGpu, "aliases">)[] {
  const by_nodes = new Map<string, Candidate & { readonly aliases: string[] }>();
  for (const one of candidates.sort(compare)) {
    const key = one.nodes.length === 0 ? one.device : one.nodes.join("\0");
    const first = by_nodes.get(key);
    if (first === undefined) by_nodes.set(key, { ...one, aliases: [] });
    else first.aliases.push(one.device);
  }
  return [...by_nodes.values()];
}

/** G1. Two vendors with the same first word share its numbers. */
function numbered(found: (Candidate & Pick<KnownGpu, "aliases">)[]): KnownGpu[] {
  const taken = new Set<string>();
  const gpus: KnownGpu[] = [];
  for (const { name, ...gpu } of found) {
    const word = wordOf(gpu.vendor);
    let number = isNumber(name) ? Number(name) : 0;
    while (taken.has(`${word}${number}`)) number++;
    // An id has at most three digits.
    if (number > 999) continue;
    taken.add(`${word}${number}`);
    gpus.push({ ...gpu, gpu_id: `${word}${number}` });
  }
  return gpus.sort((a, b) => compareIds(a.gpu_id, b.gpu_id));
}

function compareIds(a: string, b: string): number {
  const [first, second] = [a, b].map((id) => ({
    word: id.replace(/\d+$/, ""),
    number: Number(/\d+$/.exec(id)?.[0] ?? 0),
  }));
  if (first === undefined || second === undefined || first.word === second.word) {
    return (first?.number ?? 0) - (second?.number ?? 0);
  }
  return first.word < second.word ? -1 : 1;
}

/** The letters of the first label: `nvidia` of `nvidia.com`. */
function wordOf(vendor: string): string {
  const [label = ""] = vendor.toLowerCase().split(".", 1);
  return label.replace(/[^a-z]/g, "").slice(0, 32) || "gpu";
}

function bounded(warnings: readonly string[]): string[] {
  const shown = warnings.slice(0, LIMITS.cdi_warnings_max);
  const left = warnings.length - shown.length;
  return left === 0 ? shown : [...shown, `and ${left} more`];
}

/** G2, G3: two devices that cannot be held by two holders. */
export function overlap(a: Pick<KnownGpu, "device" | "nodes">, b: Pick<KnownGpu, "device" | "nodes">): boolean {
  if (a.device === b.device) return true;
  if (a.nodes.length === 0 || b.nodes.length === 0) return false;
  const [few, many] = a.nodes.length <= b.nodes.length ? [a.nodes, b.nodes] : [b.nodes, a.nodes];
  return few.every((node) => many.includes(node));
}
