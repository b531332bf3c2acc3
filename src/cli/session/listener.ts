/**
 * Whose process listens on a port of this machine. Any user may take the daemon's port while it is down, and would be
 * sent this machine's key, which is the operator's, by whoever asks how the daemon is.
 */
import { readFileSync } from "node:fs";

/** Columns and state of Linux' Documentation/networking/proc_net_tcp.rst. */
const LOCAL_ADDRESS = 1;
const STATE = 3;
const UID = 7;
const LISTEN = "0A";

/** The first user who listens there, at whatever address, and is none of `trusted`; null: none. */
export function strangerAt(port: number, trusted: readonly number[], tables = readTables()): number | null {
  const wanted = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  for (const row of tables.split("\n")) {
    const fields = row.trim().split(/\s+/);
    if (fields[STATE] !== LISTEN || fields[LOCAL_ADDRESS]?.endsWith(wanted) !== true) continue;
    const uid = Number(fields[UID]);
    if (!trusted.includes(uid)) return uid;
  }
  return null;
}

/** Empty where the kernel has none: then no daemon runs there either. */
function readTables(): string {
  return ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
    .map((file) => {
      try {
        return readFileSync(file, "utf8");
      } catch {
        return "";
      }
    })
    .join("\n");
}
