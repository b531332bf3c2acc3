/** Tokens of running invocations, with the time held by hand. */
import { describe, expect, it } from "vitest";
import type { Clock } from "../../../src/base/clock.ts";
import { randomIds } from "../../../src/base/ids.ts";
import { InvocationTokens } from "../../../src/functions/calls/tokens.ts";

const open = (tokens_max?: number) => {
  const time = { now_ms: 1_000 };
  const clock: Clock = { epochMs: () => 0, monotonicMs: () => time.now_ms, after: () => () => {} };
  return { time, tokens: new InvocationTokens(randomIds(), clock, tokens_max) };
};
const scopes = ["read", "write"] as const;
const request = { tenant_id: "t", function_id: "fn_a", invocation_id: "inv_1", scopes, depth: 2, expires_ms: 1_500 };
const refused = expect.objectContaining({ code: "UNAUTHORIZED", message: "invalid credential" });

describe("the token of an invocation", () => {
  it("names its tenant and its invocation, and has the scopes of its version", async () => {
    const { tokens } = open();
    const token = tokens.issue(request);
    expect(token).toMatch(/^hi_[0-9a-z]{32}$/);
    const caller = {
      tenant_id: "t",
      key_id: "inv_1",
      kind: "invocation",
      is_operator: false,
      scopes,
      invocation: { invocation_id: "inv_1", function_id: "fn_a", depth: 2, deadline_ms: 1_500 },
    };
    expect(tokens.cached(token)).toEqual(caller);
    expect(await tokens.caller(token)).toEqual(caller);
    expect(tokens.issue(request)).not.toBe(token);
  });

  it("ends with its tenant, and no other tenant's does", () => {
    const { tokens } = open();
    const [token, other] = [tokens.issue(request), tokens.issue({ ...request, tenant_id: "u" })];
    tokens.revokeAll("t");
    expect(tokens.cached(token)).toBeNull();
    expect(tokens.cached(other)).not.toBeNull();
  });

  it("ends with its invocation", async () => {
    const { tokens } = open();
    const [token, other] = [tokens.issue(request), tokens.issue(request)];
    tokens.revoke(token);
    tokens.revoke(token);
    expect(tokens.cached(token)).toBeNull();
    await expect(tokens.caller(token)).rejects.toEqual(refused);
    expect(tokens.cached(other)).not.toBeNull();
  });

  it("ends with its deadline", async () => {
    const { tokens, time } = open();
    const token = tokens.issue(request);
    time.now_ms = 1_499.999;
    expect(tokens.cached(token)).not.toBeNull();
    time.now_ms = 1_500;
    expect(tokens.cached(token)).toBeNull();
    await expect(tokens.caller(token)).rejects.toEqual(refused);
  });

  it("is refused like any bad key when it was never issued", async () => {
    const { tokens } = open();
    expect(tokens.cached("hi_0")).toBeNull();
    await expect(tokens.caller("hi_0")).rejects.toEqual(refused);
  });

  it("is not given above the bound, where those that have ended make room", () => {
    const { tokens, time } = open(2);
    tokens.issue(request);
    const lasting = tokens.issue({ ...request, expires_ms: 9_000 });
    expect(() => tokens.issue(request)).toThrow(expect.objectContaining({ code: "CAPACITY_FULL", retry_after: 1 }));
    time.now_ms = 1_500;
    const later = tokens.issue({ ...request, expires_ms: 9_000 });
    expect([lasting, later].map((token) => tokens.cached(token) !== null)).toEqual([true, true]);
    tokens.revoke(lasting);
    tokens.issue(request);
  });
});
