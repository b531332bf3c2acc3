/** Files and archives that come as base64 in JSON, through the real API: read as a stream, written only when whole. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const MIB = 1024 * 1024;
const daemon = new Daemon();
const containers = new ContainerUser(daemon);

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await daemon.call("POST", "/api/volumes", { name: "data" });
});
afterAll(() => daemon.dispose());

const post = (path: string, body: unknown) => daemon.call("POST", path, body);
const read = (path: string) => fetch(`${daemon.url}/api/volumes/data/files/${path}`, { headers: { "x-api-key": KEY } });
const names = async () =>
  (await daemon.call("GET", "/api/volumes/data/ls")).body.files.map(({ name }: { name: string }) => name);

/** Open spool files of the daemon: they have no name, and are listed as deleted. */
const openUploads = () =>
  readdirSync(`/proc/${daemon.pid}/fd`).filter((fd) => {
    try {
      return readlinkSync(`/proc/${daemon.pid}/fd/${fd}`).includes("/uploads/");
    } catch {
      return false;
    }
  }).length;
const nothingKept = () =>
  eventually("no upload is kept", () => openUploads() === 0 && readdirSync(`${daemon.data_dir}/uploads`).length === 0);

const residentBytes = () =>
  Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${daemon.pid}/status`, "utf8"))?.[1]) * 1024;

/** Sends pieces of a body as fast as they are taken; `between` is called after each. */
function send(path: string, pieces: Iterable<string>, between: () => void = () => {}) {
  const sent = request(`${daemon.url}${path}`, { method: "POST", headers: { "x-api-key": KEY } });
  const answered = new Promise<{ status: number; body: Record<string, unknown> }>((resolve, reject) => {
    sent.once("error", reject).once("response", async (response) => {
      const text = (await response.toArray()).join("");
      resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) });
    });
  });
  const writing = (async () => {
    for (const piece of pieces) {
      if (!sent.write(piece)) await new Promise<void>((resolve) => sent.once("drain", resolve));
      between();
    }
  })();
  return { sent, writing, answered };
}

describe("a file in base64", () => {
  it("of 150 MiB is written whole, and the daemon grows by less than 64 MiB", { timeout: 120_000 }, async () => {
    const piece = Buffer.from(Array.from({ length: 3 * 64 * 1024 }, (_, i) => (i * 31) % 251));
    const text = piece.toString("base64");
    const count = Math.floor((150 * MIB) / text.length);
    const peak = { bytes: 0 };
    const upload = async (pieces: number) => {
      function* body() {
        yield '{"content":"';
        for (let i = 0; i < pieces; i++) yield text;
        yield '","mode":600,"path":"large"}';
      }
      const { sent, writing, answered } = send("/api/volumes/data/files", body(), () => {
        peak.bytes = Math.max(peak.bytes, residentBytes());
      });
      await writing;
      sent.end();
      return answered;
    };
    // Warm: what the code itself takes, and what the heap keeps for young objects, is no part of it.
    await upload(Math.floor(count / 4));
    const before = residentBytes();
    const answered = upload(count);
    expect(await answered).toMatchObject({ status: 200, body: { success: true, path: "/large" } });
    peak.bytes = Math.max(peak.bytes, residentBytes());
    expect((peak.bytes - before) / MIB).toBeLessThan(64);
    const wanted = createHash("sha256");
    for (let i = 0; i < count; i++) wanted.update(piece);
    const found = createHash("sha256");
    const response = await read("large");
    expect(response.headers.get("x-file-mode")).toBe("600");
    for await (const bytes of response.body as AsyncIterable<Uint8Array>) found.update(bytes);
    expect(found.digest("hex")).toBe(wanted.digest("hex"));
    await nothingKept();
  });

  it("takes its fields in any order, and refuses unknown ones, wrong ones and what is no base64, with nothing written", async () => {
    const content = Buffer.from("hello\n").toString("base64");
    const large = "A".repeat(4 * LIMITS.spool_memory_bytes);
    expect((await post("/api/volumes/data/files", { content, path: "notes/a" })).status).toBe(200);
    expect(await (await read("notes/a")).text()).toBe("hello\n");
    const before = await names();
    for (const [body, status] of [
      [{ path: "b", content, contnet: "x" }, 422],
      [{ content: large, path: "b", mod: 644 }, 422],
      [{ content: large }, 422],
      [{ content: large, path: "../b" }, 400],
      [{ path: "b" }, 422],
      [{ path: "b", content: 5 }, 422],
      [{ path: "b", content: null }, 422],
      [{ path: "b", content: `${large}=` }, 400],
      [{ path: "b", content: `${large}-_==` }, 400],
      ['{"path":"b","content":"AAAA","content":"AAAA"}', 400],
      [`{"path":"b","content":"${large}`, 400],
    ] as const) {
      const answer = await post("/api/volumes/data/files", body);
      expect([JSON.stringify(body).slice(0, 60), answer.status]).toEqual([JSON.stringify(body).slice(0, 60), status]);
    }
    expect(await names()).toEqual(before);
    await nothingKept();
  });

  it("above 192 MiB is refused before it is read, and leaves nothing when its client disconnects", async () => {
    const { sent, answered } = send("/api/volumes/data/files", []);
    sent.setHeader("content-length", LIMITS.base64_body_bytes_max + 1);
    sent.flushHeaders();
    expect(await answered).toMatchObject({ status: 413, body: { error_code: "BODY_TOO_LARGE" } });
    sent.destroy();
    const gone = send("/api/volumes/data/files", [`{"path":"gone","content":"${"A".repeat(2 * MIB)}`]);
    gone.answered.catch(() => {});
    await gone.writing;
    await eventually("it is in a file", () => openUploads() === 1);
    gone.sent.destroy();
    await nothingKept();
    expect(await names()).not.toContain("gone");
  });

  it("is refused with 429 while its tenant sends as many large ones as it may; small ones are accepted", async () => {
    const begun = Array.from({ length: LIMITS.spools_per_tenant_max }, (_, i) =>
      send("/api/volumes/data/files", [`{"path":"slow${i}","content":"${"A".repeat(2 * MIB)}`]),
    );
    await Promise.all(begun.map(({ writing }) => writing));
    await eventually("all are in files", () => openUploads() === LIMITS.spools_per_tenant_max);
    const large = { path: "more", content: "A".repeat(2 * MIB) };
    expect(await post("/api/volumes/data/files", large)).toMatchObject({
      status: 429,
      body: { error_code: "CONCURRENCY_LIMIT" },
    });
    expect((await post("/api/volumes/data/files", { path: "small", content: "AAAA" })).status).toBe(200);
    for (const { sent } of begun) sent.end('"}');
    for (const { answered } of begun) expect((await answered).status).toBe(200);
    expect((await post("/api/volumes/data/files", large)).status).toBe(200);
    await nothingKept();
  });
});

