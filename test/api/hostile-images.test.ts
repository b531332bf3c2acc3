/**
 * Hostile images from a hostile registry, pulled by a tenant through the real API: each is refused with an error that names what is
 * wrong, and nothing of it stays in the store, in the directories of pulls or in the tenant's list.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { readDirectories } from "../../src/installation/paths.js";
import { machinePlatform } from "../../src/oci/platform.ts";
import { shellImage } from "../support/alpine.ts";
import { type Answer, Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { directory, entry, hardLink, padded, pax, symlink, tar } from "../support/layer-bytes.ts";
import { build } from "../support/made-images.ts";
import {
  descriptorOf,
  type ImageParts,
  jsonBytes,
  type MadeImage,
  makeImage,
  makeIndex,
  OCI_CONFIG,
  OCI_INDEX,
  OCI_LAYER,
  OCI_MANIFEST,
  sha256,
  TestRegistry,
} from "../support/registry.ts";

const daemon = new Daemon();
const registry = new TestRegistry();
/** Another host, which the operator does not list: no request of a tenant's pull may reach it. */
const forbidden = new TestRegistry();
const PLATFORM = machinePlatform();
const MIB = 1024 * 1024;
/** Of the tenant's images together. */
const IMAGES_MB = 8;
const TOO_LARGE = `layer too large when unpacked (limit ${IMAGES_MB * MIB} bytes)`;
const state = { key: "", sequence: 0 };

const call = (method: string, path: string, body?: unknown) =>
  daemon.call(method, path, body, { "x-api-key": state.key });
const pull = (name: string, more: object = {}) =>
  call("POST", "/api/oci/images/pull", { reference: `${registry.host}/${name}:1`, ...more });
const outcome = ({ status, body }: Answer) => [status, body.error_code, body.error];
/** Differs from all other layers, so that no store has it. */
const mark = () =>
  entry({ name: `mark-${++state.sequence}`, content: `${process.pid} ${state.sequence} ${Math.random()}` });
const image = (...entries: readonly Buffer[]) => imageWith({ layers: [tar(mark(), ...entries)] });
const imageWith = (parts: ImageParts): MadeImage => makeImage({ architecture: PLATFORM.architecture, ...parts });

/** Serves an image whose layer is these bytes as they are. */
function raw(bytes: Buffer, diff_id: string): MadeImage {
  const made = imageWith({ layers: [], config: { rootfs: { type: "layers", diff_ids: [diff_id] } } });
  const manifest = jsonBytes({
    ...{ schemaVersion: 2, mediaType: OCI_MANIFEST, config: descriptorOf(OCI_CONFIG, made.config) },
    layers: [descriptorOf(OCI_LAYER, bytes)],
  });
  return { ...made, manifest, layers: [bytes] };
}

/** Lists of the store, and what pulls have on the disk. Other tests change the store at the same time. */
function traces() {
  const storage = `${readDirectories(process.env, []).image_dir}/storage`;
  const list = (file: string) => readFileSync(`${storage}/${file}`, "utf8");
  const entries = (path: string) => (existsSync(path) ? readdirSync(path) : []);
  return {
    store: list("overlay-images/images.json") + list("overlay-layers/layers.json"),
    pulls: entries(`${daemon.data_dir}/pulls`),
    gateways: entries(`${daemon.data_dir}/registry`),
  };
}

/** Expects that nothing of the images is left. */
async function expectNothingLeft(...made: readonly MadeImage[]): Promise<void> {
  await eventually("the directories of pulls are empty", () => {
    const { pulls, gateways } = traces();
    return pulls.length === 0 && gateways.length === 0;
  });
  const digests = made.flatMap(({ config, layers }) => [config, ...layers].map(sha256));
  const { store } = traces();
  expect(digests.filter((digest) => store.includes(digest.slice("sha256:".length)))).toEqual([]);
  expect((await call("GET", "/api/oci/images")).body.images).toEqual([]);
}

/** Adds an image to the registry, pulls it, and expects the refusal and nothing left. */
async function expectRefused(made: MadeImage, code: string, problem: string | RegExp): Promise<void> {
  const name = `evil/${++state.sequence}`;
  registry.add(name, "1", made);
  const answer = await pull(name);
  const text = typeof problem === "string" ? expect.stringContaining(problem) : expect.stringMatching(problem);
  expect(outcome(answer)).toEqual([expect.any(Number), code, text]);
  expect(answer.status).toBeGreaterThanOrEqual(400);
  await expectNothingLeft(made);
}

