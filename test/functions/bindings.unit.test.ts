/** Bindings of instances whose engine cannot attach the code of a version. */
import { expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import type { Instance, Instances } from "../../src/engine/ports.ts";
import { Bindings } from "../../src/functions/calls/bindings.ts";
import { SAMPLES } from "../../src/functions/samples.ts";
import { prepare } from "../../src/functions/target.ts";
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
