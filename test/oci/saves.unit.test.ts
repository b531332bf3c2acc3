/** Archives of images over an export that a test plays: their bounds, and when the export is released. */
import { describe, expect, it } from "vitest";
import type { Streamed } from "../../src/base/answer.ts";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { temporaryFiles } from "../../src/base/reservations.ts";
import type { Images } from "../../src/engine/ports.ts";
import { Saves } from "../../src/oci/saves.ts";
import type { TenantImages } from "../../src/oci/service.ts";
import { nodeQuotas } from "../functions/node-quotas.ts";
import { eventually } from "../support/daemon.ts";
import { idOf } from "./tenant-images.ts";

function made() {
  const state = { released: 0, failure: null as AppError | null };
  const temporary = temporaryFiles(nodeQuotas(), 100_000);
  const tenant_images = {
    reserveExport: (tenant_id: string) => temporary.open(tenant_id),
    exportable: async () => ({
      ...{
        reference: "docker.io/library/x:1",
        image_id: idOf("aa"),
        size_bytes: 1,
        os: "linux",
        architecture: "amd64",
      },
    }),
  };
  const port = {
    export: async () => {
      if (state.failure !== null) throw state.failure;
      const release = async () => void state.released++;
      return { config: Buffer.from("{}"), layers: [], release };
    },
  };
  const saves = new Saves({
    tenant_images: tenant_images as unknown as TenantImages,
    images: () => port as unknown as Images,
    clock: systemClock,
  });
  const open = (tenant_id: string) => saves.archive(tenant_id, "x", new AbortController().signal);
  return { state, open };
}

const leave = ({ source }: Streamed) => source[Symbol.asyncIterator]().return?.();

describe("archives of images", () => {
  it("are bounded for each tenant and for all, and give their place back when they end", async () => {
    const { open, state } = made();
    const own = await Promise.all(Array.from({ length: LIMITS.image_saves_per_tenant_max }, () => open("a")));
    await expect(open("a")).rejects.toMatchObject({ code: "CONCURRENCY_LIMIT" });
    const others: Streamed[] = [];
    for (let i = own.length; i < LIMITS.image_saves_max; i++) others.push(await open(`t${i}`));
    await expect(open("b")).rejects.toMatchObject({ code: "CAPACITY_FULL" });
    const [first, second] = own as [Streamed, Streamed];
    await leave(first);
    const pieces: Uint8Array[] = [];
    for await (const piece of second.source) pieces.push(piece);
    expect(Buffer.concat(pieces).length % 512).toBe(0);
    await eventually("both are released", () => state.released === 2);
    for (const one of [await open("a"), await open("a"), ...others]) await leave(one);
    await eventually("all are released", () => state.released === 2 + 2 + others.length);
  });

  it("whose export fails are refused and hold no place", async () => {
    const { open, state } = made();
    state.failure = new AppError("CAPACITY_FULL", "no disk space");
    for (let i = 0; i <= LIMITS.image_saves_per_tenant_max; i++) {
      await expect(open("a")).rejects.toMatchObject({ code: "CAPACITY_FULL", message: "no disk space" });
    }
  });
});
