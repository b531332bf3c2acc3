/**
 * Sends a signal to a process. Returns false if the process has ended: the end of a container's first process takes the
 * others with it at any moment, and so does a daemon that runs.
 */
export function sendSignal(pid: number, signal: NodeJS.Signals = "SIGKILL"): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}
