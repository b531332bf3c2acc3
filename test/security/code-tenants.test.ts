/** Between tenants, and between the keys of one: what code, secrets and instances of others are to a caller. */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { archive, CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { CACHE_POISONER } from "./attackers.ts";

const daemon = new Daemon();
const owner = new CodeUser(daemon);

const SETTINGS = { HEARTH_CELLS: "2", HEARTH_LOG_LEVEL: "warn" };
const tenants = { a: owner, b: owner };

beforeAll(async () => {
  await daemon.start(SETTINGS);
  tenants.a = await CodeUser.ofTenant(daemon, "a");
  tenants.b = await CodeUser.ofTenant(daemon, "b");
});
afterAll(() => daemon.dispose());

describe("a key with the scope invoke alone", () => {
  const VALUE = "value-that-no-caller-sees";
  const caller: { user: CodeUser } = { user: owner };

  beforeAll(async () => {
    const { status } = await owner.call("PUT", "/api/secrets/HIDDEN", { value: VALUE });
    expect(status).toBe(201);
    const made = await owner.call("POST", "/api/api-keys", { name: "calls", scopes: ["invoke"] });
    caller.user = new CodeUser(daemon, made.body.key);
    const code = { "main.sh": "#!/bin/bash\necho ran\n" };
    const fields = { runtime: "shell", handler: "./main.sh" };
    await owner.deploy("by-variable", code, { ...fields, environment: { TOKEN: { secret: "HIDDEN" } } });
    await owner.deploy("by-file", code, { ...fields, secrets: ["HIDDEN"] });
    await owner.deploy("without", code, fields);
  });

  const trap = { environment: { BASH_ENV: "/proc/self/environ", PATH: "/tmp" } };

  it.each(["by-variable", "by-file"])("cannot set variables of a call if the version has secrets: %s", async (name) => {
    const path = `/api/functions/invoke/${name}`;
    const answer = await caller.user.call("POST", path, trap);
    expect(answer).toMatchObject({
      status: 403,
      body: {
        error_code: "FORBIDDEN",
        error: `the key lacks the scope 'write', required to set variables of '${name}' because of its secrets`,
      },
    });
    expect((await owner.call("POST", path, trap)).status).toBe(200);
    expect(await caller.user.invoke(name)).toMatchObject({ stdout: "ran\n" });
  });

  it("may set them if it has none", async () => {
    expect(await caller.user.invoke("without", null, { environment: { A: "1" } })).toMatchObject({ stdout: "ran\n" });
  });
});

const MARKS = `
import fs from "node:fs";
import os from "node:os";
const found = [globalThis.mark, ...["/tmp", "/dev/shm"].flatMap((path) => fs.readdirSync(path))].filter((one) => one !== undefined);
const load = { pid: process.pid, random: Math.random(), uuid: crypto.randomUUID(), boot: fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8") };
export const handler = (mark) => {
  globalThis.mark = mark;
  fs.writeFileSync("/tmp/mark", mark);
  fs.writeFileSync("/dev/shm/mark", mark);
  const refused = [];
  for (const path of ["/function/index.mjs", "/opt/hearth/main.mjs"]) {
    for (const act of [() => fs.appendFileSync(path, "x"), () => fs.chmodSync(path, 0o777), () => fs.unlinkSync(path), () => fs.renameSync(path, "/tmp/x")]) {
      try { act(); } catch (error) { refused.push(error.code); }
    }
  }
  return { found, ...load, refused, host: os.hostname() };
};
`;

const PYTHON_MARKS = `
import builtins, os, random, sys, uuid
found = [name for name in (getattr(builtins, "mark", None), *os.listdir("/tmp"), *os.listdir("/dev/shm")) if name]
load = {"random": random.random(), "uuid": str(uuid.uuid4()), "hash": hash("a"), "urandom": os.urandom(8).hex()}
def handler(mark, context):
    builtins.mark = mark
    for path in ("/tmp/mark", "/dev/shm/mark"): open(path, "w").close()
    refused = []
    for path in ("/function/main.py", "/opt/hearth/main.py"):
        for act in (lambda: open(path, "a"), lambda: os.chmod(path, 0o777), lambda: os.unlink(path)):
            try: act()
            except OSError as error: refused.append(error.errno)
    return {"found": found, "refused": refused, **load}
`;

describe("functions of two tenants with the same code", () => {
  it.each([
    ["nodejs", { "index.mjs": MARKS }, NODEJS, 8],
    ["python3", { "main.py": PYTHON_MARKS }, PYTHON3, 6],
  ])("share no instance and no state: %s", async (runtime, files, fields, refused_count) => {
    const users = [tenants.a, tenants.b];
    // biome-ignore lint/suspicious/noExplicitAny: records as they came.
    const records: any[] = [];
    for (const user of users) await user.deploy(`marks-${runtime}`, files, { ...fields, instance_calls_max: 2 });
    const round = async () => {
      for (let n = 0; n < 3; n++) {
        records.push(
          ...(await Promise.all(
            users.map(async (user, k) => ({ k, ...(await user.invoke(`marks-${runtime}`, `of-${k}`)) })),
          )),
        );
      }
    };
    await round();
    // The next daemon adopts what lives, cells too.
    await daemon.stop("SIGKILL");
    await daemon.start(SETTINGS);
    await round();
    const owners = new Map<string, number>();
    for (const { k, instance_nonce, result, error_message } of records) {
      expect([error_message, result?.found]).toEqual([null, []]);
      expect(result.refused).toHaveLength(refused_count);
      expect(owners.get(instance_nonce) ?? k).toBe(k);
      owners.set(instance_nonce, k);
    }
    const fresh = [...new Map(records.map(({ instance_nonce, result }) => [instance_nonce, result])).values()];
    expect(fresh.length).toBeGreaterThan(3);
    for (const name of ["random", "uuid"]) expect(new Set(fresh.map((result) => result[name])).size).toBe(fresh.length);
  });
});

describe("a code cache", () => {
  const fields = { ...NODEJS, handler: "index.ts", instance_calls_max: 1 };
  const files = { "index.ts": CACHE_POISONER };
  /** What the process of the next call finds in its cache. */
  const found = async (user: CodeUser, name: string) => (await user.invoke(name)).result;

  it("reaches no other tenant, function or version with the same code", async () => {
    const environment = { POISON: "left by the first" };
    const first_id = await tenants.a.deploy("cached", files, { ...fields, environment });
    expect([await found(tenants.a, "cached"), await found(tenants.a, "cached")]).toEqual(["none", environment.POISON]);
    await tenants.b.deploy("cached", files, fields);
    await tenants.a.deploy("beside", files, fields);
    expect([await found(tenants.b, "cached"), await found(tenants.a, "beside")]).toEqual(["none", "none"]);
    expect(await found(tenants.a, "cached")).toBe(environment.POISON);
    expect(await tenants.a.deploy("cached", files, { ...fields, environment: { POISON: "second" } })).toBe(first_id);
    expect([await found(tenants.a, "cached"), await found(tenants.a, "cached")]).toEqual(["none", "second"]);
    expect((await tenants.a.call("DELETE", `/api/functions/${first_id}`)).status).toBe(200);
    await tenants.a.deploy("cached", files, fields);
    expect(await found(tenants.a, "cached")).toBe("none");
  });
});

describe("a tenant", () => {
  it("finds nothing of another's function, versions or code", async () => {
    const files = { "index.mjs": "export const handler = () => 'mine';\n" };
    const id = await tenants.a.deploy("private", files, NODEJS);
    const digest = (await tenants.a.call("GET", `/api/functions/${id}`)).body.code_sha256;
    for (const path of [
      "",
      "/versions",
      "/versions/1",
      "/versions/1/code",
      "/versions/1/diff/1",
      "/pool",
      "/invocations",
    ]) {
      expect([path, (await tenants.b.call("GET", `/api/functions/${id}${path}`)).status]).toEqual([path, 404]);
    }
    const sent = await tenants.b.send("PUT", `/api/functions/${id}/code`, archive(files));
    expect(sent).toMatchObject({ status: 404, body: { error_code: "NOT_FOUND" } });
    expect((await tenants.b.call("POST", `/api/functions/${id}/invoke`, {})).status).toBe(404);
    expect((await tenants.b.call("PUT", `/api/functions/${id}`, { code_sha256: digest })).status).toBe(404);
    const renewed = await tenants.b.call("POST", `/api/functions/code/${digest}/renew`);
    const unknown = await tenants.b.call("POST", `/api/functions/code/${"0".repeat(64)}/renew`);
    expect([renewed.status, unknown.status]).toEqual([404, 404]);
    expect(String(renewed.body.error).replace(digest, "")).toBe(String(unknown.body.error).replace(/0{64}/, ""));
    const taken = await tenants.b.deployments([{ name: "private", code_sha256: digest, ...NODEJS }]);
    expect(taken).toMatchObject({ status: 400, body: { error: expect.stringContaining("no code of this digest") } });
    const own = await tenants.b.deploy("private", { "index.mjs": "export const handler = () => 'other';\n" }, NODEJS);
    expect(own).not.toBe(id);
    expect(await tenants.a.invoke("private")).toMatchObject({ result: "mine" });
    expect(await tenants.b.invoke("private")).toMatchObject({ result: "other" });
  });

  it("gives its functions its own secrets alone", async () => {
    await tenants.a.call("PUT", "/api/secrets/SHARED", { value: "of-a" });
    const files = { "main.sh": '#!/bin/sh\nprintf %s "$T"; cat /run/secrets/SHARED\n' };
    const fields = {
      runtime: "shell",
      handler: "./main.sh",
      environment: { T: { secret: "SHARED" } },
      secrets: ["SHARED"],
    };
    await tenants.b.deploy("takes", files, fields);
    const lacking = await tenants.b.invoke("takes");
    expect(lacking).toMatchObject({ status: "failed", stdout: "", error_message: expect.stringContaining("SHARED") });
    await tenants.b.call("PUT", "/api/secrets/SHARED", { value: "of-b" });
    expect(await tenants.b.invoke("takes")).toMatchObject({ stdout: "of-bof-b" });
  });

  it("cannot store more code than its storage, and no upload of it stays", async () => {
    const small = await CodeUser.ofTenant(daemon, "small", { limits: { storage_mb_max: 1 } });
    const text = randomBytes(3 << 20).toString("base64");
    const refused = await small.send("POST", "/api/functions/code", archive({ "index.mjs": text }));
    expect(refused).toMatchObject({ status: 403, body: { error_code: "QUOTA_EXCEEDED" } });
    const { body } = await small.call("GET", "/api/tenant");
    expect(body.usage.storage_bytes).toBe(0);
  });

  it("that uploads slowly takes its own places alone", async () => {
    const ends: (() => void)[] = [];
    const slow = () =>
      tenants.a.send(
        "POST",
        "/api/functions/code",
        new ReadableStream({
          start: (controller) => {
            controller.enqueue(archive({ "a.txt": "a" }).subarray(0, 40));
            ends.push(() => controller.close());
          },
        }),
      );
    const open = [slow(), slow()];
    await eventually("the third is refused", async () => {
      const { status } = await tenants.a.send("POST", "/api/functions/code", archive({ "b.txt": "b" }));
      return status === 429;
    });
    await tenants.b.upload({ "c.txt": "c" });
    for (const end of ends) end();
    for (const { status, body } of await Promise.all(open))
      expect([status, body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    await tenants.a.upload({ "d.txt": "d" });
  });
});
