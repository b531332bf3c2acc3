/**
 * Code that attacks its own instance. Each attack harms its own call alone: the record has the reason, the next call of the
 * function succeeds, and in the end nothing of the attacks is left on the machine.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Counts, countAtRest, expectAtRest } from "../recovery/rest.ts";
import { CodeUser, NODEJS, PYTHON3, type Tree } from "../support/code.ts";
import { Daemon } from "../support/daemon.ts";
import {
  CACHE_FORGER,
  CACHE_POISONER,
  LAMBDA_ATTACKS,
  NODE_ATTACKS,
  PYTHON_ATTACKS,
  SERVER_ATTACKS,
  SHELL_ATTACKS,
} from "./attackers.ts";

const SETTINGS = { HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" };
const daemon = new Daemon();
const user = new CodeUser(daemon);
const begin: { counts: Counts } = { counts: {} };

beforeAll(async () => {
  await daemon.start(SETTINGS);
  // The cell is one with a resident process from now on.
  await user.deploy("first", { "index.mjs": "export const handler = () => {};" }, NODEJS);
  await deleteAll();
  begin.counts = await countAtRest(daemon, 1);
});
afterAll(() => daemon.dispose());

async function deleteAll(): Promise<void> {
  const { body } = await user.call("GET", "/api/functions");
  for (const { id } of body.functions) {
    expect((await user.call("DELETE", `/api/functions/${id}`)).status).toBe(200);
  }
}

/** What the record of an attack says: its error, or its result; null where it timed out. */
type Told = RegExp | { readonly result?: unknown; readonly stdout?: unknown; readonly stderr?: unknown } | null;

/**
 * Timeout of calls that do not end, in seconds. Instances for all of them start within it, beside handlers that spin. A fork bomb of a
 * shell exits by itself after some seconds.
 */
const lateSeconds = (runtime: string): number => (runtime === "shell" ? 1 : 15);
const LIMITED = { memory_limit_mb: 256, timeout_seconds: 20 };

interface Attacked {
  readonly runtime: string;
  readonly files: Tree;
  readonly fields: object;
  readonly attacks: Readonly<Record<string, Told>>;
}

const OOM = /^killed: out of memory \(limit 256 MiB\)$/;
const BROKEN = /^the process of the instance closed descriptor 3, or wrote to it(: |, without output$)/;
const signal = (number: number) =>
  new RegExp(`^the process of the instance was killed by signal ${number}(: |, without output$)`);
const exit = (code: number) => new RegExp(`^the process of the instance exited with ${code}(: |, without output$)`);
/** The kernel denies `ptrace` of minit and `chroot`; the filter of system calls denies `mount`, `unshare` and `umount2`. */
const DENIED = "Operation not permitted";
const MIB = 1 << 20;
const FLOODED = { result: "flooded", stdout: expect.objectContaining({ length: MIB }) };

