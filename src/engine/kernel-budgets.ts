/**
 * Budgets of the machine's kernel that all containers draw on, and that the kernel counts once for all of them. README.md
 * in this folder lists every one with what bounds it; the ones here are raised at the start, because each container has
 * a bound of its own that is lower.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { LIMITS } from "../base/limits.ts";
import type { Budget } from "./engine.ts";

const SYSCTLS = "/proc/sys";
/** LONG_MAX, as systemd sets it: each open file is charged to the memory of its control group. */
const FILES_MAX = "9223372036854775807";

/** The host's own terminals, beside those that containers may open. */
const HOST_TERMINALS = 1_024;

/** Raises a number of the kernel's to at least `value`. Returns why it could not, or null. */
function raise(name: string, value: string, root: string): string | null {
  const file = `${root}/${name}`;
  try {
    if (BigInt(readFileSync(file, "utf8").trim()) < BigInt(value)) writeFileSync(file, value);
    return null;
  } catch (error) {
    return `${name.replaceAll("/", ".")} could not be raised: ${(error as NodeJS.ErrnoException).code ?? "unknown"}`;
  }
}

/** Raises the budgets that need it for so many containers. Never lowers one. Returns what holds from here on. */
export function raiseBudgets(containers_max: number, root = SYSCTLS): Budget[] {
  const terminals = HOST_TERMINALS * 2 + containers_max * LIMITS.container_terminals_max;
  const shared = (name: Budget["name"], reason: string | null, held: string): Budget => ({
    name,
    is_bounded: reason === null,
    note: reason === null ? held : `${reason}; one container can use up those of all`,
  });
  return [
    shared(
      "terminals",
      raise("kernel/pty/max", String(terminals), root),
      `${LIMITS.container_terminals_max} for each container`,
    ),
    shared("open_files", raise("fs/file-max", FILES_MAX, root), "charged to the memory limit"),
  ];
}
