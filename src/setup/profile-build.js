/**
 * One build of one image: `node profile-build.js <input.json>`, in a mount and pid namespace of its own. A killed build
 * therefore leaves no mount and no process. Its parent, or the next set-up, removes the working container and the files in the
 * temporary directory. Prints progress as lines `@ {…}`, and the output of commands between them.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { InstallationError } from "../installation/installation-error.js";
import { buildahCommand, imageStore } from "../installation/paths.js";
import { readRelease, storedImages, versionOf, writeRelease } from "../installation/releases.js";
import { Commands } from "./command.js";
import { listPackages } from "./package-list.js";
import {
  BUILD_CONTAINER,
  bootstrap,
  finishScript,
  installPackages,
  mountKernelFiles,
  readStatus,
  unmountKernelFiles,
  verifyRoot,
} from "./profile-root.js";

/** @typedef {import("../installation/profiles.js").ProfileImage} ProfileImage */
/** @typedef {import("../installation/releases.js").Release} Release */

/**
 * @typedef {object} BuildInput
 * @property {string} image_dir
 * @property {string} work_dir temporary, empty
 * @property {ProfileImage[]} chain the profile as the last one
 * @property {Release | null} base the release below; null: an empty root
 * @property {string} result file for the version that was built
 */

/** Measures the phases of a build, and reports each. */
class Phases {
  /** @type {Record<string, number>} */
  ms = {};
  #name = "";
  #since_ms = 0;

  /** @param {string} name @param {number} percent @param {string} [message] */
  begin(name, percent, message = "") {
    this.end();
    this.#name = name;
    this.#since_ms = performance.now();
    print({ phase: name, percent, message });
  }

