/** The runtime `custom`: its description. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { custom } from "./index.ts";

describe("the custom runtime", () => {
  it.each(["./server", "node server.js --port $PORT", "function.handler"])("accepts the handler %j", (handler) => {
    expect(custom.complaint(handler)).toBeNull();
  });

  it.each(["", "  ", "a\0b"])("refuses the handler %j", (handler) => {
    expect(custom.complaint(handler)).not.toBeNull();
  });

  it("starts the adapter of minit in each cell", () => {
    expect(custom.serving).toEqual({
      kind: "resident",
      argv: ["/dev/init", "adapter", "/function"],
      open_timeout_ms: expect.any(Number),
    });
  });
});

it.each([
  ["json.h", "JSON_RESULT_DEPTH_MAX", LIMITS.json_depth_max],
  ["json.h", "JSON_RESULT_VALUES_MAX", LIMITS.json_values_max],
  ["adapter-call.h", "RESULT_MAX", LIMITS.result_bytes_max],
  ["adapter-call.h", "ERROR_TEXT_MAX", LIMITS.custom_error_bytes_max],
  ["http.h", "HTTP_HEAD_MAX", LIMITS.custom_head_bytes_max],
  ["adapter-lambda.c", "CLIENTS_MAX", LIMITS.custom_connections_max],
])("%s has the daemon's number for %s", (file, name, value) => {
  const source = readFileSync(join(import.meta.dirname, "../minit", file), "utf8");
  const [, factors = ""] = new RegExp(`\\b${name} = ([\\d *]+)`).exec(source) ?? [];
  expect(factors.split("*").reduce((product, factor) => product * Number(factor), 1)).toBe(value);
});
