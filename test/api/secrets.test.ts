/**
 * Secrets through the real API and the `hearth` command: what a client sees of them, and that nothing of a value is
 * anywhere on the disk, in the log or in an answer, whatever is done to it and wherever the daemon is killed.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { bare, operatorOf } from "../support/command.ts";
import { type Answer, Daemon, eventually, KEY } from "../support/daemon.ts";
import { StoreRows } from "../support/rows.ts";

const SETTINGS = { HEARTH_CELLS: "0", HEARTH_AREA_MB: "1024", HEARTH_LOG_LEVEL: "debug" };
const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, out, answer } = operator;
const file = `${daemon.data_dir}/secrets-key`;

beforeAll(() => daemon.start(SETTINGS));
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

const set = (name: string, body: unknown, headers: Record<string, string> = {}) =>
  daemon.call("PUT", `/api/secrets/${encodeURIComponent(name)}`, body, headers);
const refusal = ({ status, body }: Answer) => [status, body.error_code];
const keyLines = () => readFileSync(file, "utf8").trim().split("\n");

async function makeTenant(name: string, limits: object = {}): Promise<Record<string, string>> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name, limits })).body;
  const { key } = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
  return { "x-api-key": key, tenant_id };
}

/** Forms in which a value could be kept; the digests are those of an Idempotency-Key and of the bare value. */
function formsOf(value: string, request = ""): string[] {
  const bytes = Buffer.from(value);
  const hashes = [value, request].map((text) => createHash("sha256").update(text).digest());
  return [
    value,
    bytes.toString("base64").replace(/=+$/, ""),
    bytes.toString("hex"),
    ...hashes.flatMap((hash) => [hash.toString("hex"), hash.toString("latin1"), hash.toString("base64")]),
  ];
}

