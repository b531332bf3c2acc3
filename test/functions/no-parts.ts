/** A tenant without code and secrets, and runtimes without files, for tests that need none. */
import { RUNTIMES, type Runtime } from "../../runtimes/index.ts";
import { AppError } from "../../src/base/errors.ts";
import type { HeldCode, SecretValues } from "../../src/functions/calls/bindings.ts";
import type { Code } from "../../src/functions/versions/checks.ts";

export const NO_SECRETS: SecretValues = {
  values: async (_tenant_id, [name]) => {
    throw new AppError("NOT_FOUND", `secret '${name}' not found`);
  },
};

export const NO_CODE: HeldCode & Code = {
  hold: () => () => {},
  check: () => Promise.resolve(),
  get: async () => {
    throw new AppError("NOT_FOUND", "code not found");
  },
  modeOf: async () => null,
  headOf: async () => Buffer.alloc(0),
};

/** The runtimes without files of their own: nothing is copied. */
export const BARE_RUNTIMES: ReadonlyMap<string, Runtime> = new Map(
  [...RUNTIMES].map(([name, runtime]) => [name, { ...runtime, directory: null }]),
);
