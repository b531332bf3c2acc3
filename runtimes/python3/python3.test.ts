/** The runtime python3 in real instances: leftovers of calls, and effects of a call on its process. */
import { chmodSync, cpSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CallOutcome, Instance, Resident } from "../../src/engine/ports.ts";
import { engineConfig, engineOf, standardClass } from "../../test/support/engine.ts";
import { eventually } from "../../test/support/native.ts";
import { type Code, pythonCommand, pythonHead, writeCode } from "../../test/support/python-function.ts";
import { callHead, requestOf } from "../../test/support/resident-requests.ts";
import { type BindHead, STATUS } from "../envelope.ts";
import { RUNTIME_INSIDE } from "../runtime.ts";
import { python3 } from "./index.ts";

const MIB = 1024 * 1024;
const MEMORY_MB = 192;
const data_dir = realpathSync(mkdtempSync("/var/tmp/hearth-python3-"));
const engine = engineOf(engineConfig(["--data-dir", data_dir, "--bridge", "htpy0", "--subnet", "10.94.0.0/20"]));

beforeAll(() => engine.boot());
afterAll(async () => {
  await engine.shutdown();
  rmSync(data_dir, { recursive: true, force: true });
});

interface Called extends CallOutcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly value: unknown;
}

class InstanceOfPython {
  readonly instance: Instance;
  readonly resident: Resident;

  constructor(instance: Instance, resident: Resident) {
    this.instance = instance;
    this.resident = resident;
  }

  async request(content: Buffer, timeout_ms = 30_000): Promise<Called> {
    const output = { stdout: "", stderr: "" };
    const outcome = await this.resident.call(
      { payload: content, timeout_ms, result_bytes_max: MIB, log_bytes_max: MIB },
      {
        onLog: (stream, chunk) => {
          output[stream] += chunk.toString();
        },
      },
    );
    const text = outcome.result.toString();
    return { ...outcome, ...output, value: text === "" ? null : JSON.parse(text) };
  }

  bind(head: Partial<BindHead> = {}, kill_ms = 30_000): Promise<Called> {
    return this.request(requestOf(pythonHead(head)), kill_ms);
  }

  /** Calls the function. `kill_ms`: when minit ends the process. */
  call(payload: unknown = null, kill_ms = 30_000): Promise<Called> {
    return this.request(requestOf(callHead({ deadline_ms: Date.now() + kill_ms }), JSON.stringify(payload)), kill_ms);
  }
}

/** Starts an instance of the image without a function. The directory of its runtime holds the code too. */
async function start(code: Code): Promise<InstanceOfPython> {
  const directory = mkdtempSync(join(data_dir, "python3-"));
  cpSync(python3.directory ?? "", directory, { recursive: true });
  writeCode(join(directory, "code"), code);
  for (const path of [directory, join(directory, "code")]) chmodSync(path, 0o755);
  const argv = pythonCommand(RUNTIME_INSIDE, `${RUNTIME_INSIDE}/code`);
  const key = basename(directory);
  const more = { key, scratch_mb: 32, runtime_directory: directory, resident: { argv, open_timeout_ms: 20_000 } };
  const instance = await engine.instances.start(key.toLowerCase(), standardClass(engine, more));
  engine.instances.limit(instance, { memory_limit_mb: MEMORY_MB, cpu_limit_percent: null });
  if (instance.resident === null) throw new Error("the class has no resident process");
  return new InstanceOfPython(instance, instance.resident);
}

/** Serves a function in an instance while `use` runs. */
async function serve(
  code: Code,
  use: (python: InstanceOfPython) => Promise<void>,
  head: Partial<BindHead> = {},
): Promise<void> {
  const python = await start(code);
  try {
    expect(await python.bind(head)).toMatchObject({ status: STATUS.returned, cancelled: false });
    await use(python);
  } finally {
    await engine.instances.remove(python.instance);
  }
}

/** Names of all processes but minit and the function's own. */
const PROCESSES = `
import os, subprocess, time
def processes():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                with open(f"/proc/{name}/stat") as stat: comm, state = stat.read().split()[1:3]
            except OSError: continue
            if state != "Z": found.append(comm)
    return found
def detached(*argv):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execvp(argv[0], argv)
        os._exit(0)
    os.wait()
`;