beforeAll(async () => {
  await registry.start();
  await forbidden.start();
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_INSECURE_REGISTRIES: registry.host });
  const limits = { image_mb_max: IMAGES_MB };
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "guest", limits })).body;
  state.key = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "k" })).body.key;
});
afterEach(() => {
  registry.behaviour = () => false;
});
afterAll(async () => {
  await daemon.dispose();
  registry.close();
  forbidden.close();
});

describe("an image is refused, and leaves nothing, if a layer has", () => {
  it.each<[string, readonly Buffer[], string]>([
    ["a path with ..", [entry({ name: "../../etc/passwd" })], "leads out of the layer: ../../etc/passwd"],
    ["an absolute path with ..", [entry({ name: "/../etc/passwd" })], "leads out of the layer: /../etc/passwd"],
    [
      "a file below a symbolic link to a directory of this machine alone",
      [symlink("a", "/etc"), entry({ name: "a/x" })],
      "cannot be unpacked: open /a/x: no such file or directory",
    ],
    ["a path twice", [entry({ name: "x" }), entry({ name: "./x" })], "cannot be unpacked: it has a path twice"],
    ["a hard link to outside", [hardLink("x", "../etc/shadow")], "leads out of the layer: ../etc/shadow"],
    [
      "a hard link through a symbolic link",
      [symlink("a", "/etc"), hardLink("x", "a/shadow")],
      "cannot be unpacked: no such file or directory",
    ],
    [
      "a disk",
      [entry({ name: "disk", type: "4", device: [8, 0] })],
      "a device that no container may open: block device 8:0",
    ],
    ["the memory", [entry({ name: "mem", type: "3", device: [1, 1] })], "no container may open: character device 1:1"],
    ["a raw whiteout", [entry({ name: "x", type: "3", device: [0, 0] })], "is a raw whiteout: character device 0:0"],
    [
      "an attribute trusted.overlay",
      [pax({ "SCHILY.xattr.trusted.overlay.redirect": "/etc" }), directory("d")],
      "has an attribute of overlayfs",
    ],
    [
      "more holes than bytes",
      [
        pax({
          "GNU.sparse.major": "1",
          "GNU.sparse.minor": "0",
          "GNU.sparse.name": "big",
          "GNU.sparse.realsize": String(7 * MIB),
        }),
        entry({ content: padded(Buffer.from("1\n0\n0\n")) }),
      ],
      "more holes than bytes",
    ],
  ])("%s", async (_what, entries, problem) => {
    await expectRefused(image(...entries), "IMAGE_INVALID", problem);
  });

  it.each([
    ["gzip", gzipSync],
    ["zstd", zstdCompressSync],
  ])("a bomb in %s", async (_format, compress) => {
    const bomb = compress(tar(entry({ name: "zeros", content: Buffer.alloc((IMAGES_MB + 8) * MIB) })));
    expect(bomb.length).toBeLessThan(100_000);
    await expectRefused(raw(bomb, sha256(bomb)), "QUOTA_EXCEEDED", TOO_LARGE);
  });

  it("a sparse file as large as the disk", async () => {
    const sparse = pax({
      "GNU.sparse.major": "1",
      "GNU.sparse.minor": "0",
      "GNU.sparse.name": "big",
      "GNU.sparse.realsize": String(2 ** 40),
    });
    const made = image(sparse, entry({ content: padded(Buffer.from("1\n0\n0\n")) }));
    await expectRefused(made, "QUOTA_EXCEEDED", TOO_LARGE);
  });

  it("another diff_id than its configuration says", async () => {
    const made = imageWith({ layers: [tar(mark())], config: { rootfs: { diff_ids: [sha256(Buffer.from("other"))] } } });
    await expectRefused(made, "IMAGE_INVALID", "differs from its diff_id");
  });

  it.each([
    ["other bytes than its digest", (layer: Buffer) => Buffer.alloc(layer.length), "layer has the digest sha256:"],
    ["fewer bytes than its size", (layer: Buffer) => layer.subarray(1), "differs from its size"],
    ["more bytes than its size", (layer: Buffer) => Buffer.concat([layer, layer]), "differs from its size"],
  ])("%s", async (_what, change, problem) => {
    const made = image();
    const [layer = Buffer.alloc(0)] = made.layers;
    const digest = sha256(layer);
    registry.behaviour = ({ url = "" }, response) => {
      if (!url.endsWith(`/blobs/${digest}`)) return false;
      response.writeHead(200, { "content-length": change(layer).length }).end(change(layer));
      return true;
    };
    await expectRefused(made, "IMAGE_INVALID", problem);
  });
});

