/** Build contexts on a store of a test, over a storage pool that only remembers its subvolumes. */
import { describe, expect, it } from "vitest";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import type { Extracted, ExtractOptions, Files, Storage } from "../../src/engine/ports.ts";
import { BuildContexts } from "../../src/oci/contexts/service.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";

const NODE_MB = 1_000;
const MIB = 1024 * 1024;
const refused = (code: string) => expect.objectContaining({ code });

/** An upload of so many bytes of files. */
async function* upload(bytes: number): AsyncGenerator<Uint8Array> {
  yield Buffer.from(String(bytes));
}

describe("build contexts", () => {
  const scratch = scratchStores();

  async function made(node_mb = NODE_MB) {
    const store = scratch().open();
    const insert = "INSERT INTO tenants (id, name, created_at) VALUES (?, ?, 0)";
    await store.write(["a", "b"].map((id) => ({ sql: insert, args: [id, id] })));
    const state = { now_ms: 1e12, subvolumes: new Map<string, number | null>(), isFull: false };
    const storage = {
      subvolume: (kind: string, id: string) => `/pool/${kind}/${id}`,
      create: async (_: string, id: string, limit_mb: number | null) => {
        state.subvolumes.set(id, limit_mb);
        return `/pool/contexts/${id}`;
      },
      remove: async (_: string, id: string) => void state.subvolumes.delete(id),
      list: async () => [...state.subvolumes.keys()],
      statistics: async () => ({ size_mb: node_mb, used_mb: 0, free_mb: node_mb }),
    };
    const session = {
      extract: async (source: AsyncIterable<Uint8Array>, { onProgress }: ExtractOptions): Promise<Extracted> => {
        const done = { entry_count: 1, byte_count: 0 };
        for await (const piece of source) done.byte_count += Number(Buffer.from(piece).toString());
        onProgress?.(done);
        if (state.isFull) throw new AppError("STORAGE_FULL", "no space left");
        return done;
      },
    };
    const files = { with: (_: string, __: string, ___: number, work: (of: object) => unknown) => work(session) };
    const clock: Clock = { ...systemClock, epochMs: () => state.now_ms };
    const quotas = nodeQuotas();
    const contexts = new BuildContexts({
      ...{ store, clock, quotas, ids: randomIds(), log: quietLog, node: { id: "n", seq: 1 } },
      storage: () => storage as unknown as Storage,
      files: () => files as unknown as Files,
    });
    return { contexts, state, quotas, store, left: () => [...state.subvolumes.keys()] };
  }

  it("keep their files while a build has them open, also after their hour and their deletion", async () => {
    const { contexts, state, left } = await made();
    const [first, second] = [await contexts.create("a", upload(10)), await contexts.create("a", upload(10))];
    const open = await contexts.open("a", first.context_id);
    const again = await contexts.open("a", first.context_id);
    const deleted = await contexts.open("a", second.context_id);
    expect(open).toMatchObject({ root: `/pool/contexts/${first.context_id}`, size_bytes: 10 });
    await contexts.delete("a", second.context_id);
    await expect(contexts.open("a", second.context_id)).rejects.toEqual(refused("NOT_FOUND"));
    expect(left()).toEqual([first.context_id, second.context_id]);
    deleted.release();
    deleted.release();
    await contexts.close();
    expect(left()).toEqual([first.context_id]);

    state.now_ms += LIMITS.context_seconds * 1_000;
    await expect(contexts.open("a", first.context_id)).rejects.toEqual(refused("NOT_FOUND"));
    expect((await contexts.list("a", firstPage())).items).toEqual([]);
    await contexts.prune();
    expect(left()).toEqual([first.context_id]);
    open.release();
    await contexts.prune();
    expect(left()).toEqual([first.context_id]);
    again.release();
    await contexts.prune();
    expect(left()).toEqual([]);
  });

  it("are not opened, listed or deleted by another tenant", async () => {
    const { contexts, left } = await made();
    const { context_id } = await contexts.create("a", upload(10));
    await expect(contexts.open("b", context_id)).rejects.toEqual(refused("NOT_FOUND"));
    await expect(contexts.delete("b", context_id)).rejects.toEqual(refused("NOT_FOUND"));
    expect((await contexts.list("b", firstPage())).items).toEqual([]);
    await contexts.eraseAll("b");
    expect(left()).toEqual([context_id]);
    await contexts.eraseAll("a");
    expect(left()).toEqual([]);
  });

  it("get subvolumes as large as the tenant may still use, and at most their part of the node", async () => {
    const { contexts, state, quotas, left } = await made();
    quotas.set("a", { build_context_mb_max: 100 });
    await contexts.create("a", upload(30 * MIB - LIMITS.context_entry_bytes));
    await contexts.create("a", upload(1));
    expect([...state.subvolumes.values()]).toEqual([100, 70]);
    state.isFull = true;
    await expect(contexts.create("a", upload(1))).rejects.toEqual(refused("QUOTA_EXCEEDED"));
    quotas.set("a", { build_context_mb_max: null });
    await expect(contexts.create("a", upload(1))).rejects.toEqual(refused("CAPACITY_FULL"));
    state.isFull = false;
    await expect(contexts.create("a", upload(300 * MIB))).rejects.toEqual(refused("CAPACITY_FULL"));
    await contexts.close();
    expect(left()).toHaveLength(2);
  });

  it("of too many bytes are refused, whatever the tenant may use", async () => {
    const { contexts, quotas, left } = await made(1_000_000);
    quotas.set("a", { build_context_mb_max: null });
    await expect(contexts.create("a", upload(LIMITS.context_bytes_max + 1))).rejects.toEqual(refused("BODY_TOO_LARGE"));
    await contexts.close();
    expect(left()).toEqual([]);
  });

  it("are made in no tenant that is being deleted", async () => {
    const { contexts, store, left } = await made();
    await store.write([{ sql: "UPDATE tenants SET state = 'deleting' WHERE id = 'a'" }]);
    await expect(contexts.create("a", upload(1))).rejects.toEqual(refused("UNAUTHORIZED"));
    await contexts.close();
    expect(left()).toEqual([]);
  });
});
