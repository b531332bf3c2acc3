/** The operator's key and the key of tokens, replaced while a real daemon runs, is killed and starts again. */
import { readFileSync, statSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { Daemon, eventually } from "../support/daemon.ts";

const daemon = new Daemon();
/** The daemon keeps the key in its file. */
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_BOOTSTRAP_KEY: "" };
const file = `${daemon.data_dir}/key`;

const keyInFile = () => readFileSync(file, "utf8").trim();
const call = (key: string, method: string, path: string, body?: unknown) =>
  daemon.call(method, path, body, { "x-api-key": key });
const status = async (key: string) => (await call(key, "GET", "/api/tenants")).status;

beforeAll(() => daemon.start(SETTINGS));
afterAll(() => daemon.dispose());

describe("the operator's key", () => {
  it("is replaced in the store and in its file; the previous key is good for the overlap only", async () => {
    const first = keyInFile();
    const { body } = await call(first, "POST", "/api/operator/key/rotate", { overlap_seconds: 600 });
    expect(body.key).not.toBe(first);
    expect(keyInFile()).toBe(body.key);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect([await status(first), await status(body.key)]).toEqual([200, 200]);
    const commands = new Commands({ HEARTH_URL: daemon.url, HEARTH_DATA_DIR: daemon.data_dir });
    try {
      const rotated = await commands.run(["keys", "rotate-operator"]);
      expect(rotated).toMatchObject({ code: 0, out: `${keyInFile()}\n` });
      expect([await status(first), await status(body.key), await status(keyInFile())]).toEqual([401, 401, 200]);
    } finally {
      commands.dispose();
    }
    const { body: weak } = await call(keyInFile(), "POST", "/api/api-keys", { name: "admin" });
    expect((await call(weak.key, "POST", "/api/operator/key/rotate", {})).status).toBe(403);
    expect((await call(weak.key, "POST", "/api/operator/token-key/rotate", {})).status).toBe(403);
  });

  it("is the one in the file after a kill in the middle of its rotation", async () => {
    const before = keyInFile();
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "tenants.operator.kept" });
    await expect(call(before, "POST", "/api/operator/key/rotate", {})).rejects.toThrow();
    await eventually("the daemon is dead", () => !daemon.isAlive);
    const after = keyInFile();
    expect(after).not.toBe(before);
    await daemon.start(SETTINGS);
    expect([await status(before), await status(after)]).toEqual([401, 200]);
  });

  it("is not replaced if a setting gives it; the refusal says so", async () => {
    await daemon.stop();
    await daemon.start({ HEARTH_CELLS: "0" });
    const refused = await daemon.call("POST", "/api/operator/key/rotate", {});
    expect([refused.status, refused.body.error_code]).toEqual([409, "WRONG_STATE"]);
    expect((await daemon.call("GET", "/api/tenants")).status).toBe(200);
    await daemon.stop();
    await daemon.start(SETTINGS);
  });
});

describe("the key of access tokens", () => {
  it("is replaced while tokens of the one before stay good, across a kill of the daemon", async () => {
    const key = keyInFile();
    const token = async () => (await call(key, "POST", "/api/auth/token", {})).body.access_token as string;
    const good = async (text: string) =>
      (await fetch(`${daemon.url}/api/functions`, { headers: { authorization: `Bearer ${text}` } })).status;
    const old = await token();
    expect((await call(key, "POST", "/api/operator/token-key/rotate", {})).status).toBe(200);
    const newer = await token();
    expect([await good(old), await good(newer)]).toEqual([200, 200]);
    await daemon.stop("SIGKILL");
    expect(statSync(`${daemon.data_dir}/token-secret`).mode & 0o777).toBe(0o600);
    await daemon.start(SETTINGS);
    expect([await good(old), await good(newer)]).toEqual([200, 200]);
    expect((await call(key, "POST", "/api/operator/token-key/rotate", { overlap_seconds: 0 })).status).toBe(200);
    expect([await good(old), await good(newer), await good(await token())]).toEqual([401, 401, 200]);
  });
});