  end() {
    if (this.#name !== "") this.ms[this.#name] = Math.round(performance.now() - this.#since_ms);
    this.#name = "";
  }
}

/** @param {{ phase?: string, percent: number, message: string }} progress */
function print(progress) {
  process.stdout.write(`@ ${JSON.stringify(progress)}\n`);
}

/** Share of a build by the phases that apt and mmdebstrap report. */
const APT = { dlstatus: { from: 10, to: 40 }, pmstatus: { from: 40, to: 80 } };

/** Passes a line of a command on: apt's status becomes progress. @param {string} line */
function passLine(line) {
  const [, kind = "", percent = "", text = ""] = /^(dlstatus|pmstatus):[^:]*:([0-9.]+):(.*)$/.exec(line) ?? [];
  if (kind === "dlstatus" || kind === "pmstatus") {
    const { from, to } = APT[kind];
    print({ percent: Math.round(from + ((to - from) * Number(percent)) / 100), message: text });
  } else {
    process.stdout.write(`${line}\n`);
  }
}

/** Bytes of a layer and of all layers below it. @param {string} image_dir @param {string} image_id */
function sizeOf(image_dir, image_id) {
  const { root, images_file } = imageStore(image_dir);
  /** @type {{ id: string, layer: string, digest: string }[]} */
  const images = JSON.parse(readFileSync(images_file, "utf8"));
  /** @type {{ id: string, parent?: string, "diff-size"?: number }[]} */
  const layers = JSON.parse(readFileSync(join(root, "overlay-layers/layers.json"), "utf8"));
  const byId = new Map(layers.map((layer) => [layer.id, layer]));
  const image = images.find(({ id }) => id === image_id);
  let size_bytes = 0;
  const top = byId.get(image?.layer ?? "");
  for (let layer = top; layer !== undefined; layer = byId.get(layer.parent ?? ""))
    size_bytes += layer["diff-size"] ?? 0;
  return { size_bytes, own_bytes: top?.["diff-size"] ?? 0, digest: image?.digest ?? "" };
}

/** @param {ProfileImage} image @param {string} version @returns {string[]} flags of `buildah config` */
function configFlags({ profile, recipe_id }, version) {
  const { name, command, user, environment } = profile;
  return [
    ...[`--label=hearth.profile=${name}`, `--label=hearth.recipe=${recipe_id}`, `--label=hearth.release=${version}`],
    ...(command === undefined ? [] : [`--cmd=${JSON.stringify(command)}`]),
    ...(user === undefined ? [] : [`--user=${user}`]),
    ...Object.entries(environment).map(([key, value]) => `--env=${key}=${value}`),
  ];
}

/**
 * @param {BuildInput} input
 * @param {Commands} commands
 * @returns {Promise<string>} the version
 */
async function build({ image_dir, work_dir, chain, base }, commands) {
  const image = chain.at(-1);
  if (image === undefined) throw new InstallationError("no profile to build");
  const { profile, recipe_id, repository } = image;
  if (image.suite === "") throw new InstallationError("no Debian release (VERSION_CODENAME) in /etc/os-release");
  const phases = new Phases();
  const buildah = (/** @type {string[]} */ ...args) =>
    commands.run([...buildahCommand(image_dir), ...args], { env: { TMPDIR: work_dir } });

  phases.begin("prepare", 1, `${profile.name}, recipe ${recipe_id}`);
  await buildah("from", "--pull-never", "--name", BUILD_CONTAINER, base?.image_id ?? "scratch");
  const root = (await buildah("mount", BUILD_CONTAINER)).trim();
  if (base === null) {
    phases.begin("install", 5, `Debian ${image.suite}`);
    await bootstrap(root, work_dir, image, commands);
    await mountKernelFiles(root, commands);
  } else {
    await mountKernelFiles(root, commands);
    if (profile.packages.length > 0) {
      const lists = join(image_dir, "apt-lists");
      const begin = phases.begin.bind(phases);
      await installPackages(root, work_dir, { image, lists }, commands, begin);
    }
  }
  await unmountKernelFiles(root, commands);
  phases.begin("finish", 82, "copying files");
  await commands.run(["sh", "-c", finishScript(image), "sh", root]);
  phases.begin("verify", 86, `${profile.verify.length} commands, ${profile.tools.length} tools`);
  await mountKernelFiles(root, commands);
  const tools = await verifyRoot(root, profile, commands);
  await unmountKernelFiles(root, commands);

  const status = readStatus(root);
  const packages = listPackages(root, status, chain);
  const version = versionOf(recipe_id, packages);
  const reference = `${repository}:${version}`;
  const known = readRelease(image_dir, profile.name, version);
  if (known !== null && storedImages(image_dir).has(known.image_id)) return version;

  phases.begin("commit", 90, `${packages.length} packages`);
  await buildah("umount", BUILD_CONTAINER);
  await buildah("config", ...configFlags(image, version), BUILD_CONTAINER);
  const image_id = (await buildah("commit", "--quiet", BUILD_CONTAINER, reference)).trim();
  phases.end();
  /** @type {Release} */
  const release = {
    profile: profile.name,
    version,
    recipe_id,
    suite: image.suite,
    architecture: process.arch,
    image_id,
    reference,
    base_version: base?.version ?? null,
    created_at: Math.floor(Date.now() / 1000),
    ...sizeOf(image_dir, image_id),
    package_count: packages.length,
    tools,
    phases_ms: phases.ms,
  };
  writeRelease(image_dir, release, packages, status);
  return version;
}

/** @param {string} path of the input */
async function main(path) {
  const commands = new Commands(() => {}, passLine);
  commands.watchSignals(process);
  try {
    /** @type {BuildInput} */
    const input = JSON.parse(readFileSync(path, "utf8"));
    writeFileSync(input.result, await build(input, commands));
  } catch (error) {
    if (!(error instanceof InstallationError)) throw error;
    process.stdout.write(`${error.message}\n`);
    process.exitCode = 1;
  } finally {
    commands.unwatchSignals();
  }
}

await main(process.argv[2] ?? "");