describe("a registry is refused by name, and nothing is left, if it", () => {
  const answers = async (
    part: string,
    behave: (response: ServerResponse, request: IncomingMessage) => void,
    code: string,
    problem: string,
  ) => {
    registry.behaviour = (request, response) => {
      if (request.url?.includes(part) !== true) return false;
      behave(response, request);
      return true;
    };
    const made = image();
    await expectRefused(made, code, problem);
  };

  it("sends a manifest of 100 MB", async () => {
    const large = Buffer.alloc(100_000_000, " ");
    const send = (response: ServerResponse) => response.writeHead(200, { "content-type": OCI_MANIFEST }).end(large);
    await answers("/manifests/", send, "IMAGE_INVALID", `is too large (limit ${LIMITS.manifest_bytes_max} bytes)`);
  });

  it("sends an index that leads to itself, or ever deeper", async () => {
    const loop = makeIndex([[Buffer.from("{}"), PLATFORM, OCI_INDEX]]);
    const send = (response: ServerResponse) => response.writeHead(200, { "content-type": OCI_INDEX }).end(loop);
    await answers("/manifests/", send, "IMAGE_INVALID", "differs from its digest");
    registry.behaviour = () => false;
    const made = image();
    registry.add("evil/deep", "image", made);
    let inner = made.manifest;
    for (let depth = 0; depth <= LIMITS.index_depth_max; depth++) {
      inner = makeIndex([[inner, PLATFORM, depth === 0 ? OCI_MANIFEST : OCI_INDEX]]);
      registry.addManifest("evil/deep", "1", inner, OCI_INDEX);
    }
    expect(outcome(await pull("evil/deep"))).toEqual([
      400,
      "IMAGE_INVALID",
      expect.stringContaining(`has indexes inside indexes (limit ${LIMITS.index_depth_max})`),
    ]);
    await expectNothingLeft(made);
  });

  it.each([
    ["/manifests/", "text/html instead of a manifest"],
    ["/blobs/", "HTML instead of configuration"],
  ])("answers %s with a page", async (part, problem) => {
    const send = (response: ServerResponse) => response.writeHead(200, { "content-type": "text/html" }).end("<html>");
    await answers(part, send, "REGISTRY_FAILED", `${registry.host} does not answer as a registry: ${problem}`);
  });

  it.each(["/manifests/", "/blobs/"])("redirects %s to a host that tenants may not reach", async (part) => {
    for (const target of [forbidden.host, `localhost:${forbidden.port}`, daemon.url.slice("http://".length)]) {
      const move = (response: ServerResponse, { url = "" }: IncomingMessage) =>
        response.writeHead(307, { location: `http://${target}${url}` }).end();
      await answers(part, move, "INVALID_ARGUMENT", `refers to a host that is not allowed: '${target}'`);
    }
    expect(forbidden.requests).toEqual([]);
  });

  it("redirects a pull with a password to another host, which gets no password", async () => {
    const name = "evil/leak";
    registry.add(name, "1", image());
    registry.behaviour = ({ url = "", headers }, response) => {
      if (headers.authorization === undefined)
        response.writeHead(401, { "www-authenticate": 'Basic realm="x"' }).end("{}");
      else if (url.includes("/manifests/"))
        response.writeHead(307, { location: `http://${forbidden.host}${url}` }).end();
      else return false;
      return true;
    };
    const answer = await pull(name, { registry_username: "ann", registry_password: "open sesame" });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(JSON.stringify(answer.body)).not.toContain("sesame");
    expect(forbidden.requests).toEqual([]);
    await expectNothingLeft();
  });

  it("stalls or drips, until the pull is cancelled", async () => {
    for (const isDripping of [false, true]) {
      const made = image();
      const name = `evil/${++state.sequence}`;
      registry.add(name, "1", made);
      registry.behaviour = ({ url = "" }, response) => {
        if (!url.includes(`/${name}/blobs/${sha256(made.layers[0] ?? made.config)}`)) return false;
        response.writeHead(200).write("x");
        const drip = isDripping ? setInterval(() => response.write("x"), 50) : undefined;
        response.once("close", () => clearInterval(drip));
        return true;
      };
      const reference = `${registry.host}/${name}:1`;
      const { body } = await call("POST", "/api/oci/images/pull?execution=async", { reference });
      await eventually("the layer is asked for", () => registry.asked(`/${name}/blobs/sha256:`) > 1);
      expect((await call("POST", `/api/operations/${body.operation_id}/cancel`)).body.status).toBe("cancelled");
      registry.behaviour = () => false;
      await expectNothingLeft(made);
    }
  });
});

