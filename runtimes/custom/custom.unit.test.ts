/** The runtime `custom`: its description. */
import { describe, expect, it } from "vitest";
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
