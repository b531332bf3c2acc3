/**
 * Reads the text of one CDI file (Container Device Interface specification, versions 0.3 to 1.x): what a container needs to
 * use the devices of one kind. The operator writes these files, but a faulty one must not do harm: everything is bounded, a
 * device with an edit that this daemon cannot make is left out, and each fault is a warning.
 */
import { basename } from "node:path";
import { parse } from "yaml";
import { z } from "zod";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { isBelow, KERNEL_FOLDERS } from "../../base/mount-targets.ts";

export interface CdiNode {
  /** Path inside, below /dev. */
  readonly path: string;
  readonly host_path: string;
  /** Null: that of the node of this machine. */
  readonly type: "b" | "c" | null;
  readonly major: number | null;
  readonly minor: number | null;
  /** Permission bits; null: those of the node of this machine. */
  readonly mode: number | null;
  /** Of the control group: some of `rwm`; empty: none. */
  readonly access: string;
  /** Owner inside. */
  readonly uid: number;
  readonly gid: number;
}

/** A bind mount, which is always read-only. */
export interface CdiMount {
  readonly source: string;
  readonly target: string;
  readonly is_executable: boolean;
}

export interface CdiHook {
  readonly name: (typeof HOOKS)[number];
  readonly path: string;
  readonly args: readonly string[];
  readonly env: readonly string[];
  readonly timeout_seconds: number;
}

/** Changes to the configuration of a container. */
export interface CdiEdits {
  /** `NAME=value` */
  readonly env: readonly string[];
  readonly nodes: readonly CdiNode[];
  readonly mounts: readonly CdiMount[];
  readonly hooks: readonly CdiHook[];
  readonly gids: readonly number[];
}

export interface CdiFile {
  /** `<vendor>/<class>` */
  readonly kind: string;
  readonly devices: readonly { readonly name: string; readonly edits: CdiEdits }[];
  /** Made for each device of the file. */
  readonly edits: CdiEdits;
  readonly warnings: readonly string[];
}

/**
 * Hooks that the OCI runtime runs with programs of this machine. `startContainer` is none of them: its program is looked up
 * in the container, whose owner would choose what runs with the rights of the runtime.
 */
const HOOKS = ["prestart", "createRuntime", "createContainer", "poststart", "poststop"] as const;