describe("an image is refused, and leaves nothing, if its configuration", () => {
  it("has an environment of 10 MB", async () => {
    const made = imageWith({ layers: [tar(mark())], config: { config: { Env: ["A=".padEnd(10_000_000, "x")] } } });
    const limit = `(limit ${LIMITS.registry_config_bytes_max})`;
    await expectRefused(made, "IMAGE_INVALID", `has a configuration of ${made.config.length} bytes ${limit}`);
  });

  it("is of other layers", async () => {
    const made = imageWith({ layers: [tar(mark())], config: { rootfs: { diff_ids: [] } } });
    await expectRefused(made, "IMAGE_INVALID", "has 1 layers, but 0 diff_ids in its configuration");
  });
});

describe("an image whose files stand in the place of a container's mounts", () => {
  it.each([
    ["/dev is a link", symlink("dev", "/tmp"), "not a directory in the container: /dev"],
    ["/proc is a link", symlink("proc", "/tmp"), "not a directory in the container: /proc"],
    ["/sys is a file", entry({ name: "sys" }), "not a directory in the container: /sys"],
    [
      "/proc is a device",
      entry({ name: "proc", type: "3", device: [1, 3] }),
      "not a directory in the container: /proc",
    ],
  ])("starts no container if %s", async (_what, bad, problem) => {
    const name = `evil/${++state.sequence}`;
    const reference = `${registry.host}/${name}:1`;
    registry.add(name, "1", shellImage([tar(mark(), bad)]));
    expect((await pull(name)).status).toBe(200);
    const refused = await call("POST", "/api/containers", { name: "evil", image: reference, oci: true });
    expect([refused.status >= 400, refused.body.error]).toEqual([true, problem]);
    expect((await call("GET", "/api/containers")).body.containers).toEqual([]);
    expect((await call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`)).status).toBe(200);
    await expectNothingLeft();
  });

  it("runs if /etc/passwd is a link out of it or a device, with a user that is not found", async () => {
    for (const bad of [
      symlink("etc/passwd", "../../../../etc/passwd"),
      entry({ name: "etc/passwd", type: "3", device: [1, 5] }),
    ]) {
      const name = `evil/${++state.sequence}`;
      const reference = `${registry.host}/${name}:1`;
      registry.add(name, "1", shellImage([tar(mark(), bad)]));
      expect((await pull(name)).status).toBe(200);
      const fields = { name: "evil", image: reference, oci: true, user: "daemon", command: ["sleep", "1000"] };
      const { status, body } = await call("POST", "/api/containers", fields);
      expect(status).toBe(201);
      const { error_message } = await eventually("it ended", async () => {
        const record = (await call("GET", `/api/containers/${body.container_id}`)).body;
        return record.state === "exited" ? record : null;
      });
      expect(error_message).toMatch(/^user 'daemon' not found in \/etc\/passwd/);
      await call("DELETE", "/api/containers/evil");
      expect((await call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`)).status).toBe(200);
    }
    await expectNothingLeft();
  });
});

describe("at the end", () => {
  it("the daemon pulls a good image, and nothing else is left", async () => {
    registry.add("good", "1", shellImage([tar(mark())]));
    expect((await pull("good")).status).toBe(200);
    expect((await call("DELETE", `/api/oci/images?reference=${registry.host}/good:1`)).status).toBe(200);
    expect((await daemon.call("GET", "/health", undefined, { "x-api-key": KEY })).status).toBe(200);
    expect(build("images", "--format", "{{.Name}}:{{.Tag}}")).not.toContain(`hearth-${daemon.tag}-`);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