describe("after a call", () => {
  it("its processes end, children, detached ones and a crowd that multiplies", async () => {
    const code = `${PROCESSES}
def handler(payload, context):
    if payload == "child": subprocess.Popen(["sleep", "99"])
    if payload == "detached": detached("sleep", "99")
    if payload == "crowd": detached("sh", "-c", "f() { while :; do sleep 1 & sleep 0.01; done; }; f & f & f")
    if payload == "ctypes":
        import ctypes
        if ctypes.CDLL(None).fork() == 0: time.sleep(99)
    return processes()
`;
    await serve(code, async (python) => {
      for (const payload of ["child", "detached", "crowd", "ctypes"]) {
        expect((await python.call(payload)).status).toBe(STATUS.returned);
        // The kernel takes a moment to remove a killed process.
        await eventually("none is left", async () => ((await python.call()).value as string[]).length === 0);
      }
    });
  });

  it("processes and files of the module stay, those of calls go", async () => {
    const code = `${PROCESSES}
detached("sleep", "77")
while "(sleep)" not in processes(): time.sleep(0.01)
open("/tmp/module", "w").close()
def handler(payload, context):
    seen = [processes(), os.listdir("/tmp"), os.listdir("/dev/shm")]
    subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.DEVNULL)
    detached("tail", "-f", "/dev/null")
    open("/tmp/call", "w").close()
    open("/dev/shm/call", "w").close()
    return seen
`;
    const code4 = code.replace("def handler", "async def handler");
    for (const [text, concurrency] of [
      [code, 1],
      [code, 4],
      [code4, 4],
    ] as const) {
      await serve(
        text,
        async (python) => {
          for (let n = 0; n < 3; n++) {
            const [processes, ...files] = (await python.call()).value as string[][];
            expect([processes?.filter((name) => name === "(sleep)").length, ...files]).toEqual([1, ["module"], []]);
          }
        },
        { concurrency },
      );
    }
  });

  it("files go, however deep they lie and whatever their mode is", async () => {
    const code = `
import os
def handler(payload, context):
    seen = os.listdir("/tmp")
    os.chdir("/tmp")
    for _ in range(3000):
        os.mkdir("deep"); os.chdir("deep")
    os.chdir("/tmp")
    os.makedirs("locked/inner/more"); open("locked/inner/file", "w").close()
    os.chmod("locked/inner", 0); os.chmod("locked", 0)
    os.symlink("/proc", "link"); os.mkfifo("fifo")
    return seen
`;
    await serve(code, async (python) => {
      for (let n = 0; n < 3; n++) expect(await python.call()).toMatchObject({ status: STATUS.returned, value: [] });
    });
  });

  it("all stays without cleanup", async () => {
    const code = `${PROCESSES}
def handler(payload, context):
    seen = [processes(), os.listdir("/tmp")]
    if not payload:
        subprocess.Popen(["sleep", "99"])
        open("/tmp/call", "w").close()
    return seen
`;
    await serve(
      code,
      async (python) => {
        await python.call();
        expect((await python.call(1)).value).toEqual([["(sleep)"], ["call"]]);
      },
      { cleanup: false },
    );
  });
});

describe("a call ends the process and all calls of it", () => {
  const HANDLER = "import ctypes, os, signal, socket, struct, sys, time\ndef handler(payload, context):\n  ";

  it("as timed out, whatever signals the handler ignores", async () => {
    const lines = [
      "while True: pass",
      "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n  time.sleep(99)",
      "while True:\n    try: time.sleep(99)\n    except BaseException: pass",
    ];
    for (const line of lines) {
      await serve(HANDLER + line, async (python) => {
        expect(await python.call(null, 300)).toMatchObject({ timed_out: true });
        expect(await python.resident.ended).toMatchObject({ signal: 9 });
      });
    }
  });

  it.each([
    ["a native crash", "print('before'); ctypes.string_at(0)", { signal: 11 }],
    ["os._exit", "print('before'); os._exit(3)", { exit_code: 3, signal: 0, is_broken: false }],
    ["os.abort", "print('before'); os.abort()", { signal: 6 }],
    ["a signal to itself", "print('before'); os.kill(os.getpid(), signal.SIGKILL)", { signal: 9 }],
  ])("with %s, after its output", async (_what, line, end) => {
    await serve(HANDLER + line, async (python) => {
      expect(await python.call()).toMatchObject({ cancelled: true, stdout: "before\n" });
      expect(await python.resident.ended).toMatchObject(end);
    });
  });

  it("with a memory bomb", async () => {
    await serve(`${HANDLER}held = [bytearray(1 << 20) for _ in range(4096)]`, async (python) => {
      expect(await python.call()).toMatchObject({ cancelled: true });
      expect(engine.instances.oomKills(python.instance)).toBeGreaterThan(0);
    });
  });

  it.each([
    ["for another call", "forge(999); time.sleep(99)"],
    ["twice", "forge(payload); forge(payload); time.sleep(99)"],
    ["itself and then again", "forge(payload)"],
    ["with garbage", "os.write(3, b'x' * 100); time.sleep(99)"],
    ["never, and closes descriptor 3", "os.close(3); time.sleep(99)"],
    ["after it closed descriptor 3", "os.close(3)"],
  ])("if it answers %s", async (_what, line) => {
    const forge = "def forge(id): os.write(3, struct.pack('<IBII', 9, 0x64, id, 0))\n";
    await serve(forge + HANDLER + line, async (python) => {
      await python.call(2);
      const { signal, exit_code, is_broken } = await python.resident.ended;
      expect(signal === 9 ? is_broken : exit_code === 1).toBe(true);
    });
  });
});

