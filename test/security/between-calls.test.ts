/** What one call can leave behind for the next call of the same instance, and for the daemon that adopts the instance. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon } from "../support/daemon.ts";

const SETTINGS = { HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" };
const daemon = new Daemon();
beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

/** Makes one object of each kind that outlives its process; most of them readable by nobody. */
const LEAVES = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = [libc.shmget(n, 65536, 0o1000) for n in range(1, 40)] + [libc.shmget(99, 65536, 0o1666)]
made += [libc.semget(n, 3, 0o1666) for n in range(1, 40)] + [libc.msgget(n, 0o1000) for n in range(1, 40)]
print("made", len([one for one in made if one >= 0]))
print("queue", libc.mq_open(b"/left", 0o102, 0o600, None), ctypes.get_errno())
open("/tmp/left", "w").close(); open("/dev/shm/left", "w").close()
`;
const FINDS = `
import os
for kind in ("shm", "sem", "msg"): print(kind, len(open("/proc/sysvipc/" + kind).readlines()) - 1)
print(os.listdir("/tmp"), os.listdir("/dev/shm"))
`;
const NOTHING = "shm 0\nsem 0\nmsg 0\n[] []\n";
const handler = `if [ "$(cat)" = leave ]; then python3 -c '${LEAVES}'; else python3 -c '${FINDS}'; fi`;

describe("a call", () => {
  it("leaves no shared memory, semaphore, message queue or file to the next call of its instance", async () => {
    await daemon.deploy({ name: "between", handler, max_instances: 1 });
    const first = await daemon.invoke("between", { payload: "leave" });
    expect([first.stdout, first.stderr]).toEqual(["made 118\nqueue -1 38\n", ""]);
    const next = await daemon.invoke("between", { payload: "find" });
    expect(next).toMatchObject({ stdout: NOTHING, instance_nonce: first.instance_nonce });
  });

  it("leaves nothing to the daemon that adopts its instance either", async () => {
    const last = await daemon.invoke("between", { payload: "leave" });
    await daemon.invoke("between", { payload: "find" });
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    const adopted = await daemon.invoke("between", { payload: "find" });
    expect(adopted).toMatchObject({ stdout: NOTHING, cold_start: false, instance_nonce: last.instance_nonce });
  });

  it("keeps them for the next call where the function asks for that", async () => {
    await daemon.deploy({ name: "kept", handler, max_instances: 1, cleanup_on_exit: false });
    await daemon.invoke("kept", { payload: "leave" });
    const next = await daemon.invoke("kept", { payload: "find" });
    expect(next.stdout).toBe("shm 40\nsem 39\nmsg 39\n['left'] ['left']\n");
  });
});
