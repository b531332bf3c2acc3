/** Archives of code through the API: hostile ones, broken uploads, and uploads at the same time. */
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { archive, CodeUser, NODEJS } from "../support/code.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const user = new CodeUser(daemon);
const made = { id: "", path: "" };
const FILES = { "index.mjs": "export const handler = () => 'first';\n" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" });
  made.id = await user.deploy("uploads", FILES, NODEJS);
  made.path = `/api/functions/${made.id}/code`;
});
afterAll(() => daemon.dispose());

/** Returns a tar of one entry, as hostile as asked. */
function entry(name: string, { type = "0", link = "", size = 0, mode = "0000644" } = {}): Buffer<ArrayBuffer> {
  const head = Buffer.alloc(512);
  head.write(name, 0);
  head.write(`${mode}\0`, 100);
  head.write("0000000\x000000000\0", 108);
  head.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  head.write("00000000000\0        ", 136);
  head.write(type, 156);
  head.write(link, 157);
  head.write("ustar\x0000", 257);
  const sum = head.reduce((total, byte) => total + byte, 0);
  head.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return Buffer.concat([head, Buffer.alloc(1024)]);
}

/** Sends a request whose body `write` controls; resolves to its answer, or to null if the connection ends before. */
function raw(headers: Readonly<Record<string, string>>, write: (outgoing: ClientRequest) => void) {
  const begun: { outgoing: ClientRequest | null } = { outgoing: null };
  const answer = new Promise<{ status: number; error_code: string } | null>((resolve) => {
    const outgoing = request(daemon.url + made.path, { method: "PUT", headers: { "x-api-key": KEY, ...headers } });
    begun.outgoing = outgoing;
    outgoing.on("error", () => resolve(null));
    outgoing.on("response", async (response: IncomingMessage) => {
      const body = JSON.parse((await response.toArray()).join(""));
      resolve({ status: response.statusCode ?? 0, error_code: body.error_code });
    });
    write(outgoing);
  });
  return answer;
}

const isUnchanged = async () => {
  const { body } = await user.call("GET", `/api/functions/${made.id}`);
  expect([body.version, (await user.invoke("uploads")).result]).toEqual([1, "first"]);
};

describe("an archive is refused, and changes nothing", () => {
  it.each([
    ["a name that leads out", entry("../out")],
    ["an absolute name", entry("/etc/passwd")],
    ["a link that leads out", entry("link", { type: "2", link: "../../etc/passwd" })],
    ["an absolute link", entry("link", { type: "2", link: "/etc/passwd" })],
    ["a hard link out of the tree", entry("link", { type: "1", link: "../../etc/passwd" })],
    ["a device", entry("null", { type: "3" })],
    ["a pipe", entry("pipe", { type: "6" })],
    ["a size beyond its end", entry("large", { size: 10 * 2 ** 30 - 1 })],
    ["nothing", Buffer.alloc(0)],
    ["no archive", Buffer.from("not an archive at all".repeat(100))],
    ["JSON", Buffer.from('{"code": "x"}')],
    ["half of a gzip", gzipSync(entry("index.mjs")).subarray(0, 60)],
  ])("%s", async (_, bytes) => {
    for (const type of ["application/gzip", "application/x-tar", "text/html"]) {
      const { status, body } = await user.send("PUT", made.path, new Uint8Array(bytes), type);
      expect([type, status, body.error_code]).toEqual([type, 400, "INVALID_ARGUMENT"]);
    }
    await isUnchanged();
  });
});

describe("an upload", () => {
  it("that breaks off in the middle changes nothing, and gives its place back", async () => {
    const bytes = archive({ "index.mjs": "export const handler = () => 'cut';\n" });
    for (let n = 0; n < 6; n++) {
      const headers = { "content-length": String(bytes.length) };
      const answer = await raw(headers, (outgoing) => {
        outgoing.write(bytes.subarray(0, 64), () => setImmediate(() => outgoing.destroy()));
      });
      expect(answer).toBeNull();
    }
    await eventually(
      "there is a place",
      async () => (await user.send("PUT", made.path, archive(FILES))).status === 200,
    );
    await isUnchanged();
  });

  it("is invited by 100 Continue only if it can be taken", async () => {
    const expecting = { expect: "100-continue", "content-length": "1000000" };
    const invited = { count: 0 };
    const refused = await raw({ ...expecting, "x-api-key": "wrong" }, (outgoing) => {
      outgoing.on("continue", () => (invited.count += 1));
      outgoing.flushHeaders();
    });
    expect([refused?.status, invited.count]).toEqual([401, 0]);
    const large = { ...expecting, "content-length": String(300 * 2 ** 20) };
    const tooLarge = await raw(large, (outgoing) => {
      outgoing.on("continue", () => (invited.count += 1));
      outgoing.flushHeaders();
    });
    expect([tooLarge?.status, tooLarge?.error_code, invited.count]).toEqual([413, "BODY_TOO_LARGE", 0]);
    const bytes = archive(FILES);
    const taken = await raw({ expect: "100-continue", "content-length": String(bytes.length) }, (outgoing) => {
      outgoing.on("continue", () => {
        invited.count += 1;
        outgoing.end(bytes);
      });
      outgoing.flushHeaders();
    });
    expect([taken?.status, invited.count]).toEqual([200, 1]);
    await isUnchanged();
  });

  it("beside another one of the same function makes a version each, and the last one serves", async () => {
    const other = (n: number) => ({ "index.mjs": `export const handler = () => 'version ${n}';\n` });
    const answers = await Promise.all([1, 2].map((n) => user.send("PUT", made.path, archive(other(n)))));
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    const last = answers.find(({ body }) => body.version === 3);
    expect(answers.map(({ body }) => body.version).sort()).toEqual([2, 3]);
    const { body } = await user.call("GET", `/api/functions/${made.id}`);
    expect(body).toMatchObject({ version: 3, code_sha256: last?.body.code_sha256 });
    expect((await user.invoke("uploads")).result).toBe(`version ${answers.indexOf(last as never) + 1}`);
  });
});
