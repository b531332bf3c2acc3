/** Pushes to registries on loopback, stored credentials and archives of images through the real API, with a kill at each step. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, request } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { shellImage } from "../support/alpine.ts";
import { Commands } from "../support/command.ts";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { DockerRegistry, REGISTRY_USER } from "../support/docker-registry.ts";
import { type MadeImage, makeCertificate, OCI_MANIFEST, sha256, TestRegistry, tarOf } from "../support/registry.ts";

const { username, password } = REGISTRY_USER;
const GIVEN = { registry_username: username, registry_password: password };
const WRONG = "wr0ng-password";
const daemon = new Daemon();
const directory = mkdtempSync("/var/tmp/hearth-pushes-");
/** Where the image of the test comes from; it takes no uploads but as a test says. */
const source = new TestRegistry();
const open = new DockerRegistry();
/** With TLS and a password. */
const secure = new DockerRegistry();
const keys = { a: "", b: "" };
const state = { settings: {} as Record<string, string>, reference: "", image_id: "", image: null as MadeImage | null };

type Call = (method: string, url: string, body?: unknown) => Promise<Answer>;
const as =
  (key: string): Call =>
  (method, url, body) =>
    daemon.call(method, url, body, { "x-api-key": key });
const a: Call = (...asked) => as(keys.a)(...asked);
const b: Call = (...asked) => as(keys.b)(...asked);
const operator: Call = (...asked) => as(KEY)(...asked);
const codeOf = ({ status, body }: Answer) => [status, body.error_code];
const push = (call: Call, target: string, more: object = {}) =>
  call("POST", "/api/oci/images/push", { reference: state.reference, target, ...more });
const pull = (call: Call, reference: string, more: object = {}) =>
  call("POST", "/api/oci/images/pull", { reference, ...more });
const saved = (reference: string) => `/api/oci/images/save?reference=${encodeURIComponent(reference)}`;
const registries = (host = "") => `/api/oci/registries${host === "" ? "" : `/${encodeURIComponent(host)}`}`;
const exportsLeft = () => readdirSync(`${daemon.data_dir}/exports`).length;
const nothingExported = () => eventually("no export is left", () => exportsLeft() === 0);
const basic = (text: string) => Buffer.from(text).toString("base64");

beforeAll(async () => {
  const certificate = makeCertificate();
  writeFileSync(`${directory}/ca.pem`, certificate.cert);
  await Promise.all([source.start(), open.start(), secure.start({ certificate, hasPassword: true })]);
  const auths = { [secure.host]: { auth: basic(`${username}:${password}`) } };
  writeFileSync(`${directory}/auth.json`, JSON.stringify({ auths }));
  const mark = tarOf("mark", Buffer.from(`pushes ${process.pid} ${Date.now()}\n`));
  state.image = source.add("team/app", "1", shellImage([mark], { config: { Cmd: ["/bin/sh"], Env: ["FROM=push"] } }));
  state.settings = {
    HEARTH_CELLS: "0",
    HEARTH_INSECURE_REGISTRIES: [source.host, open.host, secure.host].join(","),
    HEARTH_REGISTRY_AUTH_FILE: `${directory}/auth.json`,
    // A mirror of the registry that pushes go to: they pass it by.
    HEARTH_REGISTRY_MIRRORS: `${open.host}=${source.host}`,
    NODE_EXTRA_CA_CERTS: `${directory}/ca.pem`,
  };
  await daemon.start(state.settings);
  for (const name of ["a", "b"] as const) {
    const { tenant_id } = (await operator("POST", "/api/tenants", { name })).body;
    keys[name] = (await operator("POST", `/api/tenants/${tenant_id}/api-keys`, { name })).body.key;
  }
  state.reference = `${source.host}/team/app:1`;
  const { body } = await pull(a, state.reference);
  state.image_id = body.image.id;
});
afterAll(async () => {
  await daemon.dispose();
  source.close();
  await Promise.all([open.dispose(), secure.dispose()]);
  rmSync(directory, { recursive: true, force: true });
});

