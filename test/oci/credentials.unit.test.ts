/** Credentials for registries: stored ones of tenants, and those of the operator's file. */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseReference } from "../../src/oci/reference.ts";
import { scratchStores } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";
import { makeCredentials } from "./registry-credentials.ts";

const SECRET = "s3cret-of-the-registry";
const PAGE = { limit: 10, below: Number.MAX_SAFE_INTEGER };
const ada = { username: "ada", password: SECRET };
const basic = (text: string) => Buffer.from(text).toString("base64");

describe("stored credentials of a registry", () => {
  const scratch = scratchStores();

  it("are found by the registry of a reference, in each of its spellings, by their tenant alone", async () => {
    const { credentials } = await makeCredentials(scratch());
    expect((await credentials.set("a", "Index.Docker.io", ada)).is_new).toBe(true);
    expect((await credentials.set("a", "docker.io", { ...ada, username: "bob" })).is_new).toBe(false);
    await credentials.set("a", "127.0.0.1:5000", ada);
    const found = (tenant_id: string, text: string) => credentials.find(tenant_id, parseReference(text), false);
    expect(await found("a", "alpine")).toEqual({ ...ada, username: "bob" });
    expect(await found("a", "127.0.0.1:5000/x:1")).toEqual(ada);
    expect(await found("a", "127.0.0.1:5001/x:1")).toBeNull();
    expect(await found("b", "alpine")).toBeNull();
    expect((await credentials.list("a", PAGE)).items.map(({ registry, username }) => [registry, username])).toEqual([
      ["127.0.0.1:5000", "ada"],
      ["docker.io", "bob"],
    ]);
    expect((await credentials.list("b", PAGE)).items).toEqual([]);
    await expect(credentials.get("b", "docker.io")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(credentials.remove("b", "docker.io")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await credentials.remove("a", "index.docker.io");
    expect(await found("a", "alpine")).toBeNull();
  });

  it.each(["registry", "https://x.test", "x.test/y", "x.test:99999", "../x.test", "a".repeat(300), ""])(
    "of '%s' are refused, and a read finds none",
    async (registry) => {
      const { credentials } = await makeCredentials(scratch());
      await expect(credentials.set("a", registry, ada)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
      await expect(credentials.get("a", registry)).rejects.toMatchObject({ code: "NOT_FOUND" });
    },
  );

  it("are encrypted, invisible to secrets of functions, counted with them, and erased with the tenant", async () => {
    const { credentials, secrets, store, quotas } = await makeCredentials(scratch());
    quotas.set("a", { secrets_max: 2 });
    await credentials.set("a", "x.test", ada);
    expect((await secrets.list("a", PAGE)).items).toEqual([]);
    await secrets.set("a", "x.test", Buffer.from("another"));
    await expect(credentials.set("a", "y.test", ada)).rejects.toMatchObject({ code: "QUOTA_EXCEEDED" });
    expect(await credentials.find("a", parseReference("x.test/y"), false)).toEqual(ada);
    const rows = await Promise.all(["secrets", "events"].map((table) => store.read(`SELECT * FROM ${table}`)));
    expect(Buffer.from(JSON.stringify(rows)).includes(SECRET)).toBe(false);
    const values = await store.read("SELECT value FROM secrets");
    expect(values.some(({ value }) => Buffer.from(value as Uint8Array).includes(SECRET))).toBe(false);
    await secrets.eraseAll("a");
    expect(await credentials.find("a", parseReference("x.test/y"), false)).toBeNull();
  });

  it("are encrypted again by a rotation", async () => {
    const { credentials, keys, rotation } = await makeCredentials(scratch());
    await credentials.set("a", "x.test", ada);
    await rotation.rotate();
    await eventually("the earlier key is gone", () => keys.earlier.length === 0);
    expect(await credentials.find("a", parseReference("x.test/y"), false)).toEqual(ada);
    await rotation.close();
  });

  it("that Basic cannot carry are refused without being shown", async () => {
    const { credentials } = await makeCredentials(scratch());
    for (const wrong of [
      { ...ada, username: "a:b" },
      { ...ada, password: `${SECRET}\n` },
    ]) {
      const refusal = await credentials.set("a", "x.test", wrong).catch((error) => error);
      expect(refusal).toMatchObject({ code: "INVALID_ARGUMENT" });
      expect(String(refusal.message)).not.toContain(SECRET);
    }
  });
});

describe("the operator's file of credentials", () => {
  const scratch = scratchStores();

  async function made(content: string | object) {
    const ground = scratch();
    const file = `${ground.directory}/auth.json`;
    writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
    const { credentials } = await makeCredentials(ground, undefined, file);
    return { file, credentials };
  }

  it("is for the operator's key alone, after the credentials that the tenant stores", async () => {
    const { credentials } = await made({ auths: { "x.test": { auth: basic("op:pw:1") } } });
    const reference = parseReference("x.test/team/app");
    expect(await credentials.find("default", reference, false)).toBeNull();
    expect(await credentials.find("a", reference, false)).toBeNull();
    expect(await credentials.find("default", reference, true)).toEqual({ username: "op", password: "pw:1" });
    await credentials.set("default", "x.test", ada);
    expect(await credentials.find("default", reference, true)).toEqual(ada);
  });

  it("is read as docker and podman write it, the longest path of a repository first", async () => {
    const { credentials, file } = await made({
      auths: {
        "https://index.docker.io/v1/": { auth: basic("hub:1") },
        "x.test": { auth: basic("all:2") },
        "x.test/team": { auth: basic("team:3") },
        "y.test": { identitytoken: "t" },
      },
      credHelpers: { "z.test": "helper" },
    });
    const found = async (text: string) => (await credentials.find("default", parseReference(text), true))?.username;
    const texts = ["alpine", "x.test/team/app", "x.test/teams/app", "y.test/a", "z.test/a"];
    expect(await Promise.all(texts.map(found))).toEqual(["hub", "team", "all", undefined, undefined]);
    writeFileSync(file, JSON.stringify({ auths: { "z.test": { auth: basic("new:4") } } }));
    expect(await found("z.test/a")).toBe("new");
  });

  it.each([
    "",
    `{"auths": "${SECRET}"}`,
    `{"auths": {"x.test": "${SECRET}"}}`,
    `{${SECRET}`,
    " ".repeat(1024 * 1024 + 1),
  ])("fails the request with its path and without its text if it is malformed (%#)", async (text) => {
    const { credentials, file } = await made(text);
    const failure = await credentials.find("default", parseReference("x.test/a"), true).catch((error) => error);
    expect(failure).toMatchObject({ code: "INTERNAL", message: expect.stringContaining(file) });
    expect(JSON.stringify([failure.message, failure.details, failure.hint])).not.toContain(SECRET);
  });
});
