/** Keys, tokens, tenants and profiles, through the `hearth` command against a real daemon. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { bare, operatorOf } from "../support/command.ts";
import { Daemon, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, hearthAs, out, answer } = operator;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1" });
  await out("create", "cat", "--handler", "cat", "--deploy");
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

describe("keys, tokens and tenants", () => {
  it("are made, used and ended", async () => {
    const made = await hearth("keys", "create", "ci", "--scopes", "read,invoke");
    expect(made).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^hk_\w+\n$/),
      err: expect.stringContaining("read, invoke"),
    });
    const env = { HEARTH_KEY: made.out.trim() };
    const token = (
      await shell().run(["tokens", "create", "--scopes", "invoke", "--expires-in", "5m"], { env })
    ).out.trim();
    expect(await hearthAs(token, "invoke", "cat", "by token")).toMatchObject({ code: 0, out: "by token" });
    const { api_keys } = await answer("keys", "list");
    const { id } = api_keys.find((key: { name: string }) => key.name === "ci");
    expect(await out("keys", "revoke", id)).toBe(`${id} is revoked\n`);
    expect((await shell().run(["ls"], { env })).code).toBe(1);
  });

  it("are ended by name too, where one alone has it", async () => {
    for (const name of ["twin", "twin", "single"]) await out("keys", "create", name);
    expect(await out("keys", "revoke", "single")).toMatch(/^key_\w+ is revoked\n$/);
    expect(await hearth("keys", "revoke", "twin")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/several keys have the name 'twin'\n {2}give the id of one: key_\w+, key_\w+\n/),
    });
    expect((await hearth("keys", "revoke", "twni")).err).toContain("did you mean 'twin'?");
    expect((await answer("keys", "list")).api_keys.map((key: { name: string }) => key.name)).not.toContain("single");
  });

  it("are kept apart by tenants, which are named by name or id", async () => {
    const made = await answer("tenants", "create", "acme", "--functions-max", "1", "--requests-per-second", "1000");
    expect(made.limits).toMatchObject({ functions_max: 1, requests_per_second: 1000, volumes_max: 100 });
    const key = (await out("tenants", "keys", "create", "acme", "first")).trim();
    expect(await hearthAs(key, "ls")).toMatchObject({ code: 0, out: "" });
    expect(await hearthAs(key, "create", "theirs", "--handler", "cat")).toMatchObject({ code: 0 });
    expect(await hearthAs(key, "create", "more", "--handler", "cat")).toMatchObject({
      code: 1,
      err: expect.stringContaining("[QUOTA_EXCEEDED]"),
    });
    const limits = (await hearthAs(key, "limits")).out;
    expect(limits).toMatch(/^LIMIT +USED +MAX +COUNTS\n[\s\S]*functions_max +1 +1 +f[\s\S]*processes_max +0 +\d+ /);
    expect(limits).toMatch(/instances_max +0 +\d+ [\s\S]*memory_mb_max +0 MiB +\d+ MiB [\s\S]*storage_mb_max +\d+ B /);
    const changes = ["--no-requests-per-second", "--name=acme inc", "--functions-max=default"];
    const updated = await answer("tenants", "update", made.tenant_id, ...changes);
    expect(updated).toMatchObject({ name: "acme inc", limits: { functions_max: 1000, requests_per_second: null } });
    expect(await out("tenants", "get", "acme inc")).toMatch(/^functions +1 of 1000$[\s\S]*^storage +\d+ B of /m);
    expect(await out("tenants", "list")).toMatch(/acme inc .* functions_max=1000 /);
    expect((await hearth("tenants", "get", "acme in")).err).toContain("did you mean 'acme inc'?");
    expect(await hearth("tenants", "delete", "acme inc")).toMatchObject({
      code: 1,
      err: expect.stringMatching(/NOT_EMPTY.*\n.*--force\n/),
    });
    expect(await out("tenants", "delete", "acme inc", "--force")).toBe("acme inc is deleted\n");
  });
});

describe("profiles", () => {
  it("are logged into with a key from standard input, kept for the user alone, and used", async () => {
    const env = { HEARTH_URL: "", HEARTH_KEY: "" };
    const run = (args: string[], stdin = "") => shell().run(args, { env, stdin });
    expect(await run(["login", "--url", daemon.url], "wrong\n")).toMatchObject({
      code: 1,
      err: expect.stringContaining("the profile was not saved"),
    });
    expect(await run(["login", "--url", "http://127.0.0.1:1"], "k")).toMatchObject({ code: 3 });
    expect((await run(["profile", "list"])).out).toBe("");
    expect(await run(["login", "--url", daemon.url], `${KEY}\n`)).toMatchObject({ code: 0, err: "" });
    const named = { ...env, HEARTH_URL: daemon.url };
    expect(await shell().run(["login"], { env: named, stdin: KEY })).toMatchObject({ code: 0, err: "" });
    const other = { HEARTH_URL: "http://127.0.0.1:1", HEARTH_KEY: "k" };
    expect((await shell().run(["profile", "use", "default"], { env: other })).err).toBe(
      "HEARTH_URL and HEARTH_KEY are set and override the profile: unset HEARTH_URL HEARTH_KEY\n",
    );
    expect(await run(["invoke", "cat", "x"])).toMatchObject({ code: 0, out: "x" });
    await run(["profile", "add", "other", "--url", "http://127.0.0.1:1", "--key-file", "-"], "k");
    const listed = (await run(["profile", "list"])).out;
    expect(listed).toMatch(/default +in use +http.*\nother +http/);
    expect(listed).not.toContain(KEY);
    expect((await run(["ls", "--profile", "other"])).code).toBe(3);
    expect((await shell().run(["ls"], { env: { ...env, HEARTH_PROFILE: "other" } })).code).toBe(3);
    expect((await shell().run(["ls"], { env: { HEARTH_PROFILE: "other" } })).code).toBe(0);
    await run(["profile", "use", "other"]);
    expect((await run(["ls"])).err).toContain("profile 'other'");
    await run(["profile", "remove", "other"]);
    expect((await run(["profile", "use", "othr"])).code).toBe(2);
  });

  it("ask for a key on a terminal without showing it", async () => {
    const login = shell().terminal(
      `hearth login typed --url ${daemon.url}; hearth profile use --none; stty -a | grep -o ' echo '`,
    );
    await login.shows(/key for http.*: /);
    login.child.stdin.write(`${KEY}x\x7f\r`);
    const { code, out: text } = await login.ended;
    expect([code, bare(text)]).toEqual([
      0,
      expect.stringMatching(/key for .*: \nprofile typed is in use: .*\nHEARTH_KEY is set.*\nno profile.*\n echo \n$/),
    ]);
    expect(text).not.toContain(KEY);
  });
});
