/**
 * Connection pools of the module in the runtime nodejs: the packages `pg`, `redis` and `ioredis` against Debian's servers. The
 * process of the runtime runs here, without a container. Downloads packages of Debian and of npm.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type BindHead, STATUS } from "../../runtimes/envelope.ts";
import { eventually } from "../support/native.ts";
import { NodejsProcess } from "../support/nodejs-process.ts";
import { resultOf } from "../support/resident-requests.ts";

/** The servers with what they need beyond a Debian with Node. */
const PACKAGES =
  "postgresql-15 postgresql-client-15 libpq5 libicu72 libxml2 libxslt1.1 libldap-2.5-0 libsasl2-2 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libkeyutils1 redis-server redis-tools libjemalloc2 liblua5.1-0 liblzf1 libatomic1 lua-bitop lua-cjson".split(
    " ",
  );
/** Of the servers: postgres refuses to run as root. */
const NOBODY = { uid: 65_534, gid: 65_534 };
const CALLS = 12;

const folder = mkdtempSync("/var/tmp/hearth-pools-");
const servers: ChildProcess[] = [];
const started: NodejsProcess[] = [];
const root = join(folder, "debian");
const environment = {
  LD_LIBRARY_PATH: join(root, "usr/lib/x86_64-linux-gnu"),
  LC_ALL: "C",
  PATH: process.env.PATH ?? "",
};
const postgres = (name: string) => join(root, "usr/lib/postgresql/15/bin", name);
const sockets = join(folder, "sockets");

beforeAll(async () => {
  for (const name of ["debs", "modules", "sockets", "redis"]) mkdirSync(join(folder, name));
  const run = (cwd: string, command: string, ...args: string[]) =>
    execFileSync(command, args, { cwd: join(folder, cwd), stdio: "pipe" });
  run("debs", "apt-get", "download", ...PACKAGES);
  for (const file of readdirSync(join(folder, "debs"))) run("debs", "dpkg-deb", "-x", file, root);
  run("modules", "npm", "install", "--no-audit", "--no-fund", "pg@8", "redis@5", "ioredis@5");
  for (const path of [folder, root, sockets, join(folder, "redis")]) chmodSync(path, 0o777);
  const options = { ...NOBODY, env: environment, stdio: "pipe" as const };
  execFileSync(postgres("initdb"), ["-D", join(folder, "data"), "-U", "hearth", "--auth=trust", "--no-sync"], options);
  servers.push(
    spawn(postgres("postgres"), ["-D", join(folder, "data"), "-k", sockets, "-c", "listen_addresses="], options),
    spawn(join(root, "usr/bin/redis-server"), ["--port", "0", "--unixsocket", join(sockets, "redis")], {
      ...options,
      cwd: join(folder, "redis"),
    }),
  );
  await eventually("the servers", () => readdirSync(sockets).filter((name) => !name.endsWith(".lock")).length === 2);
}, 300_000);

afterEach(async () => {
  await Promise.all(started.splice(0).map((one) => one.end()));
});

afterAll(async () => {
  for (const server of servers) {
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGKILL");
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Each handler returns what names its connection, and on "look" nothing. */
const CODE: Readonly<Record<string, string>> = {
  pg: `import pg from "pg";
    const pool = new pg.Pool({ host: process.env.SOCKETS, user: "hearth", database: "postgres", max: 1 });
    export const handler = async (what) =>
      what === "look" ? null : (await pool.query("SELECT pg_backend_pid() AS id")).rows[0].id;`,
  redis: `import { createClient } from "redis";
    const client = createClient({ socket: { path: process.env.SOCKETS + "/redis" } });
    // Without a listener the client does not connect again: the error leaves it in the middle of that.
    client.on("error", () => {});
    await client.connect();
    export const handler = (what) => (what === "look" ? null : client.sendCommand(["CLIENT", "ID"]));`,
  ioredis: `import { Redis } from "ioredis";
    const client = new Redis({ path: process.env.SOCKETS + "/redis" });
    export const handler = (what) => (what === "look" ? null : client.client("ID"));`,
};

/** The servers close all connections of the handlers. */
function cut(): void {
  const psql = ["-h", sockets, "-U", "hearth", "-d", "postgres", "-c"];
  const others =
    "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
  execFileSync(join(root, "usr/lib/postgresql/15/bin/psql"), [...psql, others], { env: environment, stdio: "pipe" });
  const redis = ["-s", join(sockets, "redis"), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
  execFileSync(join(root, "usr/bin/redis-cli"), redis, { env: environment, stdio: "pipe" });
}

async function serve(name: string, bind: Partial<BindHead> = {}): Promise<NodejsProcess> {
  const code = mkdtempSync(join(folder, "code-"));
  cpSync(join(folder, "modules/node_modules"), join(code, "node_modules"), { recursive: true });
  const head = { environment: { SOCKETS: sockets }, cleanup: false, ...bind };
  const made = await NodejsProcess.start(
    { "index.mjs": CODE[name] ?? "" },
    head,
    (argv) => argv,
    new Uint8Array(),
    code,
  );
  started.push(made);
  expect((await made.bound).status).toBe(STATUS.returned);
  return made;
}

describe.each(Object.keys(CODE))("the package %s", (name) => {
  it("keeps its connection between calls", async () => {
    const made = await serve(name);
    const ids: unknown[] = [];
    for (let n = 0; n < CALLS; n++) {
      const answer = await made.call("");
      expect([answer.status, answer.stderr]).toEqual([STATUS.returned, ""]);
      ids.push(resultOf(answer));
    }
    expect(ids).toEqual(Array(CALLS).fill(ids[0]));
    expect(made.resident.own.stderr).toBe("");
  });

  it("serves calls at the same time", async () => {
    const made = await serve(name, { concurrency: 8 });
    const answers = await Promise.all(Array.from({ length: CALLS }, () => made.call("")));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([STATUS.returned]));
    expect(new Set(answers.map(resultOf)).size).toBe(1);
  });

  it("connects again after the server cut it, and no later call fails", async () => {
    const made = await serve(name);
    const first = resultOf(await made.call(""));
    cut();
    // What the servers sent arrives in the turn of one of these calls at the latest.
    for (let n = 0; n < 2; n++) expect((await made.call("look")).status).toBe(STATUS.returned);
    for (let n = 0; n < CALLS; n++) {
      const { ended, status, content } = await made.call("");
      expect([ended, status, status === STATUS.returned ? "" : content.toString()]).toEqual([
        "answered",
        STATUS.returned,
        "",
      ]);
      expect(resultOf({ content })).not.toBe(first);
    }
  });
});

describe("reset_between_calls", () => {
  it("ends the connections of a pool, and no call fails of it", async () => {
    const made = await serve("pg", { cleanup: true });
    const ids = new Set<unknown>();
    for (let n = 0; n < CALLS; n++) {
      const answer = await made.call("");
      expect([answer.ended, answer.status, answer.stderr]).toEqual(["answered", STATUS.returned, ""]);
      ids.add(resultOf(answer));
    }
    expect(ids.size).toBeGreaterThan(1);
  });
});
