/** The limit of open files of the daemon's own process, which no container's can exceed. */
import { readFileSync } from "node:fs";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";

/**
 * Throws INTERNAL with the remedy if containers cannot get their limit of open files. Otherwise the first start would fail with an
 * error of the OCI runtime. The daemon's own connections are bounded below the same number.
 */
export function checkOpenFiles(root = "/proc"): void {
  const found = /^Max open files\s+\S+\s+(\d+|unlimited)/m.exec(readFileSync(`${root}/self/limits`, "utf8"))?.[1];
  const files_min = Math.max(LIMITS.container_files_max, LIMITS.instance_files_max);
  if (found === undefined || found === "unlimited" || Number(found) >= files_min) return;
  throw new AppError("INTERNAL", `hard limit of open files too low: ${found} (at least ${files_min})`, {
    hint: `raise it before the start: ulimit -n ${files_min}, or LimitNOFILE=${files_min} in a systemd unit`,
  });
}