/** Files of the data directory that hold one of the texts. The storage pool is not the daemon's to write values into. */
function filesWith(texts: readonly string[]): string[] {
  const files = readdirSync(daemon.data_dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter((path) => !/\/(area|area\.btrfs|hearth\.db-reserve|bin)(\/|$)/.test(path.slice(daemon.data_dir.length)));
  expect(files).toEqual(
    expect.arrayContaining([`${daemon.data_dir}/hearth.db`, `${daemon.data_dir}/hearth.db-wal`, file]),
  );
  return files.filter((path) => {
    const content = readFileSync(path, "latin1");
    return texts.some((text) => content.includes(text));
  });
}

describe("a secret", () => {
  it("is set as text or as bytes, listed, replaced, deleted, and its value is in no answer", async () => {
    const made = await set("API_TOKEN", { value: "plain-value" });
    expect([made.status, made.body]).toEqual([
      201,
      { name: "API_TOKEN", size_bytes: 11, created_at: made.body.created_at, updated_at: made.body.updated_at },
    ]);
    const again = await set("API_TOKEN", { value_base64: Buffer.from([0, 255, 10]).toString("base64") });
    expect([again.status, again.body.size_bytes]).toEqual([200, 3]);
    await set("tls.key-2", { value: "ü".repeat(LIMITS.secret_bytes_max / 2) });
    const list = await daemon.call("GET", "/api/secrets");
    const names = list.body.secrets.map(({ name, size_bytes }: { name: string; size_bytes: number }) => [
      name,
      size_bytes,
    ]);
    expect(names).toEqual([
      ["tls.key-2", 65_536],
      ["API_TOKEN", 3],
    ]);
    const page = await daemon.call("GET", "/api/secrets?limit=1");
    const rest = await daemon.call("GET", `/api/secrets?limit=1&cursor=${page.body.next_cursor}`);
    expect([rest.body.secrets[0].name, rest.body.next_cursor]).toEqual(["API_TOKEN", null]);
    expect((await daemon.call("GET", "/api/secrets/API_TOKEN")).body).toEqual(again.body);
    for (const name of ["API_TOKEN", "tls.key-2"]) {
      expect((await daemon.call("DELETE", `/api/secrets/${name}`)).status).toBe(200);
    }
    expect(refusal(await daemon.call("GET", "/api/secrets/API_TOKEN"))).toEqual([404, "NOT_FOUND"]);
    expect(refusal(await daemon.call("DELETE", "/api/secrets/API_TOKEN"))).toEqual([404, "NOT_FOUND"]);
  });

  it.each([
    ["a slash", "a/b"],
    ["a path out of it", "../secrets-key"],
    ["a leading dot", ".env"],
    ["a NUL", "A\0B"],
    ["a line break", "A\nB"],
    ["a line break at its end", "A\n"],
    ["a space", "A B"],
    ["an equals sign", "A=B"],
    ["a look-alike letter", "\u0410PI"],
    ["a full-width letter", "\uff21PI"],
    ["a combining mark", "A\u0301"],
    ["an invisible character", "A\u200bB"],
    ["a leading digit", "1A"],
    ["a leading dash", "-A"],
    ["65 characters", "A".repeat(65)],
  ])("is refused with %s in its name, and none is found under it", async (_, name) => {
    const refused = await set(name, { value: "x" });
    expect(refusal(refused)).toEqual([400, "INVALID_ARGUMENT"]);
    const isPath = name.startsWith("../");
    expect(refused.body.error).toContain(isPath ? "dot segment" : "name: must be 1 to 64 ASCII letters");
    for (const method of ["GET", "DELETE"]) {
      const answered = await daemon.call(method, `/api/secrets/${encodeURIComponent(name)}`);
      expect(refusal(answered)).toEqual(isPath ? [400, "INVALID_ARGUMENT"] : [404, "NOT_FOUND"]);
    }
    expect((await daemon.call("GET", "/api/secrets")).body.secrets).toEqual([]);
  });

  it("is refused without a value, with two, with one that is empty, too large or no base64; the refusal quotes none", async () => {
    const large = "quoted-value".repeat(6_000);
    const wrong: readonly (readonly [unknown, number, string])[] = [
      [{}, 422, "value: expected string, received nothing"],
      [{ value: null }, 422, "value: expected string, received nothing"],
      [{ value: 12345678 }, 422, "value: expected string, received number"],
      [{ value: ["quoted-value"] }, 422, "value: expected string, received array"],
      ["quoted-value", 400, "invalid JSON in the body"],
      [JSON.stringify("quoted-value"), 422, "the body: expected object, received string"],
      [{ value: "quoted-value", value_base64: "eA==" }, 400, "value_base64: must not be sent beside value"],
      [{ value: "quoted-value", secret: true }, 422, "unknown field 'secret'"],
      [{ value: "quoted-value", idempotency_key: "k" }, 422, "unknown field 'idempotency_key'"],
      [{ value: "" }, 400, "value: expected at least 1 characters, received string"],
      [{ value: "quoted-value\0" }, 400, "value: must not contain a NUL character, received string"],
      [{ value: large }, 400, "value: must not be larger than 65536 bytes, received string"],
      [{ value_base64: "quoted-value" }, 400, "value_base64: must be base64, received string"],
      [{ value_base64: "====" }, 400, "value_base64: must be base64, received string"],
      [
        { value_base64: Buffer.alloc(65_537).toString("base64") },
        400,
        "value: must have 1 to 65536 bytes, received 65537",
      ],
      [
        { value_base64: Buffer.alloc(70_000).toString("base64") },
        400,
        "value_base64: expected at most 87384 characters",
      ],
    ];
    for (const [body, status, text] of wrong) {
      const refused = await set("WRONG", body);
      expect([refused.status, refused.body.error]).toEqual([status, expect.stringContaining(text)]);
      expect(JSON.stringify(refused.body)).not.toMatch(/quoted-value|12345678/);
    }
    expect((await daemon.call("GET", "/api/secrets")).body.secrets).toEqual([]);
  });

  it("counts for its tenant, which sees the usage; it is deleted with the tenant, and only with force", async () => {
    const a = await makeTenant("limited", { secrets_max: 2 });
    for (const name of ["A", "B"]) expect((await set(name, { value: "x" }, a)).status).toBe(201);
    const refused = await set("C", { value: "x" }, a);
    expect(refusal(refused)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect((await set("B", { value: "y" }, a)).status).toBe(200);
    const { usage, limits } = (await daemon.call("GET", "/api/tenant", undefined, a)).body;
    expect([usage.secrets, limits.secrets_max]).toEqual([2, 2]);
    expect(refusal(await daemon.call("DELETE", `/api/tenants/${a.tenant_id}`))).toEqual([409, "NOT_EMPTY"]);
    expect((await daemon.call("DELETE", `/api/tenants/${a.tenant_id}?force=true`)).status).toBe(200);
    const rows = new StoreRows(daemon);
    expect(rows.read("SELECT name FROM secrets WHERE tenant_id = ?", [a.tenant_id ?? ""])).toEqual([]);
    rows.close();
  });

  it("needs the scope read to be listed and write to be changed", async () => {
    const keyOf = async (...scopes: string[]) => ({
      "x-api-key": (await daemon.call("POST", "/api/api-keys", { name: "k", scopes })).body.key as string,
    });
    const [reader, writer] = [await keyOf("read"), await keyOf("write")];
    expect((await set("SCOPED", { value: "x" }, writer)).status).toBe(201);
    expect((await set("SCOPED", { value: "x" }, reader)).status).toBe(403);
    expect((await daemon.call("GET", "/api/secrets", undefined, writer)).status).toBe(403);
    expect((await daemon.call("GET", "/api/secrets/SCOPED", undefined, reader)).status).toBe(200);
    expect((await daemon.call("DELETE", "/api/secrets/SCOPED", undefined, reader)).status).toBe(403);
    expect((await daemon.call("POST", "/api/operator/secrets-key/rotate", {}, writer)).status).toBe(403);
    expect((await daemon.call("DELETE", "/api/secrets/SCOPED", undefined, writer)).status).toBe(200);
  });
});

describe("a value", () => {
  it("is nowhere: not on the disk, in the log, in events or audit, after set, replace, refusal, rotation and deletion", async () => {
    const values = ["hunter2-7fK", "correct-horse-9Qz", "refused-value-4Lm", "deleted-value-8Rt"];
    const [first = "", second = "", third = "", fourth = ""] = values;
    const body = JSON.stringify({ value: first });
    const key = { "idempotency-key": "same" };
    await set("LEAKS", body, key);
    await set("LEAKS", { value: second }, key);
    expect((await set("not a name", { value: third }, key)).status).toBe(400);
    expect((await set("LEAKS", { value: third, value_base64: "eA==" })).status).toBe(400);
    expect((await set("LEAKS", `{"value": "${third}"`)).status).toBe(400);
    expect((await set("LEAKS", { value: third }, { "x-api-key": "wrong" })).status).toBe(401);
    const limited = await makeTenant("leaks", { secrets_max: 0 });
    expect((await set("LEAKS", { value: third }, limited)).status).toBe(403);
    await set("DELETED", { value: fourth });
    await daemon.call("DELETE", "/api/secrets/DELETED");
    await daemon.call("POST", "/api/operator/secrets-key/rotate");
    await eventually("the rotation is over", () => keyLines().length === 1);
    const { body: audit } = await daemon.call("GET", "/api/audit?limit=100");
    const entries = audit.entries.filter(({ target }: { target: string | null }) => target === "LEAKS");
    expect(entries.map(({ operation }: { operation: string }) => operation)).toContain("setSecret");
    const events = await fetch(`${daemon.url}/api/events?last_event_id=0&name=secret_update`, {
      headers: { "x-api-key": KEY },
    });
    let seen = "";
    for await (const piece of events.body ?? []) {
      seen += Buffer.from(piece).toString();
      if (seen.includes('"event_type":"removed","at"') && seen.includes("DELETED")) break;
    }
    expect(seen).toContain('"secret":"LEAKS"');
    const all = values.flatMap((value) => formsOf(value, `PUT /api/secrets/LEAKS\n${JSON.stringify({ value })}`));
    expect(all.filter((text) => `${daemon.output}${seen}${JSON.stringify(audit)}`.includes(text))).toEqual([]);
    expect(filesWith(all)).toEqual([]);
    expect(filesWith(["LEAKS"])).not.toEqual([]);
    const rows = new StoreRows(daemon);
    expect(rows.read("SELECT route FROM idempotency_keys")).toEqual([]);
    rows.close();
    await daemon.stop();
    expect(daemon.output).not.toContain(second);
    await daemon.start(SETTINGS);
    expect(filesWith(all)).toEqual([]);
    expect((await daemon.call("DELETE", "/api/secrets/LEAKS")).status).toBe(200);
  });

  it("is encrypted by a key in a file that only its owner reads", () => {
    expect(keyLines()).toEqual([expect.stringMatching(/^[0-9a-f]{16} [0-9a-f]{64}$/)]);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const [, hex = ""] = keyLines()[0]?.split(" ") ?? [];
    expect(filesWith([hex, Buffer.from(hex, "hex").toString("latin1")])).toEqual([file]);
  });
});

describe("the key of secrets", () => {
  const status = async () => (await daemon.call("GET", "/api/operator/secrets-key")).body;
  const COUNT = 3 * LIMITS.secrets_batch_rows;

  it.each([
    ["after the new key is kept", "secrets.rotate.kept"],
    ["after the first batch", "secrets.rotate.moved"],
    ["before the earlier key is removed", "secrets.rotate.emptied"],
  ])("is replaced also if the daemon is killed %s", async (_, failpoint) => {
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: failpoint });
    for (let i = 0; i < COUNT; i++) await set(`S${i}`, { value: `value ${i}` });
    const before = await status();
    // The kill may come before or after the answer.
    await daemon.call("POST", "/api/operator/secrets-key/rotate").catch(() => {});
    await eventually("the daemon is dead", () => !daemon.isAlive);
    expect(keyLines()).toHaveLength(2);
    await daemon.start(SETTINGS);
    await eventually("the earlier key is removed", () => keyLines().length === 1);
    const after = await status();
    expect(after).toEqual({ key_id: keyLines()[0]?.split(" ")[0], earlier_key_ids: [], pending_count: 0 });
    expect(after.key_id).not.toBe(before.key_id);
    const rows = new StoreRows(daemon);
    expect(rows.read("SELECT DISTINCT key_id FROM secrets")).toEqual([{ key_id: after.key_id }]);
    rows.close();
    expect((await daemon.call("GET", "/api/secrets")).body.secrets).toHaveLength(COUNT);
  });

  it("stops the start with a clear message if its file is missing or damaged, and is whole after its return", async () => {
    await daemon.stop();
    const whole = readFileSync(file, "utf8");
    for (const [text, said] of [
      ["", `the file ${file} is missing or empty, and the store holds secrets`],
      [whole.slice(0, 40), `the file ${file} is damaged`],
      [whole.replace(/.(?=\n)/, (last) => (last === "0" ? "1" : "0")), `the file ${file} is damaged`],
    ] as const) {
      writeFileSync(file, text);
      daemon.output = "";
      const child = await daemon.launch(SETTINGS);
      await eventually("it gives up", () => child.exitCode !== null);
      expect([child.exitCode, daemon.output]).toEqual([1, expect.stringContaining(said)]);
      expect(daemon.output).toContain("restore the file from a backup");
      expect(daemon.output).not.toContain(whole.trim().split(" ")[1]);
      expect(readFileSync(file, "utf8")).toBe(text);
    }
    writeFileSync(file, whole);
    await daemon.start(SETTINGS);
    expect((await daemon.call("GET", "/api/secrets")).body.secrets).toHaveLength(COUNT);
    for (let i = 0; i < COUNT; i++) await daemon.call("DELETE", `/api/secrets/S${i}`);
  });
});