describe("a push", () => {
  it("gives the registry an image that anybody pulls with the same id, and passes a mirror by", async () => {
    const target = `${open.host}/team/pushed:1`;
    const { status, body } = await push(a, target);
    expect([status, body]).toEqual([
      200,
      {
        ...{ success: true, error_message: null, reference: state.reference, target },
        manifest_digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
      },
    ]);
    expect(source.asked("/team/pushed/")).toBe(0);
    const accept = { headers: { accept: OCI_MANIFEST } };
    const answer = await fetch(`http://${open.host}/v2/team/pushed/manifests/${body.manifest_digest}`, accept);
    const manifest = await answer.json();
    expect(manifest).toMatchObject({ config: { digest: state.image_id }, layers: [{}, {}] });
    // The same layers again, under another name.
    expect((await push(a, `${open.host}/team/again:2`)).body.manifest_digest).toBe(body.manifest_digest);
    await nothingExported();
  });

  it("needs the credentials of the registry, from the request, or stored and then used by each pull and push", async () => {
    const target = `${secure.host}/team/app:1`;
    for (const more of [{}, { ...GIVEN, registry_password: WRONG }]) {
      const answer = await push(a, target, more);
      expect(codeOf(answer)).toEqual([403, "FORBIDDEN"]);
      expect(JSON.stringify(answer.body)).not.toContain(WRONG);
    }
    expect((await push(a, target, GIVEN)).status).toBe(200);
    const stored = await a("PUT", registries(secure.host), { username, password });
    expect([stored.status, stored.body]).toEqual([201, expect.objectContaining({ registry: secure.host, username })]);
    expect((await push(a, `${secure.host}/team/app:2`)).status).toBe(200);
    const pulled = await pull(a, target);
    expect([pulled.status, pulled.body.image?.id]).toEqual([200, state.image_id]);
    // Credentials of the request come first.
    expect(codeOf(await pull(a, target, { ...GIVEN, registry_password: WRONG }))).toEqual([403, "FORBIDDEN"]);
  });

  it("shows stored credentials without the password, to their tenant alone", async () => {
    const shown = [await a("GET", registries()), await a("GET", registries(secure.host))];
    expect(shown[0]?.body.registries).toEqual([shown[1]?.body]);
    expect(codeOf(await b("GET", registries(secure.host)))).toEqual([404, "NOT_FOUND"]);
    expect(codeOf(await b("DELETE", registries(secure.host)))).toEqual([404, "NOT_FOUND"]);
    expect((await b("GET", registries())).body.registries).toEqual([]);
    expect(codeOf(await b("POST", "/api/oci/images/pull", { reference: `${secure.host}/team/app:1` }))).toEqual([
      403,
      "FORBIDDEN",
    ]);
    expect((await a("GET", "/api/secrets")).body.secrets).toEqual([]);
    const audit = (await operator("GET", "/api/audit")).body;
    expect(JSON.stringify(audit)).toContain("/api/oci/registries");
    const operations = (await a("GET", "/api/operations")).body;
    for (const text of [password, WRONG]) {
      expect(JSON.stringify([shown.map(({ body }) => body), audit, operations])).not.toContain(text);
      expect(daemon.output).not.toContain(text);
    }
  });

  it("uses the operator's file for the operator's own key alone", async () => {
    expect((await pull(operator, `${secure.host}/team/app:1`)).status).toBe(200);
    expect(codeOf(await pull(b, `${secure.host}/team/app:1`))).toEqual([403, "FORBIDDEN"]);
  });

  it("takes only images that the tenant has or the operator shares, and only targets with a tag", async () => {
    expect(codeOf(await push(b, `${open.host}/team/stolen:1`))).toEqual([404, "NOT_FOUND"]);
    expect(codeOf(await b("GET", saved(state.reference)))).toEqual([404, "NOT_FOUND"]);
    const digest = `${open.host}/team/app@${state.image_id}`;
    expect(codeOf(await push(a, digest))).toEqual([400, "INVALID_ARGUMENT"]);
    const own = `${secure.host}/team/app:1`;
    await operator("PATCH", "/api/oci/images", { reference: own, is_shared: true });
    const shared = { reference: own, target: `${open.host}/team/shared:1` };
    expect((await b("POST", "/api/oci/images/push", shared)).status).toBe(200);
    await operator("PATCH", "/api/oci/images", { reference: own, is_shared: false });
    expect(codeOf(await b("POST", "/api/oci/images/push", shared))).toEqual([404, "NOT_FOUND"]);
  });

  it("is not fooled by a registry that answers HTML, redirects, or names another place for uploads", async () => {
    const seen: IncomingMessage["headers"][] = [];
    const other = createServer((asked, response) => {
      seen.push(asked.headers);
      response.writeHead(201).end();
    });
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    const place = `http://127.0.0.1:${(other.address() as AddressInfo).port}/upload`;
    const answers: Record<string, readonly [number, Record<string, string>]> = {
      html: [200, { "content-type": "text/html" }],
      redirect: [307, { location: place }],
      place: [202, { location: place }],
      placeless: [202, {}],
    };
    source.behaviour = ({ url = "", method, headers }, response) => {
      const [, kind = ""] = /^\/v2\/evil\/(\w+)\//.exec(url) ?? [];
      const [status, more] = answers[kind] ?? [];
      if (status === undefined) return false;
      if (headers.authorization === undefined) response.writeHead(401, { "www-authenticate": "Basic" }).end();
      else if (method === "HEAD" && kind !== "html") response.writeHead(404).end();
      else response.writeHead(status, more).end();
      return true;
    };
    try {
      for (const [kind, code] of Object.entries({
        html: "REGISTRY_FAILED",
        redirect: "REGISTRY_FAILED",
        placeless: "REGISTRY_FAILED",
        place: "INVALID_ARGUMENT",
      })) {
        const answer = await push(a, `${source.host}/evil/${kind}:1`, GIVEN);
        expect([kind, answer.body.error_code, answer.body.error]).toEqual([kind, code, expect.any(String)]);
        expect(JSON.stringify(answer.body)).not.toContain(password);
      }
      expect(seen).toEqual([]);
    } finally {
      source.behaviour = () => false;
      other.close();
    }
    await nothingExported();
  });

  it("that is cancelled while the registry stalls leaves nothing", async () => {
    source.behaviour = ({ url = "", method }, response) => {
      if (!url.includes("/slow/")) return false;
      if (method === "HEAD") response.writeHead(404).end();
      if (method === "POST") response.writeHead(202, { location: "/v2/slow/x/blobs/uploads/1" }).end();
      return true;
    };
    try {
      const body = { reference: state.reference, target: `${source.host}/slow/x:1` };
      const { operation_id } = (await a("POST", "/api/oci/images/push?execution=async", body)).body;
      await eventually("the layer is sent", () => source.asked("/slow/x/blobs/uploads/1") > 0);
      expect(exportsLeft()).toBe(1);
      expect((await a("POST", `/api/operations/${operation_id}/cancel`)).body.status).toBe("cancelled");
    } finally {
      source.behaviour = () => false;
    }
    await nothingExported();
  });
});