describe("an archive in base64", () => {
  const archive = (script: string) =>
    execFileSync("sh", ["-c", `cd $(mktemp -d) && ${script} && tar cz . && rm -rf "$PWD"`], {
      maxBuffer: 64 * MIB,
    }).toString("base64");

  it("larger than 8 MiB is unpacked into a container and a volume, with its fields behind it", async () => {
    const { container_id } = await containers.create({ name: "box", strict: true });
    const content = archive(
      "mkdir a && cd a && head -c 20000000 /dev/urandom > large && sha256sum large > sum && cd ..",
    );
    expect(content.length).toBeGreaterThan(LIMITS.body_bytes_max);
    const headers = { "x-api-key": KEY, "content-type": "application/json" };
    for (const path of [`/api/containers/${container_id}/archive`, "/api/volumes/data/archive"]) {
      const answer = await fetch(`${daemon.url}${path}?execution=sync`, {
        method: "POST",
        headers,
        body: JSON.stringify({ content, path: "/workspace" }),
      });
      expect([path, answer.status]).toEqual([path, 200]);
    }
    expect(await containers.shell(container_id, "cd /workspace/a && sha256sum -c sum")).toBe("large: OK\n");
    expect((await read("workspace/a/sum")).status).toBe(200);
    await containers.delete(container_id);
    await nothingKept();
  });

  it("that is malformed at its end unpacks nothing", async () => {
    const content = `${archive("head -c 1000000 /dev/urandom > part").replace(/=*$/, "")}!`;
    const answer = await fetch(`${daemon.url}/api/volumes/data/archive`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/json" },
      body: JSON.stringify({ path: "unpacked", content }),
    });
    expect([answer.status, ((await answer.json()) as { error_code: string }).error_code]).toEqual([
      400,
      "INVALID_ARGUMENT",
    ]);
    expect(await names()).not.toContain("unpacked");
    await nothingKept();
  });
});
