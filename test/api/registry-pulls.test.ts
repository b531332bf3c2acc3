/** Pulls from registries on loopback through the real API: buildah, the gateway and the rows of tenants together. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { readDirectories } from "../../src/installation/paths.js";
import { shellImage } from "../support/alpine.ts";
import { Commands } from "../support/command.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { build } from "../support/made-images.ts";
import { descriptorOf, makeImage, OCI_CONFIG, sha256, TestRegistry, tarOf } from "../support/registry.ts";

const SECRET = "p4ssw0rd-of-the-registry";
const daemon = new Daemon();
const user = new ContainerUser(daemon);
const registry = new TestRegistry();
/** The same, not listed by the operator. */
const unlisted = new TestRegistry();
const keys = { a: "", b: "" };
/** Differs from all other test runs, so that its layers are in no store. */
const own = (text: string) => tarOf(`mark-${text}`, Buffer.from(`${text} ${process.pid} ${Date.now()}\n`));

type Json = Answer["body"];
type Call = (method: string, url: string, body?: unknown) => Promise<Answer>;
const as =
  (key: string): Call =>
  (method, url, body) =>
    daemon.call(method, url, body, { "x-api-key": key });
const a: Call = (...asked) => as(keys.a)(...asked);
const b: Call = (...asked) => as(keys.b)(...asked);
const operator: Call = (...asked) => as(KEY)(...asked);
const PULL = "/api/oci/images/pull";
const pull = (call: Call, reference: string, more: object = {}) => call("POST", PULL, { reference, ...more });
const path = (reference: string, verb = "") => `/api/oci/images${verb}?reference=${encodeURIComponent(reference)}`;
const codeOf = ({ status, body }: Answer) => [status, body.error_code];
/** The lists of the store's images and layers: other tests change the store at the same time. */
const storeLists = () => {
  const storage = `${readDirectories(process.env, []).image_dir}/storage`;
  return ["overlay-images/images.json", "overlay-layers/layers.json"]
    .map((file) => readFileSync(`${storage}/${file}`, "utf8"))
    .join("\n");
};

beforeAll(async () => {
  await registry.start();
  await unlisted.start();
  const image = shellImage([own("a")], { config: { Cmd: ["/bin/sh"], Env: ["FROM=registry"] } });
  registry.add("team/app", "1", image);
  registry.add("library/alpine", "3.20", shellImage([own("alpine")]));
  unlisted.add("team/app", "1", image);
  await daemon.start({
    HEARTH_CELLS: "0",
    HEARTH_INSECURE_REGISTRIES: registry.host,
    HEARTH_REGISTRY_MIRRORS: `docker.io=${registry.host}`,
  });
  for (const name of ["a", "b"] as const) {
    const { tenant_id } = (await operator("POST", "/api/tenants", { name })).body;
    keys[name] = (await operator("POST", `/api/tenants/${tenant_id}/api-keys`, { name })).body.key;
  }
});
afterAll(async () => {
  await daemon.dispose();
  registry.close();
  unlisted.close();
});

