/** The body of a refusal, from what was thrown. */
import { expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { errorBody } from "../../src/http/errors.ts";

it("a refusal carries its more specific reason, and says when a retry is useless", () => {
  const refusal = new AppError("CAPACITY_FULL", "no GPU", { reason_code: "NO_GPU", retryable: false });
  expect(errorBody(refusal, "req_1")).toMatchObject({
    error_code: "CAPACITY_FULL",
    reason_code: "NO_GPU",
    reason_message: "no GPU",
    retryable: false,
    retry_after: null,
  });
});

it("a refusal without a reason carries its code, and whether the code is retryable", () => {
  expect(errorBody(new AppError("QUEUE_FULL", "full"), "req_1")).toMatchObject({
    reason_code: "QUEUE_FULL",
    reason_message: "full",
    retryable: true,
    retry_after: 1,
  });
});

it("a fault carries no internal detail as its reason", () => {
  expect(errorBody(new TypeError("secret of the inside"), "req_1")).toMatchObject({
    reason_code: "INTERNAL",
    reason_message: "internal error",
    retryable: false,
  });
});

it("a fault with a code shows no path or command of the node", () => {
  const text = "nft -f /run/hearth/1a2b3c4d/rules.nft exited with 1";
  const body = errorBody(new AppError("INTERNAL", text, { hint: "look at /run/hearth" }), "req_1");
  expect(body).toMatchObject({ error: "internal error", error_code: "INTERNAL", reason_message: "internal error" });
  expect(JSON.stringify(body)).not.toContain("/run/hearth");
});