describe("a call harms itself alone", () => {
  it.each([
    ["an output flood", "for _ in range(100_000): print('x' * 1000)", STATUS.returned],
    ["a result of 64 MiB", "return 'x' * (64 << 20)", STATUS.failed],
    ["a fork bomb", "for _ in range(100_000): os.posix_spawn('/bin/sleep', ['sleep', '99'], {})", STATUS.failed],
    [
      "too many threads",
      "for _ in range(100_000): threading.Thread(target=gate.wait, daemon=True).start()",
      STATUS.failed,
    ],
    ["a full /tmp", "file = open('/tmp/x', 'wb', 0)\n    while True: file.write(bytes(1 << 20))", STATUS.failed],
    ["all descriptors", "held = []\n    while True: held.append(os.open('/', 0))", STATUS.failed],
    ["memory within its limit", "held = bytearray(40 << 20)", STATUS.returned],
  ])("with %s", async (_what, line, status) => {
    const code = `
import os, threading, time
gate = threading.Event()
def handler(payload, context):
  if payload: return payload
  try:
    ${line}
  finally: gate.set()
`;
    await serve(code, async (python) => {
      const { pid } = await python.resident.opened;
      expect(await python.call()).toMatchObject({ status, cancelled: false, timed_out: false });
      // Threads end by themselves.
      await eventually("the next call", async () => (await python.call("next")).value === "next");
      expect((await python.resident.opened).pid).toBe(pid);
    });
  });
});

describe("an instance", () => {
  it("starts Debian's Python, isolated, with the packages of the image", async () => {
    const code = `
import sys, _ssl, sqlite3
def handler(payload, context): return [sys.version_info[:2], sys.flags.isolated, exit is quit, sys.path]
`;
    await serve(code, async (python) => {
      const code_path = `${RUNTIME_INSIDE}/code`;
      const own = ["/usr/lib/python311.zip", "/usr/lib/python3.11", "/usr/lib/python3.11/lib-dynload"];
      const path = [code_path, ...own, "/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages"];
      expect((await python.call()).value).toEqual([[3, 11], 1, true, path]);
    });
  });

  it.each([
    ["hangs", "while True: pass", { timed_out: true }, { signal: 9 }],
    ["ends the process", "import os; os._exit(5)", { cancelled: true }, { exit_code: 5, signal: 0 }],
    ["crashes", "import ctypes; ctypes.string_at(0)", { cancelled: true }, { signal: 11 }],
    ["takes all memory", "held = [bytearray(1 << 20) for _ in range(4096)]", { cancelled: true }, { signal: 9 }],
  ])("ends when the module %s while it is loaded", async (_what, code, answer, end) => {
    const python = await start(`print('begins')\n${code}`);
    expect(await python.bind({}, 2_000)).toMatchObject({ ...answer, stdout: "begins\n" });
    expect(await python.resident.ended).toMatchObject(end);
    await engine.instances.remove(python.instance);
  });

  it("has the Python stack of a native crash in the standard error of the call", async () => {
    await serve("import ctypes\ndef handler(payload, context): ctypes.string_at(0)", async (python) => {
      expect((await python.call()).stderr).toMatch(/Segmentation fault[\s\S]*main\.py", line 2 in handler/);
    });
  });
});
