/** The key file of secrets and its rotation: what a damaged file does, and that no crash or race loses a value. */
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { armFailpoint } from "../../src/base/failpoints.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Store } from "../../src/store/store.ts";
import { scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";
import { bytes, makeSecrets, textsOf } from "./made.ts";

const scratch = scratchStores();
afterEach(() => armFailpoint(""));

const names = (count: number) => Array.from({ length: count }, (_, i) => `S${i}`);
const linesOf = (file: string) => readFileSync(file, "utf8").trim().split("\n");
const keyIds = async (store: Store) =>
  (await store.read("SELECT DISTINCT key_id FROM secrets")).map(({ key_id }) => key_id);

async function withSecrets(count = 1) {
  const place = scratch();
  const made = await makeSecrets(place);
  for (const name of names(count)) await made.secrets.set("a", name, bytes(`value of ${name}`));
  /** What the next start of a daemon sees. */
  const again = () => makeSecrets(place, made.store);
  const expectAll = async (values = made.values) =>
    expect(await textsOf(values, "a", ...names(count))).toEqual(names(count).map((name) => `value of ${name}`));
  return { ...made, again, expectAll };
}

const rotated = (file: string) => eventually("one key is left", () => linesOf(file).length === 1);

describe("the key file", () => {
  it("is made once, for its owner alone, and read at the next start", async () => {
    const { file, again, keys, expectAll } = await withSecrets();
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(linesOf(file)).toEqual([expect.stringMatching(/^[0-9a-f]{16} [0-9a-f]{64}$/)]);
    const next = await again();
    expect(next.keys.newest).toEqual(keys.newest);
    await expectAll(next.values);
  });

  it.each([
    ["missing or empty", ""],
    ["missing or empty", " \n"],
    ["damaged", "x"],
    ["damaged", "cut"],
    ["damaged", "garbled"],
    ["damaged", "second line garbled"],
    ["lacks the key of 3 secrets", "another"],
  ])("stops the start if it is %s while secrets exist (%s), and is not touched", async (said, how) => {
    const { file, again } = await withSecrets(3);
    const whole = readFileSync(file, "utf8");
    const other = readFileSync((await withSecrets()).file, "utf8");
    const text =
      {
        cut: whole.slice(0, -9),
        garbled: whole.replace(/.(?=\n)/, (last) => (last === "0" ? "1" : "0")),
        "second line garbled": `${whole}${other.replace(/^./, (first) => (first === "0" ? "1" : "0"))}`,
        another: other,
      }[how] ?? how;
    writeFileSync(file, text);
    const refusal = { code: "INTERNAL", hint: expect.stringContaining("restore the file") as string };
    await expect(again()).rejects.toThrow(expect.objectContaining(refusal));
    await expect(again()).rejects.toThrow(`${file}`);
    await expect(again()).rejects.toThrow(said);
    expect(readFileSync(file, "utf8")).toBe(text);
    writeFileSync(file, whole);
    await (await again()).store.readOne("SELECT 1");
  });

  it("is made again where no secret exists, and deletes all secrets if it says discard", async () => {
    const { file, again, store, values } = await withSecrets(2);
    writeFileSync(file, "discard\n");
    const next = await again();
    expect(await store.read("SELECT name FROM secrets")).toEqual([]);
    expect(linesOf(file)).toEqual([expect.stringMatching(next.keys.newest.id)]);
    await expect(values.values("a", ["S0"])).rejects.toThrow("not found");
    writeFileSync(file, "");
    await next.secrets.set("a", "S0", bytes("x")).then(() => next.secrets.remove("a", "S0"));
    expect((await again()).keys.newest.id).not.toBe(next.keys.newest.id);
  });
});

describe("a rotation", () => {
  it("encrypts all rows of all tenants and kinds with a new key, then removes the earlier one", async () => {
    const { rotation, store, file, of, keys, expectAll, again } = await withSecrets(LIMITS.secrets_batch_rows * 2 + 1);
    await of("registry").set("b", "docker.io", bytes("theirs"));
    const [earlier] = await keyIds(store);
    const status = await rotation.rotate();
    expect(status).toEqual({ key_id: keys.newest.id, earlier_key_ids: [earlier], pending_count: 34 });
    await rotated(file);
    expect(await keyIds(store)).toEqual([status.key_id]);
    expect(await rotation.status()).toEqual({ key_id: status.key_id, earlier_key_ids: [], pending_count: 0 });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    await expectAll();
    const next = await again();
    await expectAll(next.values);
    expect(await textsOf(next.valuesOf("registry"), "b", "docker.io")).toEqual(["theirs"]);
  });

  it("keeps the newer value of secrets that are set meanwhile, and values stay readable throughout", async () => {
    const count = 100;
    const { rotation, secrets, file, store, values } = await withSecrets(count);
    const state = { isDone: false, reads: 0 };
    const reader = (async () => {
      while (!state.isDone) {
        for (const text of await textsOf(values, "a", ...names(count))) expect(text).toMatch(/^(value of|newer) S\d+$/);
        state.reads++;
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    for (let round = 0; round < 5; round++) {
      const changed = names(count).filter((_, i) => i % 5 === round);
      // Some are enqueued before the new key is there, some behind it.
      const before = changed.slice(0, 10).map((name) => secrets.set("a", name, bytes(`newer ${name}`)));
      const rotating = rotation.rotate();
      const after = changed.slice(10).map((name) => secrets.set("a", name, bytes(`newer ${name}`)));
      await Promise.all([...before, rotating, ...after]);
    }
    await rotated(file);
    state.isDone = true;
    await reader;
    expect(state.reads).toBeGreaterThan(0);
    expect(await textsOf(values, "a", ...names(count))).toEqual(names(count).map((name) => `newer ${name}`));
    expect(await keyIds(store)).toHaveLength(1);
  });

  it("continues at the next start, wherever it ended", async () => {
    const count = LIMITS.secrets_batch_rows * 3;
    const { rotation, file, again, expectAll } = await withSecrets(count);
    armFailpoint("secrets.rotate.moved:2=throw");
    await rotation.rotate();
    await eventually("two batches are done", async () => (await rotation.status()).pending_count <= 16);
    await rotation.close();
    expect(linesOf(file)).toHaveLength(2);
    const next = await again();
    await expectAll(next.values);
    next.rotation.resume();
    await rotated(file);
    await expectAll(next.values);
  });

  it("keeps a key while a row does not decrypt, moves all others, and ends when the secret is set again", async () => {
    const { rotation, secrets, store, file, keys, values } = await withSecrets(20);
    await store.write([{ sql: "UPDATE secrets SET value = x'00' WHERE name = 'S3'", expect_changes: 1 }]);
    await rotation.rotate();
    await eventually("one row is left", async () => (await rotation.status()).pending_count === 1);
    expect(linesOf(file)).toHaveLength(2);
    expect(await textsOf(values, "a", "S4")).toEqual(["value of S4"]);
    await secrets.set("a", "S3", bytes("mended"));
    rotation.resume();
    await rotated(file);
    expect(keys.earlier).toEqual([]);
  });

  it("is refused while too many earlier keys are in use", async () => {
    const { rotation, keys, file, store } = await withSecrets(1);
    await store.write([{ sql: "UPDATE secrets SET value = x'00'" }]);
    for (let i = 1; i < LIMITS.secrets_keys_max; i++) keys.add();
    const before = readFileSync(file, "utf8");
    await expect(rotation.rotate()).rejects.toThrow(expect.objectContaining({ code: "QUOTA_EXCEEDED" }));
    expect(readFileSync(file, "utf8")).toBe(before);
  });
});
