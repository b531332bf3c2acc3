/** Bindings: engines that cannot attach the code of a version, and code caches. */
import { expect, it } from "vitest";
import { type BindHead, STATUS } from "../../runtimes/index.ts";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import type { CallOutcome, Instance, Instances, Resident } from "../../src/engine/ports.ts";
import { Bindings } from "../../src/functions/calls/bindings.ts";
import { SAMPLES } from "../../src/functions/samples.ts";
import type { FunctionRecord } from "../../src/functions/schema.ts";
import { type Prepared, prepare } from "../../src/functions/target.ts";
import { NO_CODE, NO_SECRETS } from "./no-parts.ts";

const DIGEST = "ab".repeat(32);
const version = prepare({ ...SAMPLES.created, code_sha256: DIGEST });

/** Binds an instance whose code the engine cannot attach. */
function bound(code: Partial<typeof NO_CODE>) {
  const attach = () => Promise.reject(new AppError("START_FAILED", "cannot attach"));
  const bindings = new Bindings({
    instances: { attach } as Partial<Instances> as Instances,
    clock: systemClock,
    secrets: NO_SECRETS,
    code: { ...NO_CODE, ...code },
  });
  bindings.set(version);
  const instance = { id: "i1", resident: null } as Partial<Instance> as Instance;
  return { bindings, binding: bindings.bind(instance, version.group, () => false) };
}

it("answer calls with the loss if somebody has removed the code", async () => {
  const check = () => Promise.reject(new AppError("NOT_FOUND", `files of code ${DIGEST} are lost`));
  const { bindings, binding } = bound({ check });
  const fault = { status: "failed", error_message: expect.stringContaining(`files of code ${DIGEST} are lost`) };
  expect(await binding).toMatchObject({ fault });
  expect(bindings.faultOf(version.group)).toMatchObject(fault);
});

it("fail to start an instance if the code is there", async () => {
  const { bindings, binding } = bound({});
  await expect(binding).rejects.toMatchObject({ code: "START_FAILED", message: "cannot attach" });
  expect(bindings.faultOf(version.group)).toBeNull();
});

/** A status that no process answers: the connection ends. */
const LOST = -1;

/** Bindings whose processes answer a bind with these contents, and the requests that the processes got. */
function withProcesses(...answers: readonly { readonly status: number; readonly content: string }[]) {
  const left = [...answers];
  const requests: { readonly wants: boolean; readonly body: string }[] = [];
  const call: Resident["call"] = async ({ payload }) => {
    const bytes = Buffer.from(payload);
    const end = 4 + bytes.readUInt32LE(0);
    const head = JSON.parse(bytes.toString("utf8", 4, end)) as BindHead;
    requests.push({ wants: head.code_cache === true, body: bytes.toString("utf8", end) });
    const { status, content } = left.shift() ?? { status: STATUS.returned, content: "" };
    if (status === LOST) throw new AppError("INTERNAL", content);
    const ended = { cancelled: false, timed_out: false, result_truncated: false, log_truncated: false };
    return { ...ended, status, result: Buffer.from(content), handler_ms: 1 } as CallOutcome;
  };
  const nothing = () => {};
  const engine = { attach: async () => {}, mark: nothing, limit: nothing, attribute: nothing, furnished: nothing };
  const bindings = new Bindings({
    instances: engine as Partial<Instances> as Instances,
    clock: systemClock,
    secrets: NO_SECRETS,
    code: { ...NO_CODE, hold: () => () => {} },
  });
  const resident = { call } as Partial<Resident> as Resident;
  const bind = (of: Prepared) => {
    bindings.set(of);
    return bindings.bind({ id: "i1", resident } as Partial<Instance> as Instance, of.group, () => false);
  };
  return { bindings, requests, bind };
}

const made = (content: string) => ({ status: STATUS.returned, content });
const typescript = (more: Partial<FunctionRecord>) =>
  prepare({
    ...SAMPLES.created,
    runtime: "nodejs",
    handler: "index.ts",
    code_sha256: DIGEST,
    code_size_bytes: 10,
    ...more,
  });

it("give the code cache of a version's first process to the next ones, and to no other version", async () => {
  const { bindings, requests, bind } = withProcesses(made("first"), made("second"), made("third"));
  const [one, other] = [typescript({ version: 1 }), typescript({ id: "fn_2", tenant_id: "t2" })];
  for (const of of [one, one, other, one]) await bind(of);
  expect(requests).toEqual([
    { wants: true, body: "" },
    { wants: false, body: "first" },
    { wants: true, body: "" },
    { wants: false, body: "first" },
  ]);
  bindings.forget(one.group);
  await bind(one);
  expect(requests.at(-1)).toEqual({ wants: true, body: "" });
});

it("drop a code cache with which a process does not load, and at other code under the same number", async () => {
  const error = { status: STATUS.not_loaded, content: '{"type":"Error","message":"x"}' };
  const { requests, bind } = withProcesses(made("a"), error, made("b"), made(""), made("c"));
  const version = typescript({});
  for (const of of [version, version, version, typescript({ code_sha256: "cd".repeat(32) }), version]) await bind(of);
  expect(requests.map(({ body }) => body)).toEqual(["", "a", "", "", ""]);
});

it("drop a code cache with which an instance is lost, or ends in a call", async () => {
  const { bindings, requests, bind } = withProcesses(made("a"), { status: LOST, content: "gone" }, made("b"));
  const version = typescript({});
  await bind(version);
  await expect(bind(version)).rejects.toThrow("gone");
  for (let i = 0; i < 2; i++) await bind(version);
  bindings.suspect(version.group);
  await bind(version);
  expect(requests.map(({ body }) => body)).toEqual(["", "a", "", "b", ""]);
});

it("ask for no code cache where the runtime has none", async () => {
  const { requests, bind } = withProcesses(made("x"), made("x"));
  for (const handler of ["index.mjs", "index.mjs"]) await bind(typescript({ handler }));
  expect(requests).toEqual([
    { wants: false, body: "" },
    { wants: false, body: "" },
  ]);
});
