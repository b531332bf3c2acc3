/**
 * Set-up runs before the daemon and before the tests: npm packages, system packages, the compiled helper, the `prod`
 * image, the bytecode of a runtime's program. Every step first says in a few milliseconds what is missing; when nothing is, set-up is silent and over.
 *
 * 1. One set-up works at a time on a machine (a lock that the kernel releases); what another one has done in the
 *    meantime is not done again.
 * 2. A step leaves either its whole result or nothing: results are renamed or committed into place, temporary files
 *    lie in one directory on the data directory's file system, which the next set-up clears too.
 * 3. An expected failure is one message and exit code 1; only a bug prints a stack.
 */

import { makeDirectory } from "../installation/directories.js";
import { InstallationError } from "../installation/installation-error.js";
import { PROJECT_DIR, readDirectories } from "../installation/paths.js";
import { bytecodeStep } from "./bytecode.js";
import { checkDirectories, checkMachine } from "./checks.js";
import { Commands } from "./command.js";
import { helperStep } from "./helper.js";
import { imageStep } from "./image.js";
import { holdLock } from "./lock.js";
import { npmStep } from "./npm.js";
import { packagesStep } from "./packages.js";
import { workOnProfile } from "./profile-work.js";
import { JsonProgress, Progress } from "./progress.js";
import { clearTemporary } from "./temporary.js";

const USAGE = "usage: node src/setup/index.js start|test|heavy|profile [flags]";

/** @typedef {import("./command.js").Context} Context */
/** @typedef {import("./command.js").Step} Step */

/** In order: the helper needs the compiler, the image mmdebstrap and buildah, the bytecode the image. @type {readonly Step[]} */
const STEPS = [npmStep, packagesStep, helperStep, imageStep, bytecodeStep];

/** Does work that no other set-up does at the same time. @param {Context} context @param {Commands} commands @param {Progress | JsonProgress} progress @param {() => Promise<void>} work */
async function alone({ data_dir, image_dir }, commands, progress, work) {
  for (const directory of [data_dir, image_dir]) makeDirectory(directory);
  const release = await holdLock(commands, () => progress.note("waiting for another set-up to finish"));
  try {
    await clearTemporary(data_dir, commands);
    await work();
  } finally {
    await clearTemporary(data_dir, commands);
    release();
  }
}

/** @param {Context} context @param {Commands} commands @param {Progress | JsonProgress} progress */
async function install(context, commands, progress) {
  const isLarge = STEPS.some((step) => step.large && step.missing(context) !== null);
  checkDirectories([context.project_dir, context.data_dir, context.image_dir], isLarge ? undefined : 0);
  await alone(context, commands, progress, async () => {
    for (const step of STEPS) {
      const missing = step.missing(context);
      if (missing === null) continue;
      progress.begin(step.name, missing);
      await step.install(context, commands);
      const still = step.missing(context);
      if (still !== null) throw new InstallationError(`${step.name}: ${still} still missing after the installation`);
      progress.done();
    }
  });
}

/**
 * The message of an expected failure: ours, an interruption, or the operating system's (a read-only file system, no
 * space left). Anything else is a bug and goes on.
 *
 * @param {unknown} error
 * @param {NodeJS.Signals | null} interrupted
 * @returns {{ message: string, tail?: string }}
 */
function explain(error, interrupted) {
  if (interrupted !== null) return { message: `interrupted by ${interrupted}` };
  if (error instanceof InstallationError || (error instanceof Error && "syscall" in error)) return error;
  throw error;
}

/** @param {string | undefined} mode @param {readonly string[]} args */
export async function main(mode, args) {
  const progress = args.includes("--progress=json") ? new JsonProgress(process.stdout) : new Progress(process.stderr);
  const commands = new Commands((line) => progress.detail(line));
  // Users of containers read the files of images and of the helper, under a narrower umask of the machine too.
  process.umask(0o022);
  try {
    if (mode !== "start" && mode !== "test" && mode !== "heavy" && mode !== "profile")
      throw new InstallationError(USAGE);
    checkMachine(process);
    const directories = readDirectories(process.env, args);
    if (mode === "profile") {
      // The daemon that reads may be gone: what is left of the work is cleared up all the same.
      for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
      commands.watchSignals(process);
      await alone(directories, commands, progress, () => workOnProfile(directories, args, commands, progress));
      return;
    }
    /** @type {Context} */
    const context = { mode, project_dir: PROJECT_DIR, ...directories };
    if (STEPS.every((step) => step.missing(context) === null)) return;
    commands.watchSignals(process);
    await install(context, commands, progress);
    progress.note("complete");
  } catch (error) {
    progress.failed();
    const { message, tail = "" } = explain(error, commands.interrupted);
    process.stderr.write(`${tail}hearth set-up: ${message}\n`);
    process.exitCode = commands.exitCode;
  } finally {
    commands.unwatchSignals();
  }
}
