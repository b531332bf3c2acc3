/** Pulls over a gateway and an image store that a test plays: what is asked of whom, in which order, and what failures leave. */
import { describe, expect, it } from "vitest";
import type { Caller } from "../../src/base/caller.ts";
import { systemClock } from "../../src/base/clock.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { ImageDescription, Images } from "../../src/engine/ports.ts";
import { Events } from "../../src/events/service.ts";
import { ImageArrivals } from "../../src/oci/arrivals.ts";
import { Pulls } from "../../src/oci/pulls.ts";
import type { RegistryGateway } from "../../src/oci/registry/gateway.ts";
import type { PullImage } from "../../src/oci/schema.ts";
import type { Store } from "../../src/store/store.ts";
import { makeOperations } from "../operations/made.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";
import { makeCredentials } from "./registry-credentials.ts";
import { content, idOf, makeImages, TENANTS } from "./tenant-images.ts";

const ALPINE = "docker.io/library/alpine:3.20";
const SECRET = "s3cret-of-the-registry";

function description(mark: string): ImageDescription {
  const { image_id: id, manifest_digest, manifest_json, config_json, size_bytes, layers } = content({ mark });
  const stored = layers.map((layer) => ({ ...layer, diff_id: layer.diff_id ?? null }));
  return { id, manifest_digest, manifest_json, config_json, size_bytes, layers: stored };
}

/** What the gateway and the store do; each step is noted in `seen`. */
interface Play {
  readonly seen: string[];
  open: () => Promise<void>;
  pull: (signal: AbortSignal) => Promise<void>;
  finish: () => Promise<void>;
  failure: AppError | null;
  mark: string;
}

const caller = (tenant_id: string, is_operator = false) => ({ tenant_id, is_operator }) as Caller;
const asking = (reference: string, more: Partial<PullImage> = {}): PullImage => ({ reference, force: false, ...more });

