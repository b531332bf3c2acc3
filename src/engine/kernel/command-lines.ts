/**
 * Command lines and programs of processes. Code in a container chooses how long its own is, and how many processes show it: only the
 * beginning of each is read.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { open, readdir, stat } from "node:fs/promises";
import { each } from "../../base/concurrency.ts";
import { LIMITS } from "../../base/limits.ts";

export interface CommandLine {
  readonly pid: number;
  readonly args: readonly string[];
}

/** The beginning of a process's command line, its arguments separated by NUL. Throws when the process has ended. */
export function readCommandLine(pid: number, bytes_max: number): string {
  const buffer = Buffer.alloc(bytes_max);
  const file = openSync(`/proc/${pid}/cmdline`, "r");
  try {
    return buffer.toString("utf8", 0, readSync(file, buffer));
  } finally {
    closeSync(file);
  }
}

/** Finds processes of this machine by their arguments, without holding up the event loop. Keeps only those found. */
export async function findProcesses(isWanted: (args: readonly string[]) => boolean): Promise<CommandLine[]> {
  const found: CommandLine[] = [];
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number);
  await each(pids, LIMITS.command_lines_at_once, async (pid) => {
    // A process that ended meanwhile has none.
    const args = (await beginning(pid).catch(() => "")).split("\0");
    if (isWanted(args)) found.push({ pid, args });
  });
  return found;
}

/**
 * Returns true if a process executes the file at `program`, and not another file of that name in its container. Also for a
 * process that has ended, whose end says more.
 */
export async function executes(pid: string, program: string): Promise<boolean> {
  const [running, file] = await Promise.all([stat(`/proc/${pid}/exe`).catch(gone), stat(program)]);
  return running === null || (running.dev === file.dev && running.ino === file.ino);
}

function gone(error: NodeJS.ErrnoException): null {
  if (error.code === "ENOENT" || error.code === "ESRCH") return null;
  throw error;
}

async function beginning(pid: number): Promise<string> {
  const file = await open(`/proc/${pid}/cmdline`);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(LIMITS.command_line_bytes_max));
    return buffer.toString("utf8", 0, bytesRead);
  } finally {
    await file.close();
  }
}
