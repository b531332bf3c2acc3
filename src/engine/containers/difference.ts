/**
 * The difference of a container's root and its image, as a tar: the upper directory of its overlay, which the options in
 * runtimes/minit/overlay.c keep a plain difference. GNU tar reads it in the launcher's mount namespace, where the storage pool
 * is: nothing runs in the container, and tar follows no link.
 */
import { AppError } from "../../base/errors.ts";
import type { EngineHost } from "../host/host.ts";
import type { DifferenceRequest } from "../ports/containers.ts";

/** 128 and SIGXFSZ: the file would exceed its limit. */
const TOO_LARGE = 153;

export async function writeDifference(host: EngineHost, request: DifferenceRequest): Promise<void> {
  const { id, file, bytes_max, timeout_ms } = request;
  const upper = `${host.storage.subvolume("containers", id)}/upper`;
  const argv = [
    ...["prlimit", `--fsize=${bytes_max}`, "--core=0", "--", "tar", "--create", `--file=${file}`, "--format=pax"],
    ...["--numeric-owner", "--xattrs", "--xattrs-include=*", "--sort=name", "--no-check-device"],
    ...["--one-file-system", "--warning=no-file-ignored", `--directory=${upper}`, "."],
  ];
  const launcher = await host.launcher();
  const { exit_code, timed_out, spawn_failed, stderr } = await launcher.spawn({ argv, timeout_ms });
  if (exit_code === 0 && !timed_out && !spawn_failed) return;
  if (timed_out) throw new AppError("TIMEOUT", `the files of ${id} were not read within ${timeout_ms} ms`);
  if (exit_code === TOO_LARGE || /File too large|No space left|Disk quota/.test(stderr)) {
    throw new AppError("CAPACITY_FULL", `the changed files are too large (limit ${bytes_max} bytes)`);
  }
  throw new AppError("INTERNAL", `tar of ${id} failed: ${stderr.trim().slice(-500)}`);
}