describe("a pull", () => {
  it("gives the tenant an image that runs, and another tenant none", async () => {
    const reference = `${registry.host}/team/app:1`;
    const { status, body } = await pull(a, reference);
    expect([status, body.error]).toEqual([200, undefined]);
    expect(body).toMatchObject({ success: true, error_message: null, image: { reference, env: ["FROM=registry"] } });
    const box = await a("POST", "/api/containers", {
      name: "box",
      image: reference,
      oci: true,
      command: ["sleep", "1000"],
    });
    expect([box.status, box.body.error]).toEqual([201, undefined]);
    const cat = { command: ["sh", "-c", "cat /mark-a"] };
    expect((await a("POST", "/api/containers/box/exec", cat)).body.stdout).toMatch(/^a \d+ \d+\n$/);
    expect(codeOf(await b("POST", "/api/containers", { name: "box", image: reference, oci: true }))).toEqual([
      404,
      "NOT_FOUND",
    ]);
    for (const text of [reference, body.image.id, body.image.id.slice("sha256:".length)])
      expect(codeOf(await b("GET", path(text, "/inspect")))).toEqual([404, "NOT_FOUND"]);
    expect((await b("GET", "/api/oci/images")).body.images).toEqual([]);
  });

  it("shows no password that it refuses", async () => {
    const more = { registry_username: "ada", registry_password: `${SECRET}\0` };
    const answer = await pull(a, `${registry.host}/team/app:1`, more);
    expect(codeOf(answer)).toEqual([400, "INVALID_ARGUMENT"]);
    expect(JSON.stringify(answer.body)).not.toContain(SECRET);
  });

  it("reaches no address that a manifest names, in no spelling", async () => {
    const places: (string | undefined)[] = [];
    const other = createServer(({ url }, response) => {
      places.push(url);
      response.end();
    });
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    try {
      const urls = [`http://127.0.0.1:${(other.address() as AddressInfo).port}/x`];
      const tars = [own("urls")];
      const { config } = makeImage({ layers: tars });
      for (const parts of [
        { layer: { URLS: urls } },
        { layer: { "url\u017f": urls } },
        { manifest: { config: { ...descriptorOf(OCI_CONFIG, config), urls } } },
      ]) {
        registry.add("team/urls", "1", makeImage({ layers: tars, ...parts }));
        expect(codeOf(await pull(a, `${registry.host}/team/urls:1`))).toEqual([400, "IMAGE_INVALID"]);
      }
      expect(places).toEqual([]);
    } finally {
      other.close();
    }
  });

  it("of docker.io goes to its mirror, by every short spelling", async () => {
    for (const text of ["alpine:3.20", "library/alpine:3.20", "index.docker.io/library/alpine:3.20"]) {
      const { body } = await pull(a, text);
      expect([text, body.image?.reference]).toEqual([text, "docker.io/library/alpine:3.20"]);
    }
    expect((await a("GET", "/api/oci/images?filter=alpine")).body.images).toHaveLength(1);
  });

  it("asks the registry in the name of each tenant, also where the store has every layer", async () => {
    const reference = `${registry.host}/team/private:1`;
    const image = registry.add("team/private", "1", shellImage([own("private")]));
    const authorization = `Basic ${Buffer.from(`ada:${SECRET}`).toString("base64")}`;
    registry.behaviour = ({ url = "", headers }, response) => {
      if (!url.includes("/team/private/") || headers.authorization === authorization) return false;
      response.writeHead(401, { "www-authenticate": 'Basic realm="registry"' }).end("{}");
      return true;
    };
    try {
      const credentials = { registry_username: "ada", registry_password: SECRET };
      expect((await pull(a, reference, credentials)).status).toBe(200);
      for (const more of [{}, { ...credentials, registry_password: "wrong" }]) {
        const answer = await pull(b, reference, more);
        expect(codeOf(answer)).toEqual([403, "FORBIDDEN"]);
        expect(JSON.stringify(answer.body)).not.toContain("wrong");
      }
      // By the digest of the manifest neither.
      expect(codeOf(await pull(b, `${registry.host}/team/private@${sha256(image.manifest)}`))).toEqual([
        403,
        "FORBIDDEN",
      ]);
      expect((await b("GET", "/api/oci/images")).body.images).toEqual([]);
      expect((await pull(b, reference, credentials)).status).toBe(200);
      await b("DELETE", path(reference));
    } finally {
      registry.behaviour = () => false;
    }
    const rows = JSON.stringify([
      (await a("GET", "/api/operations")).body,
      (await operator("GET", "/api/audit")).body,
      (await a("GET", path(reference, "/inspect"))).body,
    ]);
    expect(rows).not.toContain(SECRET);
    expect(daemon.output).not.toContain(SECRET);
  });

  it("of a layer that only its digest is known of gives nobody what another tenant has", async () => {
    const secret = registry.add("team/secret", "1", shellImage([own("secret")]));
    expect((await pull(a, `${registry.host}/team/secret:1`)).status).toBe(200);
    // B's own registry names A's layer, and does not have it.
    const mine = new TestRegistry();
    await mine.start();
    try {
      await daemon.stop();
      await daemon.start({
        HEARTH_CELLS: "0",
        HEARTH_INSECURE_REGISTRIES: `${registry.host},${mine.host}`,
        HEARTH_REGISTRY_MIRRORS: `docker.io=${registry.host}`,
      });
      mine.addManifest("b/stolen", "1", secret.manifest, "application/vnd.oci.image.manifest.v1+json");
      mine.addBlob(sha256(secret.config), secret.config);
      const answer = await pull(b, `${mine.host}/b/stolen:1`);
      expect([answer.status >= 400, answer.body.success ?? false]).toEqual([true, false]);
      expect((await b("GET", "/api/oci/images")).body.images).toEqual([]);
    } finally {
      mine.close();
    }
  });

  it("of one image by many callers of a tenant at once is done once", async () => {
    registry.add("team/once", "1", shellImage([own("once")]));
    const before = registry.asked("/team/once/manifests/");
    const answers = await Promise.all(Array.from({ length: 12 }, () => pull(a, `${registry.host}/team/once:1`)));
    expect(answers.map(({ status }) => status)).toEqual(Array(12).fill(200));
    expect(registry.asked("/team/once/manifests/") - before).toBe(1);
    expect((await a("GET", "/api/operations?operation_type=oci.pull")).body.operations[0]).toMatchObject({
      target_resource_id: `${registry.host}/team/once:1`,
    });
  });

  it("of a tag that was moved gives the reference the new image, and containers keep theirs", async () => {
    const reference = `${registry.host}/team/moved:latest`;
    registry.add("team/moved", "latest", shellImage([own("one")]));
    const first = (await pull(a, reference)).body.image;
    const fields = { name: "moved", image: reference, oci: true, command: ["sleep", "1000"] };
    expect((await a("POST", "/api/containers", fields)).status).toBe(201);
    registry.add("team/moved", "latest", shellImage([own("two")]));
    const second = (await pull(a, reference)).body.image;
    expect(second.id).not.toBe(first.id);
    await a("POST", "/api/containers/moved/stop", { timeout_ms: 0 });
    expect((await a("POST", "/api/containers/moved/start?execution=sync")).status).toBe(200);
    const ls = await a("POST", "/api/containers/moved/exec", { command: ["sh", "-c", "echo /mark-*"] });
    expect(ls.body.stdout).toBe("/mark-one\n");
    await a("DELETE", "/api/containers/moved");
    expect(codeOf(await a("GET", path(first.id, "/inspect")))).toEqual([404, "NOT_FOUND"]);
  });

  it("of a reference that no registry knows, or that one denies, gives what the tenant has under it alone", async () => {
    const [target, reference] = [`${registry.host}/own/local:1`, `${registry.host}/team/app:1`];
    await pull(a, reference);
    const { id } = (await a("POST", "/api/oci/images/tag", { reference, target })).body;
    expect((await pull(a, target)).body.image).toMatchObject({ reference: target, id });
    const more = [{ force: true }, { platform: "linux/s390x" }];
    const refused = await Promise.all([pull(b, target), ...more.map((one) => pull(a, target, one))]);
    expect(refused.map(({ status }) => status)).toEqual([404, 404, 404]);
    registry.behaviour = (_request, response) => response.writeHead(403).end() !== null;
    expect([(await pull(a, target)).status, (await pull(b, target)).status]).toEqual([200, 403]);
    registry.behaviour = () => false;
  });

  it("by digest needs no registry once the tenant has it, unless it is forced", async () => {
    const { manifest } = registry.add("team/pinned", "1", shellImage([own("pinned")]));
    const reference = `${registry.host}/team/pinned@${sha256(manifest)}`;
    expect((await pull(a, reference)).body.image).toMatchObject({ tag: null, manifest_digest: sha256(manifest) });
    const before = registry.asked("/team/pinned/");
    expect((await pull(a, reference)).status).toBe(200);
    expect(registry.asked("/team/pinned/")).toBe(before);
    expect((await pull(a, reference, { force: true })).status).toBe(200);
    expect(registry.asked("/team/pinned/")).toBeGreaterThan(before);
    expect(codeOf(await pull(b, `${registry.host}/team/pinned@sha256:${"0".repeat(64)}`))).toEqual([404, "NOT_FOUND"]);
  });
});

