/** Payloads and flags of messages on the command line. */
import { describe, expect, it } from "vitest";
import { parsedPayload } from "../../src/cli/icc/sending.ts";
import { LEVELS } from "../../src/cli/verbs/icc.ts";
import { PERMISSION_LEVELS } from "../../src/icc/envelope/message-schema.ts";

describe("the payload of a message", () => {
  it("is the value of JSON, and any other text itself", () => {
    expect(['{"n": 42}', "7", "null", '"7"', "seven", "{broken", ""].map(parsedPayload)).toEqual([
      { n: 42 },
      7,
      null,
      "7",
      "seven",
      "{broken",
      "",
    ]);
  });
});

describe("the permission levels of the command line", () => {
  it("are those of the API", () => {
    expect(LEVELS).toEqual(PERMISSION_LEVELS);
  });
});
