/** Registries that lie, stall, leak and lead astray: each pull ends with an error that says which host and why, and nothing is served. */
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import type { RegistryGateway } from "../../src/oci/registry/gateway.ts";
import { type GatewayOptions, GatewayTest, placeOf, pullFrom } from "../support/gateway.ts";
import {
  descriptorOf,
  jsonBytes,
  makeCertificate,
  makeImage,
  makeIndex,
  OCI_CONFIG,
  OCI_INDEX,
  OCI_LAYER,
  OCI_MANIFEST,
  sha256,
  type TestRegistry,
  tarOf,
} from "../support/registry.ts";

const small = (text: string) => tarOf("file", Buffer.from(text));
const AMD64 = { os: "linux", architecture: "amd64" };

describe("a pull", () => {
  let test: GatewayTest;
  let registry: TestRegistry;
  let gateway: RegistryGateway;
  let name = "";

  const use = (options: GatewayOptions = {}) => {
    gateway = test.gateway(options);
  };
  const open = (options = {}, reference = `${name}/app`) => test.open(gateway, reference, options);
  const failure = (options = {}, reference = `${name}/app`) =>
    open(options, reference).then(
      () => null,
      (error: unknown) => error as Error,
    );
  /** Lets `answer` answer what contains the text. */
  const misbehave = (part: string, answer: (response: ServerResponse, request: IncomingMessage) => void) => {
    registry.behaviour = (request, response) => {
      const isMeant = request.url?.includes(part) === true;
      if (isMeant) answer(response, request);
      return isMeant;
    };
  };

  beforeEach(async () => {
    test = new GatewayTest();
    registry = await test.registry();
    name = registry.host;
    use();
  });
  afterEach(() => test.close());

  describe("names the registry and the reason if", () => {
    it("the host refuses the connection, without another attempt", async () => {
      registry.close();
      expect(await failure()).toMatchObject({
        code: "REGISTRY_FAILED",
        retryable: true,
        message: `registry ${name} not reachable: connection refused`,
      });
      use({ mirrors: new Map([["docker.io", name]]) });
      expect(await failure({}, "alpine")).toMatchObject({
        message: `registry docker.io (mirror ${name}) not reachable: connection refused`,
      });
    });

    it("the name does not exist, or its name server does not answer", async () => {
      for (const [code, reason] of [
        ["ENOTFOUND", "host name not found"],
        ["EAI_AGAIN", "name server does not respond"],
      ] as const) {
        let lookups = 0;
        const resolve = async () => {
          lookups++;
          throw Object.assign(new Error(code), { code });
        };
        use({ resolve });
        expect(await failure({}, "registry.test/app")).toMatchObject({
          code: "REGISTRY_FAILED",
          message: `registry registry.test not reachable: ${reason}`,
          hint: expect.stringMatching(/^check the reference; .*HEARTH_REGISTRY_MIRRORS$/),
        });
        expect(lookups).toBe(1);
      }
    });

    it.each([
      [401, "FORBIDDEN", "denies access to image"],
      [403, "FORBIDDEN", "denies access to image"],
      [404, "NOT_FOUND", "does not have image"],
      [418, "REGISTRY_FAILED", "failed: status 418 for image"],
      [500, "REGISTRY_FAILED", "failed: status 500 for image"],
    ])("it answers %s", async (status, code, problem) => {
      misbehave("/manifests/", (response) => response.writeHead(status).end("secret text of the registry"));
      const error = await failure();
      expect(error).toMatchObject({ code, message: expect.stringContaining(`registry ${name} ${problem}`) });
      expect(error?.message).not.toMatch(/secret text/);
      expect(registry.asked("/manifests/")).toBe(status >= 500 ? LIMITS.registry_attempts_max : 1);
    });

    it("it limits requests, after waiting as long as it asks for, unless that is long", async () => {
      misbehave("/manifests/", (response) => response.writeHead(429, { "retry-after": "1" }).end());
      const began_ms = performance.now();
      use({ limits: { registry_attempts_max: 2 } });
      expect(await failure()).toMatchObject({ code: "RATE_LIMITED", retry_after: 1 });
      expect(performance.now() - began_ms).toBeGreaterThan(900);
      misbehave("/manifests/", (response) => response.writeHead(429, { "retry-after": "3600" }).end());
      expect(await failure()).toMatchObject({ code: "RATE_LIMITED", retry_after: LIMITS.retry_after_seconds_max });
      expect(registry.asked("/manifests/")).toBe(3);
    });

    it("it answers with a page", async () => {
      misbehave("/manifests/", (response) =>
        response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end("<html>Log in</html>"),
      );
      expect(await failure()).toMatchObject({
        code: "REGISTRY_FAILED",
        message: `registry ${name} does not answer as a registry: text/html instead of a manifest`,
      });
      registry.behaviour = () => false;
      registry.add("app", "latest", makeImage({ layers: [small("x")] }));
      misbehave("/blobs/", (response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>"));
      expect(await failure()).toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringContaining("does not answer as a registry: HTML instead of configuration"),
      });
    });

    it("it does not speak HTTP, or not TLS", async () => {
      const server = createServer((socket) => socket.end("220 mail.test ESMTP\r\n"));
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const { port } = server.address() as { port: number };
      expect(await failure({}, `127.0.0.1:${port}/app`)).toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringContaining(`registry 127.0.0.1:${port} not reachable`),
      });
      server.close();
      use({ allowed: ["registry.test"], resolve: async () => ["127.0.0.1"] });
      expect(await failure({}, `registry.test:${registry.port}/app`)).toMatchObject({
        code: "REGISTRY_FAILED",
        message: `registry registry.test:${registry.port} not reachable: the host does not speak TLS`,
      });
      expect(registry.requests).toEqual([]);
    });

    it("its certificate is not trusted", async () => {
      const certificate = makeCertificate();
      const tls = await test.registry(certificate);
      tls.add("app", "latest", makeImage({ layers: [small("x")] }));
      expect(await failure({}, `${tls.host}/app`)).toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringMatching(/^registry \S+ not trusted: certificate not valid \([A-Z_]+\)$/),
      });
      mkdirSync(`${test.directory}/certificates/${tls.host}`, { recursive: true });
      writeFileSync(`${test.directory}/certificates/${tls.host}/ca.crt`, certificate.cert);
      await pullFrom(await open({}, `${tls.host}/app`));
    });

    it.each(["/manifests/", "/blobs/"])("it stalls or drips at %s", async (part) => {
      registry.add("app", "latest", makeImage({ layers: [small("x")] }));
      use({ limits: { registry_silence_ms: 400 } });
      const stalled = { code: "TIMEOUT", message: expect.stringContaining(`registry ${name} stalled`) };
      misbehave(part, () => {});
      expect(await failure()).toMatchObject(stalled);
      misbehave(part, (response) => {
        response.writeHead(200, { "content-type": OCI_MANIFEST });
        const drip = setInterval(() => response.write(" "), 20);
        response.once("close", () => clearInterval(drip));
      });
      expect(await failure()).toMatchObject(stalled);
    });
  });

  describe("goes on after", () => {
    it("failures that pass", async () => {
      const image = registry.add("app", "latest", makeImage({ layers: [tarOf("f", randomBytes(400_000))] }));
      const counts = new Map<string, number>();
      registry.behaviour = ({ url = "" }, response) => {
        const count = (counts.get(url) ?? 0) + 1;
        counts.set(url, count);
        if (count === 1) response.writeHead(503).end();
        if (count === 2) response.destroy();
        return count <= 2;
      };
      expect((await pullFrom(await open())).layers).toEqual(image.layers.map(sha256));
    });

    it.each(["with", "without"])("connections that break in a layer, %s ranges", async (how) => {
      const image = registry.add("app", "latest", makeImage({ layers: [tarOf("f", randomBytes(900_000))] }));
      const [layer = Buffer.alloc(0)] = image.layers;
      let requests = 0;
      misbehave(`/blobs/${sha256(layer)}`, (response, request) => {
        const [, asked = "0"] = /^bytes=(\d+)-$/.exec(request.headers.range ?? "") ?? [];
        const first = how === "with" ? Number(asked) : 0;
        const range = { "content-range": `bytes ${first}-${layer.length - 1}/${layer.length}` };
        response.writeHead(first > 0 ? 206 : 200, {
          "content-length": layer.length - first,
          ...(first > 0 ? range : {}),
        });
        if (++requests > 3) return void response.end(layer.subarray(first));
        response.write(layer.subarray(first, 250_000 * requests), () => response.destroy());
      });
      expect((await pullFrom(await open())).layers).toEqual(image.layers.map(sha256));
      expect(requests).toBe(4);
    });
  });

  it("ends if a layer never gets further", async () => {
    const image = registry.add("app", "latest", makeImage({ layers: [small("x")] }));
    const [layer = Buffer.alloc(0)] = image.layers;
    misbehave(`/blobs/${sha256(layer)}`, (response) => {
      response
        .writeHead(200, { "content-length": layer.length })
        .write(layer.subarray(0, 10), () => response.destroy());
    });
    const source = await open();
    await expect(pullFrom(source)).rejects.toThrow();
    expect(source.failure).toMatchObject({ code: "REGISTRY_FAILED", message: expect.stringContaining(name) });
    expect(registry.asked(sha256(layer))).toBe(LIMITS.registry_attempts_max);
    // Everything after the first failure is denied.
    expect((await fetch(`${placeOf(source)}/manifests/${source.manifest_digest}`)).status).toBe(403);
    expect(source.failed.aborted).toBe(true);
    await expect(source.finish(new Set())).rejects.toBe(source.failure);
  });

  it("ends when its caller aborts it, which is no failure of the registry", async () => {
    misbehave("/manifests/", () => {});
    const over = new AbortController();
    const opening = failure({ signal: over.signal });
    await expect.poll(() => registry.asked("/manifests/")).toBe(1);
    over.abort(new Error("cancelled"));
    expect(await opening).toMatchObject({ message: "cancelled" });
  });

  describe("refuses as no image", () => {
    const serve = (bytes: Buffer, type = OCI_MANIFEST) => registry.addManifest("app", "latest", bytes, type);
    const invalid = (problem: string) => ({ code: "IMAGE_INVALID", message: expect.stringContaining(problem) });
    const made = (manifest: object, more: object = {}) =>
      registry.add("app", "latest", makeImage({ layers: [small("x")], manifest, ...more }));

    it.each(["declared", "undeclared"])("a manifest of 100 MB, its size %s", async (how) => {
      const piece = Buffer.alloc(1024 * 1024, " ");
      let sent_bytes = 0;
      misbehave("/manifests/", (response) => {
        response.writeHead(200, {
          "content-type": OCI_MANIFEST,
          ...(how === "declared" ? { "content-length": 1e8 } : {}),
        });
        const more = () => {
          sent_bytes += piece.length;
          if (sent_bytes < 1e8 && !response.destroyed) response.write(piece, more);
        };
        more();
      });
      expect(await failure()).toMatchObject(invalid(`is too large (limit ${LIMITS.manifest_bytes_max} bytes)`));
      expect(sent_bytes).toBeLessThan(5e7);
    });

    it("an index that leads to itself, to other content, or too deep", async () => {
      const loop = makeIndex([[Buffer.from("{}"), AMD64, OCI_INDEX]]);
      serve(loop, OCI_INDEX);
      // Whatever digest is asked for, the same index comes.
      misbehave("/manifests/", (response) => response.writeHead(200, { "content-type": OCI_INDEX }).end(loop));
      expect(await failure()).toMatchObject(invalid("has a manifest that differs from its digest"));
      registry.behaviour = () => false;
      let inner = registry.add("app", "image", makeImage({ layers: [small("x")] })).manifest;
      for (let depth = 0; depth <= LIMITS.index_depth_max; depth++) {
        inner = makeIndex([[inner, AMD64, depth === 0 ? OCI_MANIFEST : OCI_INDEX]]);
        serve(inner, OCI_INDEX);
      }
      expect(await failure()).toMatchObject(invalid(`has indexes inside indexes (limit ${LIMITS.index_depth_max})`));
    });

    it("an index with too many manifests, or with wrong ones", async () => {
      const { manifest } = registry.add("app", "image", makeImage({ layers: [small("x")] }));
      serve(makeIndex(Array.from({ length: LIMITS.index_manifests_max + 1 }, () => [manifest, AMD64])), OCI_INDEX);
      expect(await failure()).toMatchObject(invalid(`(limit ${LIMITS.index_manifests_max})`));
      const index = (entry: object) => jsonBytes({ schemaVersion: 2, mediaType: OCI_INDEX, manifests: [entry] });
      const entry = { ...descriptorOf(OCI_MANIFEST, manifest), platform: AMD64 };
      serve(index({ ...entry, size: manifest.length + 1 }), OCI_INDEX);
      expect(await failure()).toMatchObject(invalid("has a manifest that differs from its size"));
      for (const wrong of [
        { size: -1 },
        { size: 1.5 },
        { size: "7" },
        { digest: "sha256:../../x" },
        { mediaType: 7 },
      ]) {
        serve(index({ ...entry, ...wrong }), OCI_INDEX);
        expect(await failure()).toMatchObject(invalid("has an invalid index: 0."));
      }
      serve(index({ ...entry, digest: sha256(Buffer.from("none")) }), OCI_INDEX);
      expect(await failure()).toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringContaining("lacks manifest"),
      });
    });

    it.each([
      ["", "is not a JSON object"],
      ["[]", "is not a JSON object"],
      ["null", "is not a JSON object"],
      ['{"schemaVersion":1,"fsLayers":[]}', "schema version 1"],
      ["{}", "has an invalid manifest"],
      ['{"manifests":[],"layers":[]}', "contradicts its content"],
      ['{"manifests":[],"config":{}}', "contradicts its content"],
      ['{"layers":{"length":1e9},"config":{}}', "has an invalid manifest"],
    ])("the manifest %s", async (text, problem) => {
      serve(Buffer.from(text), "application/json");
      expect(await failure()).toMatchObject(invalid(problem));
    });

    it("a configuration at URLs of its own, from where buildah would fetch it", async () => {
      const { config } = makeImage({ layers: [small("x")] });
      made({ config: { ...descriptorOf(OCI_CONFIG, config), urls: ["http://127.0.0.1:1/x"] } });
      expect(await failure()).toMatchObject(invalid("has a configuration that lies at URLs of its own"));
    });

    describe("a manifest that Go reads in another way, which would fetch a layer from anywhere", () => {
      const layer = descriptorOf(OCI_LAYER, Buffer.from("x"));
      const config = descriptorOf(OCI_CONFIG, Buffer.from("{}"));
      const urls = ["http://127.0.0.1:1/x"];
      const text = (value: unknown) => JSON.stringify(value);
      const manifest = (layers: string) =>
        `{"schemaVersion":2,"mediaType":"${OCI_MANIFEST}","config":${text(config)},${layers}}`;
      const [first = "", second = ""] = [[{ ...layer, urls }], [layer]].map(text);

      it.each([
        [
          "with URLs in capitals",
          manifest(`"layers":${text([{ ...layer, URLs: urls }])}`),
          "spelling of the field urls",
        ],
        [
          "with a long s",
          manifest(`"layers":${text([{ ...layer, "url\u017f": urls }])}`),
          "spelling of the field urls",
        ],
        ["with other layers", manifest(`"layers":${second},"Layers":${first}`), "spelling of the field layers"],
        ["with layers twice", manifest(`"layers":${first},"layers":${second}`), "two fields of one name"],
        [
          "with layers twice, escaped",
          manifest(`"layers":${first},"l\\u0061yers":${second}`),
          "two fields of one name",
        ],
        ["with a digest twice", manifest(`"layers":[{"digest":"x",${second.slice(2)}`), "two fields of one name"],
      ])("%s", async (_how, bytes, problem) => {
        serve(Buffer.from(bytes));
        expect(await failure()).toMatchObject(invalid(problem));
      });

      it("but not one whose annotations and texts look like it", async () => {
        made({ annotations: { URLS: ":", urls: '\\":"{', Digest: "" } });
        expect(await failure()).toBeNull();
      });
    });

    it("documents that would hold the event loop: deep ones, and ones of many values", async () => {
      const deep = `{"x":${"[".repeat(2e5)}${"]".repeat(2e5)}}`;
      const wide = `{"manifests":[${"{},".repeat(1.5e5)}{}]}`;
      for (const text of [deep, wide]) {
        serve(Buffer.from(text));
        expect(await failure()).toMatchObject(invalid("has a document"));
        const config = { mediaType: OCI_CONFIG, digest: sha256(Buffer.from(text)), size: text.length };
        registry.addBlob(config.digest, Buffer.from(text));
        made({ config });
        expect(await failure()).toMatchObject(invalid("has a document"));
      }
    });

    it("a document whose type contradicts its content", async () => {
      const { manifest } = made({});
      serve(manifest, OCI_INDEX);
      expect(await failure()).toMatchObject(invalid("contradicts its content"));
      made({ mediaType: OCI_INDEX });
      expect(await failure()).toMatchObject(invalid("contradicts its content"));
    });

    it("a manifest that is another than the pinned one", async () => {
      const { manifest } = made({});
      misbehave("/manifests/", (response) => response.writeHead(200, { "content-type": OCI_MANIFEST }).end(manifest));
      expect(await failure({}, `${name}/app@${sha256(Buffer.from("pinned"))}`)).toMatchObject(
        invalid("differs from its digest"),
      );
    });

    it("layers at URLs of their own, of unknown types, of two sizes, too many or too large", async () => {
      made({}, { layer: { urls: ["http://169.254.169.254/layer"] } });
      expect(await failure()).toMatchObject(invalid("has a layer that lies at URLs of its own"));
      for (const mediaType of ["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "text/plain\u001b[2J"]) {
        made({}, { layer: { mediaType } });
        const error = await failure();
        expect(error).toMatchObject(invalid("has a layer of an unknown type"));
        expect(error?.message).not.toContain("\u001b");
      }
      const [layer = Buffer.alloc(0)] = makeImage({ layers: [small("x")] }).layers;
      const descriptor = descriptorOf("application/vnd.oci.image.layer.v1.tar+gzip", layer);
      made({ layers: [descriptor, { ...descriptor, size: 1 }] });
      expect(await failure()).toMatchObject(invalid("has a layer of two sizes"));
      made({ layers: Array.from({ length: LIMITS.image_layers_max + 1 }, () => descriptor) });
      expect(await failure()).toMatchObject(invalid(`(limit ${LIMITS.image_layers_max})`));
      made({ layers: [{ ...descriptor, size: LIMITS.image_bytes_max + 1 }] });
      expect(await failure()).toMatchObject(invalid(`(limit ${LIMITS.image_bytes_max})`));
    });

    it("what is no image: a chart, a configuration that is large, missing, wrong or of other layers", async () => {
      const config = {
        mediaType: "application/vnd.cncf.helm.config.v1+json",
        digest: sha256(Buffer.from("{}")),
        size: 2,
      };
      made({ config });
      expect(await failure()).toMatchObject(invalid("application/vnd.cncf.helm.config.v1+json"));
      made({}, { config: { config: { Env: ["A=".padEnd(10_000_000, "x")] } } });
      expect(await failure()).toMatchObject(invalid(`(limit ${LIMITS.registry_config_bytes_max})`));
      made({}, { config: { rootfs: { diff_ids: [] } } });
      expect(await failure()).toMatchObject(invalid("1 layers, but 0 diff_ids"));
      made({}, { config: { rootfs: { diff_ids: ["sha256:x"] } } });
      expect(await failure()).toMatchObject(invalid("has an invalid configuration: rootfs.diff_ids.0"));
      const image = made({});
      registry.addBlob(sha256(image.config), Buffer.alloc(image.config.length, " "));
      expect(await failure()).toMatchObject(invalid("differs from its digest"));
      registry.addBlob(sha256(image.config), Buffer.alloc(image.config.length + 1, " "));
      expect(await failure()).toMatchObject(invalid("differs from its size"));
      misbehave("/blobs/", (response) => response.writeHead(404).end());
      expect(await failure()).toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringContaining("lacks configuration"),
      });
    });

    it.each([
      ["other bytes", (layer: Buffer) => Buffer.alloc(layer.length), "differs from its digest"],
      ["fewer bytes", (layer: Buffer) => layer.subarray(1), "differs from its size"],
      ["more bytes", (layer: Buffer) => Buffer.concat([layer, layer]), "differs from its size"],
    ])("a layer of %s, without a byte too many for buildah", async (_, change, problem) => {
      const image = made({});
      const [layer = Buffer.alloc(0)] = image.layers;
      for (const headers of [{ "content-length": change(layer).length }, { "transfer-encoding": "chunked" }]) {
        misbehave(`/blobs/${sha256(layer)}`, (response) => response.writeHead(200, headers).end(change(layer)));
        const source = await open();
        await expect(pullFrom(source)).rejects.toThrow();
        expect(source.failure).toMatchObject(invalid(problem));
        expect(source.failed.reason).toBe(source.failure);
      }
    });

    it("a layer without an end", async () => {
      const [layer = Buffer.alloc(0)] = made({}).layers;
      misbehave(`/blobs/${sha256(layer)}`, (response) => {
        const more = () => {
          if (!response.destroyed) response.write(Buffer.alloc(65_536), more);
        };
        more();
      });
      const source = await open();
      await expect(pullFrom(source)).rejects.toThrow();
      expect(source.failure).toMatchObject(invalid("differs from its size"));
    });

    it("a layer with another diff_id than its configuration has", async () => {
      made({}, { config: { rootfs: { diff_ids: [sha256(Buffer.from("other"))] } } });
      const source = await open();
      await expect(pullFrom(source)).rejects.toThrow();
      expect(source.failure).toMatchObject(invalid("differs from its diff_id"));
    });
  });
});
