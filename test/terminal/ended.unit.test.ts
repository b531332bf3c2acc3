/** Ended sessions of terminals: what one tenant can read of its own, whatever others do. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { EndedSessions } from "../../src/terminal/ended.ts";

const session = (tenant_id: string, id: string) => ({ tenant_id, id });

describe("ended sessions", () => {
  it("of one tenant are not evicted by another with thousands of sessions and much output", () => {
    const ended = new EndedSessions();
    const mine = session("mine", "sess_1");
    ended.add(mine, Buffer.from("last words"));
    const output = Buffer.alloc(LIMITS.terminal_backlog_bytes);
    for (let i = 0; i < 5_000; i++) ended.add(session("theirs", `sess_x${i}`), output);
    expect(ended.get("mine", "sess_1")).toBe(mine);
    expect(String(ended.unseen("mine", "sess_1"))).toBe("last words");
    expect([ended.get("theirs", "sess_1"), ended.unseen("theirs", "sess_1")]).toEqual([undefined, undefined]);
  });

  it("are the newest of a tenant, with the newest output", () => {
    const ended = new EndedSessions();
    const count = LIMITS.terminal_ended_kept + 1;
    const output = Buffer.alloc(LIMITS.terminal_backlog_bytes);
    for (let i = 0; i < count; i++) ended.add(session("t", `${i}`), output);
    const ids = Array.from({ length: count }, (_, i) => `${i}`);
    expect(ids.filter((id) => ended.get("t", id) !== undefined)).toHaveLength(LIMITS.terminal_ended_kept);
    expect(ended.get("t", "0")).toBe(undefined);
    const bytes = ids.reduce((sum, id) => sum + (ended.unseen("t", id)?.length ?? 0), 0);
    expect(bytes).toBe(LIMITS.terminal_unseen_bytes_max);
    expect(ended.unseen("t", `${count - 1}`)).toBe(output);
    ended.seen("t", `${count - 1}`);
    expect(ended.unseen("t", `${count - 1}`)).toBe(undefined);
  });
});