describe("hearth secrets", () => {
  it("sets from standard input without its line break, and from a file byte for byte", async () => {
    const stdin = (value: string | Buffer, ...args: string[]) =>
      shell().run(["secrets", "set", ...args], { stdin: value });
    expect(await stdin("from stdin\n", "TOKEN")).toEqual({ code: 0, out: "TOKEN is set (10 B)\n", err: "" });
    expect((await stdin("two\nlines\r\n", "TOKEN")).out).toBe("TOKEN is set (9 B)\n");
    expect((await stdin("kept\n", "TOKEN", "--file", "-")).out).toBe("TOKEN is set (5 B)\n");
    writeFileSync(`${shell().home}/key.pem`, Buffer.from([0, 1, 255, 10]));
    expect(await out("secrets", "set", "tls.pem", "--file", "key.pem")).toBe("tls.pem is set (4 B)\n");
    expect(await out("secrets", "list")).toMatch(/^NAME +SIZE +MADE +CHANGED\ntls\.pem +4 B .*\nTOKEN +5 B /);
    expect((await answer("secrets", "ls")).secrets).toHaveLength(2);
    expect(await stdin("", "TOKEN")).toMatchObject({ code: 2, err: expect.stringContaining("the value is empty") });
    expect(await stdin("x".repeat(65_539), "TOKEN")).toMatchObject({
      code: 2,
      err: expect.stringContaining("standard input is too large"),
    });
  });

  it("takes no value from its arguments, and sends none that stands there by mistake", async () => {
    for (const args of [["TOKEN", "argued-value"], ["TOKEN=argued-value"]]) {
      const ended = await hearth("secrets", "set", ...args);
      expect([ended.code, ended.out]).toEqual([2, ""]);
      expect(ended.err).not.toContain("argued-value");
    }
    expect(filesWith(["argued-value"])).toEqual([]);
  });

  it("asks on a terminal and does not echo; several pasted lines are refused", async () => {
    const typed = shell().terminal("hearth secrets set TYPED");
    await typed.shows(/value of TYPED: /);
    typed.child.stdin.write(" typed value\r");
    const ended = await typed.ended;
    expect([ended.code, bare(ended.out)]).toEqual([0, expect.stringContaining("TYPED is set (12 B)")]);
    expect(ended.out).not.toContain("typed value");
    const pasted = shell().terminal("hearth secrets set TYPED");
    await pasted.shows(/value of TYPED: /);
    pasted.child.stdin.write("-----BEGIN\rsecond line\r");
    const refused = await pasted.ended;
    expect([refused.code, refused.out]).toEqual([2, expect.stringContaining("several lines were pasted")]);
    expect(refused.out).not.toMatch(/BEGIN|second/);
    expect((await daemon.call("GET", "/api/secrets/TYPED")).body.size_bytes).toBe(12);
  });

  it("deletes, with a hint for a misspelled name, and completes names", async () => {
    await expect.poll(() => out("__complete", "secrets", "rm", "TO")).toBe("TOKEN\tsecret\n");
    expect((await hearth("secrets", "rm", "TOKNE")).err).toContain("did you mean 'TOKEN'?");
    expect(await out("secrets", "rm", "TOKEN")).toBe("TOKEN is deleted\n");
    expect(await out("secrets", "rotate-key")).toMatch(
      /^[0-9a-f]{16} encrypts secrets now; 2 secrets with an earlier key\n$/,
    );
    for (const name of ["tls.pem", "TYPED"]) await out("secrets", "delete", name);
    expect(await hearth("secrets", "list")).toMatchObject({ out: "", err: expect.stringContaining("no secrets yet") });
  });
});