describe("pulls", () => {
  const scratch = scratchStores();

  async function made() {
    const ground = scratch();
    const store: Store = ground.open();
    const { images: tenant_images, state } = await makeImages(store);
    const { credentials: registry_credentials } = await makeCredentials(ground, store);
    const { operations } = await makeOperations(store, systemClock, TENANTS);
    const play: Play = {
      ...{ seen: [], failure: null, mark: "aa" },
      ...{ open: async () => {}, pull: async () => {}, finish: async () => {} },
    };
    const { seen } = play;
    const gateway = {
      open: async ({ credentials, isOperator }: { credentials: unknown; isOperator: boolean }) => {
        seen.push(`open ${JSON.stringify(credentials)} ${isOperator}`);
        await play.open();
        return {
          ...{ pull_reference: "x@sha256:1", registries_conf: "/conf", failed: new AbortController().signal },
          content: { manifest: { digest: "sha256:2", bytes: Buffer.from("{}") }, layers: [] },
          get failure() {
            return play.failure;
          },
          finish: async () => {
            seen.push("finish");
            await play.finish();
          },
          restart: () => void seen.push("restart"),
          close: async () => void seen.push("close"),
        };
      },
    };
    const port = {
      pull: async ({ transport, signal }: { transport: string; signal: AbortSignal }) => {
        seen.push(`pull ${transport}`);
        await play.pull(signal);
        return { id: idOf(play.mark), release: () => void seen.push("release") };
      },
      describe: async () => description(play.mark),
    };
    const images = () => port as unknown as Images;
    const pulls = new Pulls({
      tenant_images,
      images,
      arrivals: new ImageArrivals({ tenant_images, images, log: quietLog }),
      profiles: { names: () => ["prod"], imageId: async () => idOf(play.mark) },
      gateway: gateway as unknown as RegistryGateway,
      registry_credentials,
      policy_file: null,
      operations,
      events: new Events({ store, clock: systemClock, log: quietLog }),
      clock: systemClock,
      log: quietLog,
    });
    const ended = async (tenant_id: string, id: string) => {
      await operations.wait(tenant_id, id, { timeout_ms: 20_000 });
      return operations.get(tenant_id, id);
    };
    const done = async (of: Caller, body: PullImage) =>
      ended(of.tenant_id, (await pulls.accept(of, body)).operation_id);
    return { store, tenant_images, registry_credentials, operations, pulls, play, seen, state, done, ended };
  }

  it("open the gateway, run buildah, prove the layers, write the row, release, in this order", async () => {
    const { done, seen, tenant_images } = await made();
    const record = await done(caller("a"), asking("alpine:3.20"));
    expect(record).toMatchObject({ status: "succeeded", target_resource_id: ALPINE, result: { reference: ALPINE } });
    expect(seen).toEqual(["open null false", "pull docker", "finish", "release", "close"]);
    expect((await tenant_images.get("a", ALPINE)).id).toBe(`sha256:${idOf("aa")}`);
  });

  it("use stored credentials of the tenant unless the request has others, and read them when they run", async () => {
    const { done, seen, registry_credentials, store } = await made();
    await registry_credentials.set("a", "docker.io", { username: "stored", password: SECRET });
    await done(caller("a"), asking(ALPINE));
    await done(caller("b"), asking(ALPINE));
    await done(caller("a"), asking(ALPINE, { registry_username: "given", registry_password: "other" }));
    await done(caller("a"), asking("ghcr.io/x/y:1"));
    const opened = seen.filter((step) => step.startsWith("open"));
    expect(opened).toEqual([
      `open {"username":"stored","password":"${SECRET}"} false`,
      "open null false",
      'open {"username":"given","password":"other"} false',
      "open null false",
    ]);
    const rows = await store.read("SELECT is_attached FROM operations ORDER BY seq");
    // Only what lives in the process alone ends with it.
    expect(rows.map(({ is_attached }) => is_attached)).toEqual([0, 0, 1, 0]);
  });

  it("keep credentials out of the store, and do not outlive the process with them", async () => {
    const all = await made();
    const { pulls, play, store, seen, operations } = all;
    const held = Promise.withResolvers<void>();
    play.pull = () => held.promise;
    const credentials = { registry_username: "ada", registry_password: SECRET };
    const { operation_id } = await pulls.accept(caller("a"), asking("alpine:3.20", credentials));
    await eventually("the pull runs", () => seen.includes("pull docker"));
    expect(seen[0]).toBe(`open {"username":"ada","password":"${SECRET}"} false`);
    const tables = ["operations", "events", "oci_images"];
    const rows = await Promise.all(tables.map((table) => store.read(`SELECT * FROM ${table}`)));
    expect(JSON.stringify(rows)).not.toContain(SECRET);
    const [row] = await store.read("SELECT is_attached FROM operations");
    expect(row?.is_attached).toBe(1);
    held.resolve();
    await all.ended("a", operation_id);
    await operations.drain(1_000);
  });

  it.each([
    ["the gateway finds nothing", { open: "NOT_FOUND" }, "NOT_FOUND"],
    [
      "the gateway refuses a layer, which buildah words otherwise",
      { failure: "IMAGE_INVALID", pull: "INTERNAL" },
      "IMAGE_INVALID",
    ],
    ["buildah refuses the image", { pull: "INTERNAL" }, "IMAGE_INVALID"],
    ["the disk is full", { pull: "CAPACITY_FULL" }, "CAPACITY_FULL"],
    ["the registry does not prove a layer", { finish: "FORBIDDEN" }, "FORBIDDEN"],
  ] as const)("leave no row, nothing held and no gateway if %s", async (_, failing, code) => {
    const { done, play, seen, tenant_images, state } = await made();
    const failed = (name: string | undefined) => async () => {
      if (name !== undefined) throw new AppError(name as "INTERNAL", `127.0.0.1:4711/0123/x ${name}`);
    };
    const { open, pull, finish, failure } = {
      open: undefined,
      pull: undefined,
      finish: undefined,
      failure: undefined,
      ...failing,
    };
    Object.assign(play, { open: failed(open), pull: failed(pull), finish: failed(finish) });
    if (failure !== undefined) play.failure = new AppError(failure, "layer sha256:1 differs from its digest");
    const record = await done(caller("a"), asking("alpine:3.20"));
    expect([record.status, record.reason_code]).toEqual(["failed", code]);
    if (code === "IMAGE_INVALID") expect(record.error).not.toContain("127.0.0.1");
    expect(await tenant_images.has("a", ALPINE)).toBe(false);
    if (open === undefined) expect(seen.at(-1)).toBe("close");
    if (finish !== undefined) expect(seen).toContain("release");
    await eventually("the store frees it", () => state.kept.length > 0);
  });

  it("ask buildah again where the store lost what it relied on, a bounded number of times", async () => {
    const { done, play, seen } = await made();
    const state = { left: 0, is_loss: true };
    play.pull = async () => {
      if (state.left-- > 0) throw new AppError("INTERNAL", "no", { retryable: state.is_loss });
    };
    for (const [is_loss, max] of [
      [true, LIMITS.image_pull_attempts_max],
      [false, LIMITS.image_pull_faults_max],
    ] as const) {
      Object.assign(state, { left: max - 1, is_loss });
      seen.splice(0);
      expect((await done(caller("a"), asking(ALPINE))).status).toBe("succeeded");
      expect(seen.filter((step) => step === "pull docker")).toHaveLength(max);
      expect(seen.filter((step) => step === "restart")).toHaveLength(max - 1);
      Object.assign(state, { left: max, is_loss });
      expect((await done(caller("a"), asking(ALPINE))).reason_code).toBe("IMAGE_INVALID");
    }
  });

  it("of the same by the same tenant are one operation, of another tenant or with other credentials another", async () => {
    const { pulls, play, ended, seen } = await made();
    const held = Promise.withResolvers<void>();
    play.pull = () => held.promise;
    const accept = async (tenant_id: string, body: PullImage) =>
      (await pulls.accept(caller(tenant_id), body)).operation_id;
    const same = await Promise.all(
      ["alpine:3.20", ALPINE, "library/alpine:3.20"].map((text) => accept("a", asking(text))),
    );
    expect(new Set(same).size).toBe(1);
    const others = [
      await accept("b", asking(ALPINE)),
      await accept("a", asking(ALPINE, { registry_username: "x", registry_password: "y" })),
      await accept("a", asking(ALPINE, { platform: "linux/s390x" })),
    ];
    expect(new Set([...same, ...others]).size).toBe(4);
    held.resolve();
    for (const [n, id] of [...same, ...others].entries())
      expect((await ended(n === 3 ? "b" : "a", id)).status).toBe("succeeded");
    const again = await accept("a", asking(ALPINE));
    expect(same).not.toContain(again);
    await ended("a", again);
    expect(seen.filter((step) => step.startsWith("open"))).toHaveLength(5);
  });

  it("that are cancelled stop the store, and end as cancelled", async () => {
    const { pulls, play, seen, operations, tenant_images } = await made();
    play.pull = (signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    const { operation_id } = await pulls.accept(caller("a"), asking(ALPINE));
    await eventually("the pull runs", () => seen.includes("pull docker"));
    expect((await operations.cancel("a", operation_id)).status).toBe("cancelled");
    expect(seen.at(-1)).toBe("close");
    expect(await tenant_images.has("a", ALPINE)).toBe(false);
  });

  it("of the local store are the operator's alone, and need no gateway", async () => {
    const { pulls, done, seen, operations } = await made();
    const local = asking("containers-storage:localhost/x:1");
    await expect(pulls.accept(caller("default"), local)).rejects.toMatchObject({ code: "FORBIDDEN" });
    expect((await operations.list("default", {}, { limit: 10, below: 1e9 })).items).toEqual([]);
    expect((await done(caller("default", true), local)).status).toBe("succeeded");
    expect(seen).toEqual(["pull containers-storage", "release"]);
  });

  it("say how a profile is named where its name alone was asked of docker.io, and keep the cause", async () => {
    const { done, play } = await made();
    play.open = async () => {
      throw new AppError("NOT_FOUND", "no such image", { reason_code: "PLATFORM_NOT_FOUND", hint: "ask for another" });
    };
    const own = " (for the profile 'prod': profiles.hearth.internal/prod:latest)";
    for (const [reference, told] of [
      ["prod", own],
      ["docker.io/prod:stable", own],
      ["docker.io/library/prod@sha256:".padEnd(94, "0"), own],
      ["produce", ""],
      ["team/prod", ""],
      ["ghcr.io/prod", ""],
    ] as const) {
      const { error, reason_code } = await done(caller("a"), asking(reference));
      expect([reference, error, reason_code]).toEqual([reference, `no such image${told}`, "PLATFORM_NOT_FOUND"]);
    }
  });

  it("refuse before they begin what can be known", async () => {
    const { pulls, seen } = await made();
    for (const body of [
      asking("dir:/etc"),
      asking("UPPER/case"),
      asking("containers-storage:dir:/etc"),
      asking(ALPINE, { platform: "windows/amd64" }),
      asking(ALPINE, { platform: "linux" }),
    ]) {
      await expect(pulls.accept(caller("default", true), body)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    }
    expect(seen).toEqual([]);
  });
});