describe("a tenant's pull", () => {
  it("reaches no host of this machine that the operator does not list; the operator's does", async () => {
    for (const host of [unlisted.host, `localhost:${unlisted.port}`, `[::1]:${unlisted.port}`, daemon.url.slice(7)]) {
      const answer = await pull(a, `${host}/team/app:1`);
      expect([host, answer.status >= 400 && answer.status < 500]).toEqual([host, true]);
    }
    expect(unlisted.requests).toEqual([]);
    expect((await pull(operator, `${unlisted.host}/team/app:1`)).status).toBe(200);
    await operator("DELETE", path(`${unlisted.host}/team/app:1`));
  });

  it("is stopped by a cancellation, and leaves nothing", async () => {
    const image = registry.add("team/slow", "1", shellImage([own("slow")]));
    registry.behaviour = ({ url = "" }, response) => {
      if (!url.includes("/team/slow/blobs/")) return false;
      response.writeHead(200);
      response.write("x");
      return true;
    };
    try {
      const { body } = await a("POST", `${PULL}?execution=async`, { reference: `${registry.host}/team/slow:1` });
      await eventually("the layer is asked for", () => registry.asked("/team/slow/blobs/") > 0);
      const { body: ended } = await a("POST", `/api/operations/${body.operation_id}/cancel`);
      expect(ended.status).toBe("cancelled");
    } finally {
      registry.behaviour = () => false;
    }
    for (const digest of [sha256(image.config), sha256(image.layers[1] ?? image.config)]) {
      expect(storeLists()).not.toContain(digest.slice("sha256:".length));
    }
    expect((await a("GET", "/api/oci/images?filter=slow")).body.images).toEqual([]);
  });

  it("waits for its other pulls, which leave room for those of another tenant", async () => {
    const held = Promise.withResolvers<void>();
    const names = Array.from({ length: LIMITS.image_pulls_per_tenant_max + 1 }, (_, n) => `team/held${n}`);
    for (const name of names) registry.add(name, "1", shellImage([own(name.slice(5))]));
    registry.behaviour = (request, response) => {
      if (!/\/team\/held\d\//.test(request.url ?? "")) return false;
      void held.promise.then(() => registry.serve(request, response));
      return true;
    };
    try {
      const waiting = names.map((name) => pull(a, `${registry.host}/${name}:1`));
      const asked = () => names.filter((name) => registry.asked(`/${name}/`) > 0).length;
      await eventually("as many pulls run as may", () => asked() === LIMITS.image_pulls_per_tenant_max);
      expect((await pull(b, "alpine:3.20")).status).toBe(200);
      expect(asked()).toBe(LIMITS.image_pulls_per_tenant_max);
      held.resolve();
      expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(names.map(() => 200));
    } finally {
      held.resolve();
      registry.behaviour = () => false;
    }
  });

  it("of an image above the tenant's limit fails before the layers are stored", async () => {
    const { tenant_id, key } = await limited({ image_mb_max: 1 });
    registry.add("team/large", "1", makeImage({ layers: [tarOf("zeros", Buffer.alloc(3_000_000))] }));
    const answer = await pull(as(key), `${registry.host}/team/large:1`);
    expect(codeOf(answer)).toEqual([403, "QUOTA_EXCEEDED"]);
    expect((await as(key)("GET", "/api/oci/images")).body.images).toEqual([]);
    await operator("DELETE", `/api/tenants/${tenant_id}?force=true`);
  });

  it("of a layer in gzip that unpacks to more than the tenant may have gives the store no such layer", async () => {
    const { tenant_id, key } = await limited({ image_mb_max: 4 });
    const bomb = Buffer.concat([own("bomb").subarray(0, -1024), tarOf("zeros", Buffer.alloc(256 * 1024 * 1024))]);
    registry.add("team/bomb", "1", makeImage({ layers: [bomb] }));
    expect(codeOf(await pull(as(key), `${registry.host}/team/bomb:1`))).toEqual([403, "QUOTA_EXCEEDED"]);
    expect(storeLists()).not.toContain(sha256(bomb));
    await operator("DELETE", `/api/tenants/${tenant_id}?force=true`);
  });

  it("names the host of a registry that does not answer", async () => {
    const closed = await new TestRegistry().start();
    const { host } = closed;
    closed.close();
    const answer = await pull(operator, `${host}/team/app:1`);
    expect([...codeOf(answer), answer.body.error]).toEqual([502, "REGISTRY_FAILED", expect.stringContaining(host)]);
  });
});

describe("a pull beside deletions of the same image by another tenant", () => {
  it("succeeds each time, whichever layers the store frees meanwhile", async () => {
    const reference = `${registry.host}/team/fleeting:1`;
    registry.add("team/fleeting", "1", shellImage([own("fleeting")]));
    const rounds = async (call: Call) => {
      const statuses: unknown[] = [];
      for (let i = 0; i < 10; i++) {
        const { status, body } = await pull(call, reference);
        statuses.push([status, body.error]);
        statuses.push([(await call("DELETE", path(reference))).status, undefined]);
      }
      return statuses;
    };
    const all = await Promise.all([rounds(a), rounds(b)]);
    expect(all.flat().filter(([status]: Json) => status !== 200)).toEqual([]);
  }, 120_000);
});

async function limited(limits: object) {
  const { tenant_id } = (await operator("POST", "/api/tenants", { name: "limited", limits })).body;
  const { key } = (await operator("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body;
  return { tenant_id, key };
}

describe("the command line", () => {
  const commands = () => new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: keys.a });

  it("pulls, lists, tags, runs and deletes images", async () => {
    const own = commands();
    try {
      const run = async (line: string) => {
        const { code, out, err } = await own.run(line.split(" "));
        expect([line, code, err]).toEqual([line, 0, expect.any(String)]);
        return out;
      };
      expect(await run("pull alpine:3.20")).toMatch(/^docker\.io\/library\/alpine:3\.20 is pulled: [0-9a-f]{12}, /);
      expect(await run("images alpine --digests")).toMatch(
        /^REPOSITORY +TAG +DIGEST +ID +SIZE[\s\S]*alpine +3\.20 +sha256:/,
      );
      expect(await run("tag alpine:3.20 acme/base:1")).toMatch(/^docker\.io\/acme\/base:1 is [0-9a-f]{12}\n$/);
      expect(await run("image inspect acme/base:1")).toContain("docker.io/acme/base:1");
      expect(await run("image history acme/base:1")).toContain("STEP");
      expect(
        await own.run(["run", "--rm", "--image", "acme/base:1", "--oci", "--", "sh", "-c", "echo hi"]),
      ).toMatchObject({
        code: 0,
        out: "hi\n",
      });
      expect(await run("rmi acme/base:1 alpine:3.20")).toBe(
        "docker.io/acme/base:1 is deleted\ndocker.io/library/alpine:3.20 is deleted\n",
      );
    } finally {
      own.dispose();
    }
  });

  it("pulls the image of a container if it is missing, or as --pull says", async () => {
    const own = commands();
    try {
      const references = async () => (await a("GET", "/api/oci/images")).body.images.map((one: Json) => one.reference);
      const run = (...flags: readonly string[]) =>
        own.run(["run", "--rm", "--image", "alpine:3.20", ...flags, "--", "sh", "-c", "echo hi"]);
      const asked = () => registry.requests.filter(({ url }) => url.includes("/library/alpine/manifests/")).length;
      expect((await run("--pull", "never")).code).toBe(1);
      expect(await references()).not.toContain("docker.io/library/alpine:3.20");
      const before = asked();
      expect(await run("--oci")).toMatchObject({ code: 0, out: "hi\n" });
      expect(await references()).toContain("docker.io/library/alpine:3.20");
      const first = asked();
      expect(first).toBeGreaterThan(before);
      expect(await run("--pull", "missing")).toMatchObject({ code: 0, out: "hi\n" });
      expect(asked()).toBe(first);
      expect(await run("--pull", "always")).toMatchObject({ code: 0, out: "hi\n" });
      expect(asked()).toBeGreaterThan(first);
      expect((await own.run(["rmi", "alpine:3.20"])).code).toBe(0);

      const create = ["create", "of-image", "--image", "alpine:3.20", "--handler", "true", "--pull"];
      expect((await own.run([...create, "never"])).code).toBe(1);
      expect(await own.run([...create, "missing"])).toMatchObject({ code: 0 });
      const { body: made } = await a("GET", "/api/functions/by-name/of-image");
      expect([made.image, made.oci]).toEqual(["docker.io/library/alpine:3.20", true]);
      expect((await own.run(["rmi", "alpine:3.20"])).code).toBe(1);
      expect((await own.run(["delete", "of-image"])).code).toBe(0);
      expect((await own.run(["prune"])).out).toContain("alpine:3.20");
    } finally {
      own.dispose();
    }
  });

  it("builds an image from a folder, and tells which step failed", async () => {
    const own = commands();
    const write = (name: string, lines: readonly string[]) =>
      writeFileSync(join(own.home, "app", name), `${lines.join("\n")}\n`);
    try {
      mkdirSync(join(own.home, "app"));
      write("kept.txt", ["kept"]);
      write("left.txt", ["left out"]);
      write(".dockerignore", ["left.txt"]);
      const steps = ["ARG WORD", "RUN echo said $WORD > /said; cat /said", "COPY . /app", 'CMD ["cat", "/said"]'];
      write("Dockerfile", ["FROM alpine:3.20", ...steps]);
      write("Dockerfile.fails", ["FROM alpine:3.20", "RUN echo before; exit 3"]);
      write("Dockerfile.waits", ["FROM alpine:3.20", "RUN echo waits; sleep 1000"]);
      const build = (...flags: readonly string[]) => ["build", "app", "-t", "team/built:1", ...flags];
      const built = await own.run(build("--build-arg", "WORD=hello"));
      expect([built.code, built.out]).toEqual([0, expect.stringMatching(/^docker\.io\/team\/built:1 is built: /)]);
      expect(built.err).toMatch(/step \d+\/\d+: RUN echo said[^\n]*\n {2}\| said hello\n/);
      const [, advice = ""] = /^to run it: hearth (.*)$/m.exec(built.err) ?? [];
      expect(await own.run(advice.split(" "))).toEqual({ code: 0, out: "said hello\n", err: "" });
      const words = ["--rm", "--image", "team/built:1", "--oci", "--", "sh", "-c", "cat /said /app/kept.txt; ls /app"];
      const { out } = await own.run(["run", ...words]);
      expect(out).toMatch(/^said hello\nkept\n/);
      expect(out).not.toContain("left.txt");

      const failed = await own.run(build("-f", "Dockerfile.fails"));
      expect([failed.code, failed.out]).toEqual([1, ""]);
      expect(failed.err).toMatch(/ {2}\| before\n[\s\S]*RUN echo before; exit 3[\s\S]*exit code 3 \[BUILD_FAILED\]\n/);

      const waiting = own.start("hearth", build("-f", "Dockerfile.waits"));
      await eventually("the step runs", () => waiting.err.includes("RUN echo waits"));
      waiting.child.kill("SIGINT");
      expect((await waiting.ended).code).toBe(130);
      const { operations } = (await a("GET", "/api/operations?operation_type=oci.build")).body;
      expect(operations.map(({ status }: Json) => status)).toEqual(["cancelled", "failed", "succeeded"]);
      expect((await a("GET", "/api/build-contexts")).body.build_contexts).toEqual([]);
      expect((await own.run(["build", "app"])).code).toBe(2);
      expect((await own.run(["rmi", "team/built:1"])).code).toBe(0);
    } finally {
      own.dispose();
    }
  });

  it("shows refusals with the command that helps", async () => {
    const own = commands();
    try {
      const never = ["--pull", "never"];
      const missing = await own.run(["run", "--image", "no-such:1", ...never, "--", "true"]);
      expect([missing.code, missing.err]).toEqual([1, expect.stringContaining("pull it first: hearth pull")]);
      const unknown = await own.run(["run", "--image", "no-such:1", "--oci", "--", "true"]);
      expect([unknown.code, unknown.err]).toEqual([1, expect.stringContaining("no-such")]);
      const pulled = await own.run(["run", "--image", "prod", "--pull", "always", "--", "true"]);
      expect([pulled.code, pulled.err]).toEqual([2, expect.stringContaining("profiles are never pulled: prod")]);
      const profile = await own.run(["run", "--image", "alpine", "--", "true"]);
      expect([profile.code, profile.err]).toEqual([1, expect.stringContaining("hearth pull")]);
      expect((await own.run(["pull", "dir:/etc"])).code).toBe(1);
      expect((await own.run(["pull", "alpine", "--password-stdin"])).code).toBe(2);
      expect((await own.run(["image", "share", "alpine"])).err).toContain("FORBIDDEN");
    } finally {
      own.dispose();
    }
  });
});

describe("at the end", () => {
  it("nothing is left of the pulls, and the store frees what tenants deleted", async () => {
    await user.delete();
    for (const call of [a, b, operator]) {
      for (const { container_id } of (await call("GET", "/api/containers")).body.containers)
        await call("DELETE", `/api/containers/${container_id}`);
      for (const { reference } of (await call("GET", "/api/oci/images")).body.images)
        expect((await call("DELETE", path(reference))).status).toBe(200);
    }
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
    const names = build("images", "--format", "{{.Name}}:{{.Tag}}");
    expect(names).not.toContain(registry.host);
    await daemon.start({ HEARTH_CELLS: "0" });
    await eventually("no image is kept", () => !build("images", "--format", "{{.Name}}:{{.Tag}}").includes(daemon.tag));
  });
});
