/**
 * The bytecode of the program that each cell of the runtime python3 starts with: the image's own interpreter compiles it, so
 * that its magic number fits. The daemon copies it beside the program, where no cell can write.
 */
import { existsSync, renameSync, rmSync } from "node:fs";
import { basename, dirname } from "node:path";
import { makeDirectory } from "../installation/directories.js";
import { BYTECODE_COMPILE, buildahCommand, pythonSourceDir } from "../installation/paths.js";
import { bytecodePath, profileImage } from "../installation/profiles.js";
import { pruneVersions, temporaryDir } from "./temporary.js";

/** Working container of the compilation, and the only one that this step touches. */
const CONTAINER = "hearth-bytecode";

/** @type {import("./command.js").Step} */
export const bytecodeStep = {
  name: "bytecode",
  large: false,

  missing({ image_dir }) {
    const path = bytecodePath(image_dir);
    return existsSync(path) ? null : basename(path);
  },

  async install({ data_dir, image_dir }, commands) {
    const target = bytecodePath(image_dir);
    // Beside the target: the two directories may be of two file systems.
    const made = `${target}.tmp`;
    rmSync(made, { recursive: true, force: true });
    makeDirectory(made);
    // containers-storage may leave its directory mounted on itself: not on the machine, where that would outlive the data directory.
    const buildah = (/** @type {string[]} */ ...args) =>
      commands.run(["unshare", "--mount", ...buildahCommand(image_dir), ...args], {
        env: { TMPDIR: temporaryDir(data_dir) },
      });
    const removeContainer = () => buildah("rm", CONTAINER).catch(() => "");
    await removeContainer();
    try {
      await buildah("from", "--name", CONTAINER, "--pull-never", profileImage().reference);
      const volumes = [`${pythonSourceDir()}:/opt/hearth:ro`, `${made}:/out`].flatMap((one) => ["--volume", one]);
      await buildah("run", "--isolation", "chroot", ...volumes, CONTAINER, "--", ...BYTECODE_COMPILE);
    } finally {
      await removeContainer();
    }
    renameSync(made, target);
    pruneVersions(dirname(target), /^python3-[0-9a-f]{12}(\.tmp)?$/);
  },
};