describe("an archive of an image", () => {
  it("is an OCI archive that buildah reads, with the same id", async () => {
    const response = await fetch(daemon.url + saved(state.reference), { headers: { "x-api-key": keys.a } });
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/x-tar"]);
    const file = `${directory}/image.tar`;
    writeFileSync(file, Buffer.from(await response.arrayBuffer()));
    const names = execFileSync("tar", ["-tf", file]).toString().trim().split("\n");
    expect(names.slice(0, 2)).toEqual(["oci-layout", "index.json"]);
    expect(names).toHaveLength(6);
    const index = JSON.parse(execFileSync("tar", ["-xOf", file, "index.json"]).toString());
    expect(index.manifests[0].annotations["org.opencontainers.image.ref.name"]).toBe(state.reference);
    for (const name of names.filter((one) => one.startsWith("blobs/"))) {
      const bytes = execFileSync("tar", ["-xOf", file, name], { maxBuffer: 64 * 1024 * 1024 });
      expect(`sha256:${name.slice("blobs/sha256/".length)}`).toBe(sha256(bytes));
    }
    const store = ["--root", `${directory}/store`, "--runroot", `${directory}/run`, "--storage-driver", "vfs"];
    const id = execFileSync("buildah", [...store, "pull", "--quiet", `oci-archive:${file}`])
      .toString()
      .trim();
    expect(`sha256:${id}`).toBe(state.image_id);
    await nothingExported();
  });

  it("that its client does not read to the end leaves nothing", async () => {
    const { port, hostname } = new URL(daemon.url);
    const ask = () =>
      new Promise<{ status: number | undefined; leave: () => void }>((resolve, reject) => {
        const headers = { "x-api-key": keys.a };
        const sent = request({ port, hostname, path: saved(state.reference), headers }, (answer) =>
          resolve({ status: answer.statusCode, leave: () => sent.destroy() }),
        );
        sent.on("error", reject).end();
      });
    const asked = await ask();
    expect(asked.status).toBe(200);
    asked.leave();
    await nothingExported();
  });

  it("and pushes and credentials have commands", async () => {
    const own = new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: keys.b });
    try {
      const run = async (line: string, stdin = "") => {
        const { code, out, err } = await own.run(line.split(" "), { stdin });
        expect([line, code, err]).toEqual([line, 0, expect.any(String)]);
        return out;
      };
      const login = `login registry ${secure.host} -u ${username} --password-stdin`;
      expect(await run(login, `${password}\n`)).toBe(`credentials for ${secure.host} are stored\n`);
      expect(await run("registries")).toMatch(new RegExp(`^REGISTRY +USER +CHANGED\n${secure.host} +${username} `));
      expect(await run(`pull ${secure.host}/team/app:1`)).toContain("is pulled");
      expect(await run(`push ${secure.host}/team/app:1 ${open.host}/team/cli:1`)).toMatch(
        /\/team\/cli:1 is pushed: sha256:[0-9a-f]{64}\n$/,
      );
      expect(await run(`save ${secure.host}/team/app:1 -o ${directory}/cli.tar`)).toContain("saved to");
      expect(statSync(`${directory}/cli.tar`).size).toBe(statSync(`${directory}/image.tar`).size);
      expect(await run(`logout registry ${secure.host}`)).toBe(`credentials for ${secure.host} are deleted\n`);
      const again = await own.run(["logout", "registry", secure.host]);
      expect([again.code, again.err]).toEqual([1, expect.stringContaining("not found")]);
      const refused = await own.run(["push", `${secure.host}/team/app:1`]);
      expect([refused.code, refused.err]).toEqual([1, expect.stringContaining("hearth login registry")]);
      expect((await own.run(["login", "registry", secure.host])).code).toBe(2);
      expect(readFileSync(`${directory}/cli.tar`).subarray(0, 10).toString()).toBe("oci-layout");
    } finally {
      own.dispose();
    }
  });
});

