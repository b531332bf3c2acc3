/** The functions of the contract that nodejs and python3 share: the same behaviour, written for each. */
import { NODEJS, PYTHON3, type Tree } from "./code.ts";

export interface ContractRuntime {
  readonly name: "nodejs" | "python3";
  readonly fields: { readonly runtime: string; readonly handler: string };
  /** Returns the kind and the value of its payload. */
  readonly echo: Tree;
  /** Does what `do` of its payload says. */
  readonly kit: Tree;
  /** Code of a handler file with this text. */
  file(text: string): Tree;
}

const NODE_ECHO = `const kindOf = (value) =>
  value === undefined || value === null ? "nothing" : Array.isArray(value) ? "list" : typeof value;
export const handler = (value) => ({ kind: kindOf(value), value: value ?? null });
`;

const NODE_KIT = `import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

const loaded_ms = Date.now();
let count = 0;
const sleepers = () => readdirSync("/proc").filter((name) => {
  try {
    return readFileSync(\`/proc/\${name}/cmdline\`, "latin1").startsWith("sleep");
  } catch {
    return false;
  }
}).length;
const pause = (ms, signal) => new Promise((resolve, reject) => {
  setTimeout(resolve, ms);
  signal?.addEventListener("abort", () => reject(signal.reason));
});
const cases = {
  context: (_, context) => ({
    ...Object.fromEntries(["invocation_id", "function_id", "function_name", "version", "memory_limit_mb"].map((name) => [name, context[name]])),
    left_ms: context.deadline_ms - Date.now(),
    remaining_ms: context.remaining_ms(),
    trace: context.trace,
    api: context.api,
  }),
  environment: (_, context) => [process.env.OF_FUNCTION, process.env.OF_CALL ?? null, context.environment.OF_CALL ?? null],
  print: (_, context) => {
    for (const n of [1, 2, 3]) {
      console.log("out", n);
      console.error("err", n);
    }
    process.stdout.write("no newline");
    context.log.info("stored", { count: 3 });
  },
  api: async (_, { api }) => {
    const response = await fetch(\`\${api.url}/api/functions/by-name/kit-nodejs\`, { headers: { "x-api-key": api.token } });
    return [response.status, (await response.json()).name];
  },
  text: ({ length }) => "x".repeat(length),
  length: ({ text }) => text.length,
  count: () => ++count,
  loaded: () => loaded_ms,
  directory: () => process.cwd(),
  wait: async (_, { signal }) => {
    try {
      await pause(60_000, signal);
    } catch (error) {
      console.log("cancelled by", error.name);
      throw error;
    }
  },
  spin: () => {
    for (;;);
  },
  fill: ({ mb }) => {
    const held = Array.from({ length: mb }, () => Buffer.alloc(1024 * 1024, 1));
    return held.length;
  },
  leave: async () => {
    spawn("sleep", ["600"], { detached: true, stdio: "ignore" }).unref();
    writeFileSync("/tmp/left", "");
    while (sleepers() === 0) await pause(1);
  },
  left: () => [sleepers(), existsSync("/tmp/left")],
  nothing: () => {},
};
export const handler = (payload, context) => cases[payload.do](payload, context);
`;

const PYTHON_ECHO = `
def kind(value):
    if isinstance(value, bool): return "boolean"
    return {type(None): "nothing", list: "list", dict: "object", str: "string"}.get(type(value), "number")
def handler(value, context):
    return {"kind": kind(value), "value": value}
`;

const PYTHON_KIT = `
import asyncio, json, os, subprocess, sys, time, urllib.request

loaded_ms = time.time() * 1000
count = 0
def sleepers():
    found = 0
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline") as file: found += file.read().startswith("sleep")
        except OSError: pass
    return found
class Cases:
    def context(payload, context):
        names = ["invocation_id", "function_id", "function_name", "version", "memory_limit_mb"]
        return {**{name: getattr(context, name) for name in names},
            "left_ms": context.deadline_ms - time.time() * 1000, "remaining_ms": context.remaining_ms(),
            "trace": context.trace, "api": context.api}
    def environment(payload, context):
        return [os.environ["OF_FUNCTION"], os.environ.get("OF_CALL"), context.environment.get("OF_CALL")]
    def print(payload, context):
        for n in (1, 2, 3):
            print("out", n)
            print("err", n, file=sys.stderr)
        print("no newline", end="")
        context.log.info("stored", count=3)
    def api(payload, context):
        request = urllib.request.Request(context.api["url"] + "/api/functions/by-name/kit-python3")
        request.add_header("x-api-key", context.api["token"])
        with urllib.request.urlopen(request) as response: return [response.status, json.load(response)["name"]]
    def text(payload, context): return "x" * payload["length"]
    def length(payload, context): return len(payload["text"])
    def count(payload, context):
        global count
        count += 1
        return count
    def loaded(payload, context): return loaded_ms
    def directory(payload, context): return os.getcwd()
    async def wait(payload, context):
        try: await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            print("cancelled by", type(error).__name__)
            raise
    def spin(payload, context):
        while True: pass
    def fill(payload, context):
        held = [b"x" * (1 << 20) for _ in range(payload["mb"])]
        return len(held)
    def leave(payload, context):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        open("/tmp/left", "w").close()
        while sleepers() == 0: time.sleep(0.001)
    def left(payload, context): return [sleepers(), os.path.exists("/tmp/left")]
    def nothing(payload, context): pass
async def handler(payload, context):
    result = getattr(Cases, payload["do"])(payload, context)
    return await result if asyncio.iscoroutine(result) else result
`;

export const CONTRACT_RUNTIMES: readonly ContractRuntime[] = [
  {
    name: "nodejs",
    fields: NODEJS,
    echo: { "index.mjs": NODE_ECHO },
    kit: { "index.mjs": NODE_KIT },
    file: (text) => ({ "index.mjs": text }),
  },
  {
    name: "python3",
    fields: PYTHON3,
    echo: { "main.py": PYTHON_ECHO },
    kit: { "main.py": PYTHON_KIT },
    file: (text) => ({ "main.py": text }),
  },
];