const ATTACKED: readonly Attacked[] = [
  {
    runtime: "nodejs",
    files: { "index.mjs": NODE_ATTACKS },
    fields: NODEJS,
    attacks: {
      "a native crash": signal(11),
      "an abort": signal(6),
      "an endless loop": null,
      "a promise that never settles": null,
      "a memory bomb": OOM,
      "a heap bomb": OOM,
      "a fork bomb": null,
      "a flood on the console": FLOODED,
      "a flood on descriptor 1": FLOODED,
      "a BigInt": /^ResultNotJson: .* contains a value of type bigint$/,
      "a circle": /^ResultNotJson: .* contains itself$/,
      "a result with a getter that exits": /^ProcessExit: .* exit code 9$/,
      "a result of 64 MiB": /^ResultTooLarge: the result has 67108866 bytes \(limit 1048576\)$/,
      "a deep result": /^RangeError: Maximum call stack size exceeded$/,
      "process.exit": /^ProcessExit: .* exit code 3$/,
      "process.exit with 0": /^ProcessExit: .* exit code 0$/,
      "process.reallyExit": exit(4),
      "a crash at exit": /^ProcessExit: .* exit code 0$/,
      "closed descriptors": { result: "closed", stdout: "after\n" },
      "ended streams": { result: "ended", stdout: "after\n" },
      "signal handlers that refuse": null,
      "an uncaught exception": /^RangeError: thrown later$/,
      "an unhandled rejection": /^RangeError: rejected$/,
      "a thrown null": /^null: null$/,
      "an error that throws": /^Object: /,
      "garbage on descriptor 3": BROKEN,
      "a giant frame": BROKEN,
      "an answer for a call that is not there": BROKEN,
      "two answers": BROKEN,
      "a second CALL_OPEN": BROKEN,
      "a closed descriptor 3": BROKEN,
      "a killed group": signal(9),
      "a signal to all": { result: "ESRCH" },
      "a signal to PID 1": { result: "sent" },
      "a full /tmp": OOM,
      "10,000 files": { result: "made" },
      "writes outside": { result: refusedTimes(10) },
      "reads of PID 1": { result: refusedTimes(4) },
      "a broken built-in": null,
    },
  },
  {
    runtime: "python3",
    files: { "main.py": PYTHON_ATTACKS },
    fields: PYTHON3,
    attacks: {
      "a native crash": signal(11),
      "an abort": signal(6),
      "an endless loop": null,
      "a coroutine that never settles": null,
      "a memory bomb": OOM,
      "a fork bomb": null,
      "a flood on the console": FLOODED,
      "a flood on descriptor 1": FLOODED,
      "a set": /^ResultNotJson: .* type set$/,
      "a circle": /^ResultNotJson: .* contains itself$/,
      "not a number": /^ResultNotJson: .* contains NaN or Infinity$/,
      "a result of 64 MiB": /^ResultTooLarge: /,
      "a deep result": /^ResultNotJson: .* nested too deeply$/,
      "sys.exit": /^SystemExit: the handler called sys\.exit\(3\)$/,
      "os._exit": exit(4),
      "os._exit in a thread": exit(6),
      "closed descriptors": { stdout: "after\n" },
      "closed streams": { stdout: "after\n" },
      "signal handlers that refuse": null,
      "an error that throws": /^Odd: str\(\) of the exception failed$/,
      "endless recursion": /^RecursionError: /,
      "garbage on descriptor 3": BROKEN,
      "a giant frame": BROKEN,
      "an answer for a call that is not there": BROKEN,
      "two answers": BROKEN,
      "a second CALL_OPEN": BROKEN,
      "a closed descriptor 3": BROKEN,
      "a shut descriptor 3": BROKEN,
      "a signal to its group": signal(9),
      "signals to PID 1": { result: "sent" },
      "a full /tmp": OOM,
      "10,000 files": { result: "made" },
      "calls of the kernel": { result: Array(6).fill(DENIED) },
      "a changed wire": exit(1),
      "a stopped process": null,
    },
  },
  {
    runtime: "custom",
    files: { "server.mjs": SERVER_ATTACKS },
    fields: { runtime: "custom", handler: "node server.mjs" },
    attacks: {
      "an abort": /^CommandExited: the command was killed by signal 6: -+ Native stack trace/,
      "process.exit": /^CommandExited: the command exited with 3, without output$/,
      "an endless loop": null,
      "no answer": null,
      "a memory bomb": OOM,
      "a fork bomb": null,
      "a flood on descriptor 1": FLOODED,
      "a result of 64 MiB": /^ResultTooLarge: /,
      "a closed connection": /^HttpError: closed the connection without an answer$/,
      "two answers": { result: 1 },
      "garbage for an answer": /^HttpError: broken HTTP response/,
      "a giant length": /^HttpError: broken HTTP response/,
      "a head without end": /^HttpError: broken HTTP response: a head above 16 KiB$/,
      "closed descriptors": { result: "closed" },
      "a killed adapter": signal(9),
      "a stopped adapter": null,
      "writes to PID 1 and the adapter": { result: refusedTimes(3) },
    },
  },
  {
    runtime: "lambda",
    files: { "main.mjs": LAMBDA_ATTACKS },
    fields: { runtime: "custom", protocol: "lambda", handler: "node main.mjs" },
    attacks: {
      "an abort": /^CommandExited: the command was killed by signal 6: -+ Native stack trace/,
      "process.exit": /^CommandExited: the command exited with 3, without output$/,
      "an endless loop": null,
      "no answer": null,
      "a memory bomb": OOM,
      "a result of 64 MiB": /^Function\.ResponseSizeTooLarge: /,
      "an answer for another call": { result: [400, 404] },
      "two answers": { result: "first" },
      "an init error": { result: 403 },
      "a killed adapter": signal(9),
    },
  },
  {
    runtime: "shell",
    files: { "attack.sh": SHELL_ATTACKS },
    fields: { runtime: "shell", handler: "./attack.sh" },
    attacks: {
      "a native crash": /^killed by signal 11$/,
      "an endless loop": null,
      "a memory bomb": OOM,
      "a fork bomb": null,
      "a flood": { stdout: expect.objectContaining({ length: MIB }), stderr: "err\n" },
      "an exit": /^exited with 3$/,
      "closed descriptors": {},
      "signal handlers that refuse": null,
      "left children": { stdout: "left\n" },
      "children that hold the output": { stdout: "held\n" },
      "10,000 files": { stdout: "made\n" },
      "a full /tmp": OOM,
      "signals to all": { stdout: "sent\n" },
      "signals to PID 1": { stdout: "sent\n" },
      "calls of the kernel": { stdout: "" },
      "writes outside": { stdout: "" },
    },
  },
];

function refusedTimes(count: number): unknown {
  return Array(count).fill(expect.stringMatching(/^(EACCES|EROFS|EPERM|ENOENT)$/));
}