describe("a daemon that is killed within a push", () => {
  it("at any point, again and again, repeats it with the stored credentials and leaves no file", async () => {
    await daemon.stop();
    const dyingAt = (name: string) => ({ ...state.settings, HEARTH_FAILPOINT: `${name}=kill` });
    const [first = "", ...others] = [
      "images.export.made",
      "images.export.written",
      "oci.push.exported",
      "oci.push.uploaded",
    ];
    await daemon.start(dyingAt(first));
    const target = `${secure.host}/team/killed:1`;
    await expect(push(a, target)).rejects.toThrow();
    for (const name of others) {
      expect([name, exportsLeft()]).toEqual([name, 1]);
      // It resumes the push by itself, and removes what the last one left.
      await daemon.launch(dyingAt(name));
      await eventually(`the daemon dies at ${name}`, () => !daemon.isAlive, 60_000);
    }
    expect(exportsLeft()).toBe(1);
    await daemon.start(state.settings);
    const [{ operation_id }] = (await a("GET", "/api/operations?operation_type=oci.push&limit=1")).body.operations;
    const ended = (await a("GET", `/api/operations/${operation_id}?wait_seconds=60`)).body;
    expect([ended.status, ended.result?.target]).toEqual(["succeeded", target]);
    await nothingExported();
  }, 180_000);

  it("leaves nothing at its end", async () => {
    for (const call of [a, b, operator])
      for (const { reference } of (await call("GET", "/api/oci/images")).body.images)
        await call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
