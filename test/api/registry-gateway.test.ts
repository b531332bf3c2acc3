/** buildah itself pulls through the registry gateway, from Debian's docker-registry: plain, with TLS, with a password. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { PullSource } from "../../src/oci/registry/gateway.ts";
import { DockerRegistry, REGISTRY_USER } from "../support/docker-registry.ts";
import { GatewayTest } from "../support/gateway.ts";
import {
  type Certificate,
  makeCertificate,
  makeImage,
  makeIndex,
  OCI_INDEX,
  sha256,
  TestRegistry,
  tarOf,
} from "../support/registry.ts";

const run = promisify(execFile);
const NO_CREDENTIALS = {};

describe("buildah, through a registry gateway,", () => {
  const registry = new DockerRegistry();
  const content = randomBytes(2_000_000);
  const image = makeImage({ layers: [tarOf("lower", content), tarOf("upper", Buffer.from("upper"))] });
  const files = [content, Buffer.from("upper")].map(sha256);
  const foreign = makeImage({ layers: [tarOf("lower", content)], architecture: "arm64" });
  let certificate: Certificate;
  let test: GatewayTest;

  /** buildah on a store of this test's own, which mounts nothing. */
  const buildah = async (...args: string[]): Promise<string> => {
    const store = [
      "--root",
      `${test.directory}/store`,
      "--runroot",
      `${test.directory}/run`,
      "--storage-driver",
      "vfs",
    ];
    mkdirSync(`${test.directory}/tmp`, { recursive: true });
    const env = { ...process.env, TMPDIR: `${test.directory}/tmp` };
    return (await run("buildah", [...store, ...args], { env })).stdout.trim();
  };
  /** Pulls as the engine does. Resolves to the image's id. */
  const pull = ({ registries_conf, pull_reference }: PullSource, ...flags: string[]): Promise<string> => {
    const directory = dirname(registries_conf);
    const own = ["--registries-conf", registries_conf, "--registries-conf-dir", `${directory}/registries.conf.d`];
    const bare = ["--quiet", "--retry", "0", "--policy", "always", "--authfile", `${directory}/auth.json`, ...flags];
    return buildah(...own, "pull", ...bare, `docker://${pull_reference}`);
  };
  /** Digests of the two files in an image. */
  const filesOf = async (id: string): Promise<readonly string[]> => {
    const container = await buildah("from", "--pull-never", id);
    const root = await buildah("mount", container);
    const files = ["lower", "upper"].map((name) => sha256(readFileSync(`${root}/${name}`)));
    await buildah("rm", container);
    return files;
  };

  beforeAll(async () => {
    certificate = makeCertificate();
    await registry.start();
    await registry.push("team/app", "1.0", image);
    await registry.push("team/app", "arm64", foreign);
    const index = makeIndex([
      [foreign.manifest, { os: "linux", architecture: "arm64" }],
      [image.manifest, { os: "linux", architecture: "amd64" }],
    ]);
    await registry.pushManifest("team/app", "all", index, OCI_INDEX);
  });
  afterAll(() => registry.dispose());
  beforeEach(() => {
    test = new GatewayTest();
  });
  afterEach(() => test.close());

  it.each([
    ["plain", () => ({}), null],
    ["with TLS", () => ({ certificate }), null],
    ["plain, with a password", () => ({ hasPassword: true }), REGISTRY_USER],
    ["with TLS and a password", () => ({ certificate, hasPassword: true }), REGISTRY_USER],
  ])("pulls from a registry %s", async (_, options, credentials) => {
    await registry.start(options());
    const directory = `${test.directory}/certificates/${registry.host}`;
    mkdirSync(directory, { recursive: true });
    writeFileSync(`${directory}/ca.crt`, certificate.cert);
    const gateway = test.gateway();
    for (const tag of ["1.0", "all"]) {
      const source = await test.open(gateway, `${registry.host}/team/app:${tag}`, { credentials });
      expect(source.manifest_digest).toBe(sha256(image.manifest));
      const id = await pull(source);
      expect(id).toBe(source.image_id);
      expect(source.failure).toBeNull();
      await source.finish(new Set());
    }
    const id = sha256(image.config).slice("sha256:".length);
    expect(await filesOf(id)).toEqual(files);
    if (credentials === null) return;
    for (const wrong of [{ credentials: { ...REGISTRY_USER, password: "wrong" } }, NO_CREDENTIALS]) {
      await expect(test.open(gateway, `${registry.host}/team/app:1.0`, wrong)).rejects.toMatchObject({
        code: "FORBIDDEN",
      });
    }
  });

  it("pulls under the name of the registry whose images a mirror serves", async () => {
    await registry.start();
    const gateway = test.gateway({ mirrors: new Map([["quay.io", registry.host]]) });
    const source = await test.open(gateway, "quay.io/team/app:1.0", { isOperator: false });
    expect(source.pull_reference).toBe(`quay.io/team/app@${sha256(image.manifest)}`);
    expect(await pull(source)).toBe(source.image_id);
    expect(await buildah("images", "--format", "{{.Name}}")).toContain("quay.io/team/app");
  });

  it("pulls an image of another platform where that is asked for", async () => {
    await registry.start();
    const reference = `${registry.host}/team/app:all`;
    const source = await test.open(test.gateway(), reference, { platform: "linux/arm64" });
    expect(await pull(source, "--platform", "linux/arm64")).toBe(sha256(foreign.config).slice("sha256:".length));
    await expect(test.open(test.gateway(), reference, { platform: "linux/s390x" })).rejects.toMatchObject({
      code: "NOT_FOUND",
      message: expect.stringContaining("(it supports linux/arm64, linux/amd64)"),
    });
  });

  it("obeys a signature policy for the names of registries", async () => {
    await registry.start();
    const policy = `${test.directory}/policy.json`;
    const scope = `${registry.host}/team`;
    const trust = {
      default: [{ type: "reject" }],
      transports: { docker: { [scope]: [{ type: "insecureAcceptAnything" }] } },
    };
    writeFileSync(policy, JSON.stringify(trust));
    const gateway = test.gateway();
    const source = await test.open(gateway, `${registry.host}/team/app:1.0`);
    expect(await pull(source, "--signature-policy", policy)).toBe(source.image_id);
    await registry.push("other/app", "1.0", image);
    const other = await test.open(gateway, `${registry.host}/other/app:1.0`);
    await expect(pull(other, "--signature-policy", policy)).rejects.toThrow(/rejected by policy/);
  });

  it("stores nothing of an image whose layer differs from its digest, and the gateway says why", async () => {
    const hostile = await new TestRegistry().start();
    try {
      hostile.add("team/app", "1.0", image);
      const [large = Buffer.alloc(0)] = image.layers;
      const changed = Buffer.from(large);
      changed[changed.length - 9] = (changed.at(-9) ?? 0) ^ 1;
      hostile.addBlob(sha256(large), changed);
      const source = await test.open(test.gateway(), `${hostile.host}/team/app:1.0`);
      await expect(pull(source)).rejects.toThrow();
      expect(source.failure).toMatchObject({
        code: "IMAGE_INVALID",
        message: `layer ${sha256(large)} differs from its digest`,
      });
      expect(await buildah("images", "--quiet", "--all")).toBe("");
    } finally {
      hostile.close();
    }
  });

  it("resumes where the connection to the registry breaks, without a request more of its own", async () => {
    const flaky = await new TestRegistry().start();
    try {
      flaky.add("team/app", "1.0", image);
      const [large = Buffer.alloc(0)] = image.layers;
      let requests = 0;
      flaky.behaviour = (request, response) => {
        if (!request.url?.endsWith(sha256(large)) || ++requests > 1) return false;
        response.writeHead(200, { "content-length": large.length });
        response.write(large.subarray(0, 1_000_000), () => response.destroy());
        return true;
      };
      const source = await test.open(test.gateway(), `${flaky.host}/team/app:1.0`);
      expect(await pull(source)).toBe(source.image_id);
      expect(
        flaky.requests.filter(({ url }) => url.endsWith(sha256(large))).map(({ headers }) => headers.range),
      ).toEqual([undefined, expect.stringMatching(/^bytes=\d+-$/)]);
      expect(await filesOf(source.image_id)).toEqual(files);
    } finally {
      flaky.close();
    }
  });
});