/** The daemon or the kernel owns these paths of a container. */
const RESERVED_NODES = ["/dev/init", "/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/ptmx", "/dev/console", "/dev/fd"];
const RESERVED_NODES_EXACT = ["null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "core"];
const isNormal = (path: string): boolean =>
  path.startsWith("/") &&
  path !== "/" &&
  !path.includes("\0") &&
  path
    .slice(1)
    .split("/")
    .every((part) => !/^\.{0,2}$/.test(part));

const text = z.string().max(LIMITS.cdi_text_length_max);
const path = text.refine(isNormal, "expected an absolute path without '.' and '..'");
const id = z.int().min(0).max(0xff_ff_ff_ff);
const list = <Item extends z.ZodType>(item: Item) => z.array(item).max(LIMITS.cdi_entries_max).nullish();
const variables = list(text.regex(/^[^=\0]+=[^\0]*$/, "expected NAME=value"));

const node = z.looseObject({
  path: path.refine(
    (one) =>
      isBelow(one, "/dev") &&
      !RESERVED_NODES.some((reserved) => isBelow(one, reserved)) &&
      !RESERVED_NODES_EXACT.includes(one.slice("/dev/".length)),
    "expected a path below /dev that no container has by itself",
  ),
  hostPath: path.nullish(),
  type: z.enum(["b", "c", "u", ""], { error: "expected b or c" }).nullish(),
  major: z.int().min(0).max(0xff_ff_ff).nullish(),
  minor: z.int().min(0).max(0xff_ff_ff).nullish(),
  fileMode: z.int().min(0).max(0o177_777).nullish(),
  permissions: text.regex(/^([rwm]{0,3}|none)$/, "expected some of r, w, m").nullish(),
  uid: id.max(LIMITS.user_namespace_ids - 1).nullish(),
  gid: id.max(LIMITS.user_namespace_ids - 1).nullish(),
});
const mount = z.looseObject({
  hostPath: path,
  containerPath: path.refine(
    (one) => !KERNEL_FOLDERS.some((reserved) => isBelow(one, reserved)),
    "expected a path outside of /dev, /proc and /sys",
  ),
  type: z.enum(["", "none", "bind", "rbind"], { error: "expected a bind mount" }).nullish(),
  options: list(text),
});
const hook = z.looseObject({
  hookName: z.enum(HOOKS, { error: `expected one of ${HOOKS.join(", ")}` }),
  path,
  args: list(text),
  env: variables,
  timeout: z.int().min(1).nullish(),
});
const edits = z.looseObject({
  env: variables,
  deviceNodes: list(node),
  mounts: list(mount),
  hooks: list(hook),
  additionalGids: list(id.max(LIMITS.user_namespace_ids - 1)),
  intelRdt: z.unknown().optional(),
});
const device = z.looseObject({
  name: z
    .string()
    .max(255)
    .regex(/^[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?$/, "expected letters, digits, '-', '_', '.', ':'"),
  annotations: z.unknown().optional(),
  containerEdits: edits.nullish(),
});
const file = z.looseObject({
  cdiVersion: z.string().regex(/^(0\.([3-9]|\d\d)|1\.\d{1,3})\.\d{1,5}$/, "expected 0.3.0 or later, or 1.x"),
  kind: z
    .string()
    .regex(
      /^[A-Za-z](?:[\w.-]{0,250}[A-Za-z0-9])?\/[A-Za-z](?:[\w.-]{0,61}[A-Za-z0-9])?$/,
      "expected <vendor>/<class>",
    ),
  annotations: z.unknown().optional(),
  devices: z.array(z.unknown()).min(1).max(LIMITS.cdi_devices_max),
  containerEdits: edits.nullish(),
});

/** Throws INVALID_ARGUMENT unless the text is a CDI file; its devices are not checked yet. */
function parseText(name: string, content: string): z.output<typeof file> {
  let value: unknown;
  try {
    // Aliases could make few bytes large, and a check of keys takes quadratic time.
    value = name.endsWith(".json")
      ? JSON.parse(content)
      : parse(content, { maxAliasCount: 0, uniqueKeys: false, prettyErrors: false, logLevel: "error" });
  } catch (error) {
    throw new AppError(
      "INVALID_ARGUMENT",
      `not ${name.endsWith(".json") ? "JSON" : "YAML"}: ${brief(errorText(error))}`,
    );
  }
  return checked(file, value);
}

const brief = (message: string): string => message.split("\n", 1)[0]?.slice(0, 200) ?? "";

function checked<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const at = issue === undefined || issue.path.length === 0 ? "" : `${issue.path.join(".")}: `;
  throw new AppError("INVALID_ARGUMENT", brief(`${at}${issue?.message}`));
}

/** Reads a file by its name, which ends with `.json` or `.yaml`. Throws INVALID_ARGUMENT if none of its devices can be used. */
export function parseCdiFile(path: string, content: string): CdiFile {
  const name = basename(path);
  const found = parseText(name, content);
  const warnings: string[] = [];
  const warn = (text: string) => warnings.push(`${path}: ${text}`);
  unknownFields(file, found, "", warn);
  const own = toEdits(found.containerEdits ?? {}, "", warn);
  const devices = new Map<string, CdiEdits>();
  for (const [i, entry] of found.devices.entries()) {
    try {
      const { name, containerEdits, ...rest } = checked(device, entry);
      unknownFields(device, rest, `device ${name}: `, warn);
      if (devices.has(name)) throw new AppError("INVALID_ARGUMENT", `device ${name} twice in the file`);
      devices.set(name, toEdits(containerEdits ?? {}, `device ${name}: `, warn));
    } catch (error) {
      warn(`device ${nameOf(entry) ?? i} left out: ${errorText(error)}`);
    }
  }
  return { kind: found.kind, devices: [...devices].map(([name, edits]) => ({ name, edits })), edits: own, warnings };
}

function nameOf(entry: unknown): string | null {
  const name = typeof entry === "object" && entry !== null && "name" in entry ? entry.name : null;
  return typeof name === "string" ? JSON.stringify(name.slice(0, 64)) : null;
}

function unknownFields(schema: z.ZodObject, value: object, where: string, warn: (text: string) => void): void {
  for (const field of Object.keys(value)) {
    if (!(field in schema.shape)) warn(`${where}unknown field ignored: ${JSON.stringify(field.slice(0, 64))}`);
  }
}

function toEdits(found: z.output<typeof edits>, where: string, warn: (text: string) => void): CdiEdits {
  unknownFields(edits, found, where, warn);
  if (found.intelRdt != null) warn(`${where}intelRdt ignored: this daemon sets no resctrl groups`);
  const nodes = (found.deviceNodes ?? []).map((one): CdiNode => {
    unknownFields(node, one, where, warn);
    const type = one.type === "u" ? "c" : one.type || null;
    // Zero is also the number of a device that the file does not name.
    const isNumbered = type !== null && (one.major ?? 0) > 0;
    return {
      path: one.path,
      host_path: one.hostPath ?? one.path,
      type,
      major: isNumbered ? (one.major ?? 0) : null,
      minor: isNumbered ? (one.minor ?? 0) : null,
      mode: one.fileMode == null ? null : one.fileMode & 0o777,
      access: one.permissions === "none" ? "" : one.permissions || "rw",
      uid: one.uid ?? 0,
      gid: one.gid ?? 0,
    };
  });
  const mounts = (found.mounts ?? []).map((one): CdiMount => {
    unknownFields(mount, one, where, warn);
    const options = one.options ?? [];
    if (options.includes("rw")) warn(`${where}${one.containerPath} is mounted read-only`);
    return { source: one.hostPath, target: one.containerPath, is_executable: !options.includes("noexec") };
  });
  const hooks = (found.hooks ?? []).map((one): CdiHook => {
    unknownFields(hook, one, where, warn);
    const timeout_seconds = Math.min(one.timeout ?? LIMITS.cdi_hook_seconds_max, LIMITS.cdi_hook_seconds_max);
    return { name: one.hookName, path: one.path, args: one.args ?? [], env: one.env ?? [], timeout_seconds };
  });
  const gids = (found.additionalGids ?? []).filter((gid) => gid > 0);
  return { env: found.env ?? [], nodes, mounts, hooks, gids };
}