function recordOf(told: Exclude<Told, null>): object {
  if (told instanceof RegExp) return { status: "failed", error_message: expect.stringMatching(told) };
  return { status: "success", error_message: null, ...told };
}

describe.each(ATTACKED)("in $runtime", ({ runtime, files, fields, attacks }) => {
  const isLate = (name: string) => attacks[name] === null;
  const names = Object.keys(attacks);
  const fine = { status: "success", ...(runtime === "shell" ? { stdout: "fine\n" } : { result: "fine" }) };

  beforeAll(async () => {
    await user.deploy(runtime, files, { ...fields, ...LIMITED, max_instances: 1 });
    await user.deploy(`${runtime}-late`, files, {
      ...fields,
      ...LIMITED,
      timeout_seconds: lateSeconds(runtime),
      max_instances: 8,
    });
  });

  it.each(names.filter((name) => !isLate(name)))("%s harms its own call alone", async (name) => {
    expect(await user.invoke(runtime, name)).toMatchObject(recordOf(attacks[name] ?? {}));
    expect(await user.invoke(runtime, "fine")).toMatchObject(fine);
  });

  it("those that do not end are ended at their deadline, beside other calls", async () => {
    const late = names.filter(isLate);
    const ended = { status: "timeout", error_message: `timed out after ${lateSeconds(runtime)} s` };
    const records = late.map(async (name) => [name, await user.invoke(`${runtime}-late`, name)] as const);
    // Promise.all below reports a refused call; until then it is no unhandled rejection.
    for (const record of records) record.catch(() => {});
    expect(await user.invoke(`${runtime}-late`, "fine", { timeout_seconds: 60 })).toMatchObject(fine);
    for (const [name, record] of await Promise.all(records)) expect([name, record]).toMatchObject([name, ended]);
    expect(await user.invoke(`${runtime}-late`, "fine")).toMatchObject(fine);
  });
});

describe("a code cache that its version poisons", () => {
  const sigsegv = "the process of the instance was killed by signal 11, without output";
  it.each([
    ["crash at load", `cannot load the handler: ${sigsegv}`],
    ["exit at load", "cannot load the handler: the process of the instance exited with 4, without output"],
    ["bomb at load", "cannot load the handler: killed: out of memory (limit 256 MiB)"],
    ["throw at load", "cannot load the handler: RangeError: poisoned"],
    ["crash at call", sigsegv],
    ["bomb at call", "killed: out of memory (limit 256 MiB)"],
    ["loop at call", "timed out after 5 s"],
  ])("with a %s costs one call, and the next process makes another", async (poison, error_message) => {
    const name = poison.replaceAll(" ", "-");
    const fields = {
      ...NODEJS,
      ...LIMITED,
      timeout_seconds: 5,
      instance_calls_max: 1,
      environment: { POISON: poison },
    };
    await user.deploy(name, { "index.ts": CACHE_POISONER }, { ...fields, handler: "index.ts" });
    const clean = { status: "success", result: "none" };
    expect(await user.invoke(name)).toMatchObject(clean);
    expect(await user.invoke(name)).toMatchObject({ error_message });
    expect(await user.invoke(name)).toMatchObject(clean);
  });
});

describe("a forged answer to a bind", () => {
  const FORGED =
    /^(the process of the instance closed descriptor 3, or wrote to it(: |, without output$)|instance lost: )/;
  it.each([1, 15, 16, 1024])("with %i chunks for a code cache breaks its own instance alone", async (chunks) => {
    const name = `forged-${chunks}`;
    const fields = { ...NODEJS, ...LIMITED, handler: "index.ts", environment: { CHUNKS: String(chunks) } };
    await user.deploy(name, { "index.ts": CACHE_FORGER }, fields);
    for (let n = 0; n < 2; n++) {
      const { status, error_message } = await user.invoke(name);
      // The end of the process may be known before the call is sent.
      expect([status, error_message]).toEqual(["failed", expect.stringMatching(FORGED)]);
    }
    await user.deploy(name, { "index.ts": CACHE_FORGER }, { ...fields, environment: {} });
    expect(await user.invoke(name)).toMatchObject({ result: "loaded" });
  });
});

describe("a command that ends behind its answer", () => {
  it.each(["a crash behind the answer", "a closed port"])("by %s costs at most the next call", async (name) => {
    expect(await user.invoke("custom", name)).toMatchObject({ status: "success" });
    const next = await user.invoke("custom", "fine");
    // The end of the process may be known before the call is sent.
    if (next.status !== "success")
      expect(next.error_message).toMatch(/^(Command(Exited|NotListening)|instance lost): /);
    expect(await user.invoke("custom", "fine")).toMatchObject({ result: "fine" });
  });
});

describe("after all attacks", () => {
  it("the daemon has the processes, mounts, cgroups, links and files of before", async () => {
    await deleteAll();
    await expectAtRest(daemon, begin.counts, 1);
    expect(daemon.isAlive).toBe(true);
  });
});
