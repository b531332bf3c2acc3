/** A tenant without code and secrets, for what is made of neither. */
import { AppError } from "../../src/base/errors.ts";
import type { HeldCode, SecretValues } from "../../src/functions/bindings.ts";
import type { Code } from "../../src/functions/checks.ts";

export const NO_SECRETS: SecretValues = {
  values: async (_tenant_id, [name]) => {
    throw new AppError("NOT_FOUND", `secret '${name}' not found`);
  },
};

export const NO_CODE: HeldCode & Code = {
  hold: () => () => {},
  get: async () => {
    throw new AppError("NOT_FOUND", "code not found");
  },
  modeOf: async () => null,
};
