/** Archives of images through the real API: loaded with their digests, refused where they lie, and gone from the disk in any case. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { machinePlatform } from "../../src/oci/platform.ts";
import { operatorOf } from "../support/command.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { type DockerImage, dockerArchiveOf, imageOf } from "../support/docker-archives.ts";
import { compile } from "../support/helper.ts";
import { directory, entry, hardLink, symlink, tar } from "../support/layer-bytes.ts";
import { build, MadeImages } from "../support/made-images.ts";
import { oddImage } from "../support/odd-images.ts";
import { descriptorOf, jsonBytes, OCI_INDEX, OCI_MANIFEST, sha256 } from "../support/registry.ts";

const SETTINGS = { HEARTH_CELLS: "0" };
const NAME = `localhost/hearth-test-archives-${process.pid}`;
const place = mkdtempSync("/var/tmp/hearth-archives-");
const program = join(place, "look");
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new ContainerUser(daemon);
const operator = operatorOf(daemon);
const { architecture } = machinePlatform();

beforeAll(async () => {
  compile(program, [join(import.meta.dirname, "../support/look.c")]);
  await daemon.start(SETTINGS);
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
  made.remove();
  rmSync(place, { recursive: true, force: true });
});

async function load(body: Uint8Array, reference = "", key = KEY) {
  const query = reference === "" ? "" : `?reference=${encodeURIComponent(reference)}`;
  const response = await fetch(`${daemon.url}/api/oci/images/load${query}`, {
    method: "POST",
    headers: { "x-api-key": key, "content-type": "application/x-tar" },
    body: new Uint8Array(body),
  });
  // biome-ignore lint/suspicious/noExplicitAny: a record or a refusal.
  return { status: response.status, body: (await response.json()) as any };
}

const remove = (reference: string) =>
  daemon.call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`);
const kept = () => readdirSync(join(daemon.data_dir, "image-loads"));
const images = async () => (await daemon.call("GET", "/api/oci/images")).body.images;

const named = (name: string) => ({ "org.opencontainers.image.ref.name": name });
const blobName = (bytes: Buffer) => `blobs/${sha256(bytes).replace(":", "/")}`;
const blob = (content: Buffer) => entry({ name: blobName(content), content });
const index = (...manifests: object[]) =>
  entry({ name: "index.json", content: jsonBytes({ schemaVersion: 2, mediaType: OCI_INDEX, manifests }) });

/** A small image and the parts of its archive. */
function parts(image: Partial<Parameters<typeof oddImage>[0]> = {}) {
  const { manifest, config, layers } = oddImage({ program, ...image }).made;
  const descriptor = descriptorOf(OCI_MANIFEST, manifest);
  return { manifest, config, layers, descriptor, blobs: [manifest, config, ...layers] };
}
const archiveOf = (name: string, { descriptor, blobs } = parts()) =>
  tar(...blobs.map(blob), index({ ...descriptor, annotations: named(name) }));

const state: { docker: ReturnType<typeof parts> | null } = { docker: null };
function docker() {
  const layers = [tar(entry({ name: "of-docker" }))];
  state.docker ??= parts({ compressions: ["none"], format: "docker", layers });
  return state.docker;
}
const dockerImage = (names: readonly string[] | null, own = docker()) => imageOf(names, own);
const dockerArchive = (list: readonly DockerImage[], more: readonly Buffer[] = [], images = [docker()]) =>
  dockerArchiveOf(list, more, images);

describe("an archive of docker save", () => {
  it("that buildah wrote is loaded with its id, also in gzip and under another name", async () => {
    const id = made.makeOf({ edit: (root) => writeFileSync(join(root, "hello"), "hello docker\n") });
    const file = join(place, "docker.tar");
    build("push", `${NAME}:latest`, `docker-archive:${file}:docker.io/acme/docker:1`);
    const { status, body } = await load(readFileSync(file));
    expect(body).toMatchObject({
      success: true,
      image: { reference: "docker.io/acme/docker:1", id: expect.stringMatching(/^sha256:[0-9a-f]{64}$/) },
    });
    expect([status, body.images[0]]).toEqual([200, body.image]);
    const again = await load(gzipSync(readFileSync(file), { level: 1 }), "other:3");
    expect(again.body.image).toMatchObject({ reference: "docker.io/library/other:3", id: body.image.id });
    expect(id).toMatch(/^[0-9a-f]{64}$/);
    for (const { reference } of await images()) expect((await remove(reference)).status).toBe(200);
    expect(kept()).toEqual([]);
  });

  it("gives each of its images all its names, shares layers by links, and runs", async () => {
    const [one, two] = [
      docker(),
      parts({ compressions: ["gzip"], format: "docker", layers: [tar(entry({ name: "second", content: "2" }))] }),
    ];
    const shared = `${sha256(one.layers[0] ?? Buffer.alloc(0)).slice(7)}/layer.tar`;
    const first = {
      ...dockerImage(["acme/one:1", "acme/one:2"], one),
      Layers: ["alias/layer.tar", ...dockerImage([], one).Layers.slice(1)],
    };
    const archive = dockerArchive(
      [first, dockerImage(["acme/two:1"], two)],
      [symlink("alias/layer.tar", `../${shared}`)],
      [one, two],
    );
    const { status, body } = await load(archive);
    expect([
      status,
      body.images?.map(({ reference, id }: { reference: string; id: string }) => [reference, id]),
    ]).toEqual([
      200,
      [
        ["docker.io/acme/one:1", sha256(one.config)],
        ["docker.io/acme/one:2", sha256(one.config)],
        ["docker.io/acme/two:1", sha256(two.config)],
      ],
    ]);
    const { container_id } = await user.create({ name: "second", image: "acme/two:1", oci: true });
    expect((await user.exec(container_id, ["/look", "read:/second"])).stdout).toContain("2");
    await user.delete(container_id);
    const refused = await load(archive, "one:1");
    expect(refused).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("several images (2 images)") },
    });
    for (const { reference } of await images()) expect((await remove(reference)).status).toBe(200);
  });

  it("without a name needs one, and with several images takes none", async () => {
    const bytes = dockerArchive([dockerImage(null)]);
    expect(await load(bytes)).toMatchObject({ status: 400, body: { hint: expect.stringContaining("reference") } });
    expect((await load(bytes, "named:1")).body.image).toMatchObject({ id: sha256(docker().config) });
    expect((await remove("named:1")).status).toBe(200);
    const both = await load(dockerArchive([dockerImage(["acme/x:1"]), dockerImage(null)]));
    expect([both.status, await images()]).toEqual([400, []]);
  });

  it("as an OCI archive may have several images", async () => {
    const [one, two] = [parts(), parts({ config: { Env: ["A=b"] } })];
    const named_index = index(
      { ...one.descriptor, annotations: named("acme/o:1") },
      { ...two.descriptor, annotations: named("acme/o:2") },
    );
    const blobs = new Set([...one.blobs, ...two.blobs].map((bytes) => blob(bytes).toString("latin1")));
    const { body } = await load(tar(...[...blobs].map((bytes) => Buffer.from(bytes, "latin1")), named_index));
    expect(body.images?.map(({ manifest_digest }: { manifest_digest: string }) => manifest_digest)).toEqual([
      sha256(one.manifest),
      sha256(two.manifest),
    ]);
    for (const tag of ["1", "2"]) expect((await remove(`acme/o:${tag}`)).status).toBe(200);
  });
});

describe("an archive of an image", () => {
  it("that buildah wrote is loaded with its digests, by the name in it or by another one", async () => {
    const id = made.makeOf({ edit: (root) => writeFileSync(join(root, "hello"), "hello\n") });
    const file = join(place, "made.tar");
    build("push", `${NAME}:latest`, `oci-archive:${file}:docker.io/acme/made:1`);
    const bytes = readFileSync(file);
    const { status, body } = await load(bytes);
    expect(body).toMatchObject({
      success: true,
      image: { id: `sha256:${id}`, reference: "docker.io/acme/made:1", config_digest: `sha256:${id}` },
    });
    expect(status).toBe(200);
    const again = await load(gzipSync(bytes, { level: 1 }), "other:2");
    expect(again.body.image).toMatchObject({
      ...{ reference: "docker.io/library/other:2", manifest_digest: body.image.manifest_digest },
    });
    const saved = await fetch(`${daemon.url}/api/oci/images/save?reference=acme/made:1`, {
      headers: { "x-api-key": KEY },
    });
    expect(saved.status).toBe(200);
    expect((await remove("acme/made:1")).status).toBe(200);
    const back = await load(Buffer.from(await saved.arrayBuffer()));
    expect(back.body.image).toMatchObject({ id: `sha256:${id}`, reference: "docker.io/acme/made:1" });
    for (const { reference } of await images()) expect((await remove(reference)).status).toBe(200);
    expect(kept()).toEqual([]);
  });

  it("runs as a container, with layers of all compressions", async () => {
    const layers = ["one", "two"].map((name) => tar(entry({ name, content: name })));
    const own = parts({ layers, compressions: ["zstd", "gzip", "none"] });
    const answer = await load(archiveOf("acme/look:1", own));
    expect(answer.body).toMatchObject({ success: true, image: { manifest_digest: sha256(own.manifest) } });
    const fields = { name: "loaded", image: "acme/look:1", oci: true };
    const { container_id } = await user.create(fields);
    expect((await user.exec(container_id, ["/look", "read:/one", "read:/two"])).stdout).toMatch(/one\s+two/);
    await user.delete(container_id);
    expect((await remove("acme/look:1")).status).toBe(200);
  });

  it("with an index of several platforms gives the one of the node", async () => {
    const [own, other] = [parts(), parts({ architecture: architecture === "arm64" ? "amd64" : "arm64" })];
    const entries = [
      { ...other.descriptor, platform: { os: "linux", architecture: "other" } },
      { ...own.descriptor, platform: { os: "linux", architecture } },
    ];
    const nested = jsonBytes({ schemaVersion: 2, mediaType: OCI_INDEX, manifests: entries });
    const bytes = tar(index(descriptorOf(OCI_INDEX, nested)), ...[nested, ...own.blobs].map(blob));
    expect(await load(bytes)).toMatchObject({ status: 400, body: { hint: expect.stringContaining("reference") } });
    const { body } = await load(bytes, "nested:1");
    expect(body).toMatchObject({ image: { architecture, manifest_digest: sha256(own.manifest) } });
    const wrong = await load(tar(index(other.descriptor), ...other.blobs.map(blob)), "wrong:1");
    expect(wrong).toMatchObject({ status: 404, body: { reason_code: "PLATFORM_NOT_FOUND" } });
    expect((await remove("nested:1")).status).toBe(200);
  });

  it("is loaded by the command line, from a file and from standard input", async () => {
    const file = join(place, "look.tar");
    writeFileSync(file, archiveOf("acme/cli:1"));
    expect((await operator.hearth("save", "a:1", "b:1", "-o", file)).err).toContain("an archive has one image");
    expect(await operator.out("load", "--input", file)).toMatch(/^docker\.io\/acme\/cli:1 is loaded: [0-9a-f]{12}, /);
    const piped = await operator.shell().run(["load", "-t", "acme/cli:2", "--json"], { stdin: readFileSync(file) });
    expect(piped).toMatchObject({ code: 0 });
    expect(JSON.parse(piped.out)).toMatchObject({ reference: "docker.io/acme/cli:2" });
    expect(await operator.hearth("load", join(place, "none"))).toMatchObject({
      err: expect.stringContaining("no such file"),
    });
    for (const tag of ["1", "2"]) await remove(`acme/cli:${tag}`);
  });
});

describe("a hostile archive", () => {
  const { manifest, config, descriptor, blobs } = lazy();
  const MANY = Array(20_000).fill({});
  const withIndex = (content: Buffer | string) => tar(entry({ name: "index.json", content }));

  it.each<[string, () => Buffer, string, RegExp]>([
    ["is no tar", () => Buffer.from("no tar at all".repeat(100)), "INVALID_ARGUMENT", /not tar/],
    ["is empty", () => Buffer.alloc(0), "INVALID_ARGUMENT", /archive/],
    ["is cut off", () => archiveOf("a:1").subarray(0, 4_000), "INVALID_ARGUMENT", /archive/],
    ["has no index", () => tar(...blobs().map(blob)), "INVALID_ARGUMENT", /no index\.json/],
    ["has an index that is no JSON", () => withIndex("{"), "IMAGE_INVALID", /index/],
    ["has a huge index", () => withIndex(Buffer.alloc(LIMITS.manifest_bytes_max + 1)), "IMAGE_INVALID", /limit/],
    ["has many manifests", () => withIndex(jsonBytes({ manifests: MANY })), "IMAGE_INVALID", /manifests/],
    ["has two indexes", () => tar(index(), index()), "IMAGE_INVALID", /twice/],
    [
      "has too many images",
      () => tar(index(...Array.from({ length: 33 }, (_, i) => ({ ...descriptor(), annotations: named(`a:${i}`) })))),
      "INVALID_ARGUMENT",
      /too many images in the archive: 33 \(limit 32\)/,
    ],
    [
      "has no image of docker save",
      () => tar(entry({ name: "manifest.json", content: "[]" })),
      "INVALID_ARGUMENT",
      /has no image/,
    ],
    [
      "has a manifest.json that is none",
      () => tar(entry({ name: "manifest.json", content: '{"Config":1}' })),
      "IMAGE_INVALID",
      /invalid manifest\.json/,
    ],
    [
      "has a link as a manifest.json",
      () => tar(symlink("manifest.json", "/etc/hostname")),
      "IMAGE_INVALID",
      /manifest\.json as a symlink/,
    ],
    [
      "has a configuration out of it",
      () => dockerArchive([{ ...dockerImage(["a:1"]), Config: "../../../etc/hostname" }]),
      "IMAGE_INVALID",
      /leads out/,
    ],
    [
      "has an absolute layer",
      () => dockerArchive([{ ...dockerImage(["a:1"]), Layers: ["/etc/hostname"] }]),
      "IMAGE_INVALID",
      /leads out/,
    ],
    [
      "has a link to this machine as a layer",
      () =>
        dockerArchive(
          [{ ...dockerImage(["a:1"]), Layers: ["l.tar"] }],
          [symlink("l.tar", "../../../../../../../etc/hostname")],
        ),
      "IMAGE_INVALID",
      /lacks layer: l\.tar/,
    ],
    [
      "has links in a circle",
      () => dockerArchive([{ ...dockerImage(["a:1"]), Layers: ["x"] }], [symlink("x", "y"), symlink("y", "x")]),
      "IMAGE_INVALID",
      /lacks layer: x/,
    ],
    [
      "lacks a layer of docker save",
      () => dockerArchive([{ ...dockerImage(["a:1"]), Layers: ["none.tar"] }]),
      "IMAGE_INVALID",
      /lacks layer: none\.tar/,
    ],
    [
      "has other layers than its configuration says",
      () => dockerArchive([{ ...dockerImage(["a:1"]), Layers: [] }]),
      "IMAGE_INVALID",
      /diff_ids/,
    ],
    [
      "has a name that no reference has",
      () => dockerArchive([dockerImage(["UPPER/x:1"])]),
      "INVALID_ARGUMENT",
      /UPPER/,
    ],
    [
      "has a blob that differs from its digest",
      () => tar(entry({ name: blobName(config()), content: "{}" })),
      "IMAGE_INVALID",
      /differs from its digest/,
    ],
    [
      "lacks a layer",
      () => archiveOf("a:1", { ...parts(), blobs: [manifest(), config()] }),
      "IMAGE_INVALID",
      /lacks layer/,
    ],
    [
      "lacks the manifest",
      () => archiveOf("a:1", { ...parts(), blobs: [config()] }),
      "IMAGE_INVALID",
      /lacks manifest/,
    ],
    [
      "has a manifest of another size",
      () => archiveOf("a:1", { ...parts(), descriptor: { ...descriptor(), size: 3 } as never }),
      "IMAGE_INVALID",
      /differs from its size/,
    ],
    ["has a link as a blob", () => tar(symlink(blobName(config()), "/etc/shadow")), "IMAGE_INVALID", /symlink/],
    ["has a hard link as an index", () => tar(hardLink("index.json", "oci-layout")), "IMAGE_INVALID", /link/],
    ["has a path that leads out", () => tar(entry({ name: "blobs/../../x" })), "IMAGE_INVALID", /leads out/],
    ["has an absolute path", () => tar(directory("/etc")), "IMAGE_INVALID", /leads out/],
    [
      "has indexes in indexes",
      () => {
        const nested = [1, 2, 3].reduce<Buffer[]>((all) => {
          const inner = descriptorOf(all.length === 0 ? OCI_MANIFEST : OCI_INDEX, all.at(-1) ?? manifest());
          return [...all, jsonBytes({ schemaVersion: 2, manifests: [inner] })];
        }, []);
        const top = descriptorOf(OCI_INDEX, nested.at(-1) ?? Buffer.alloc(0));
        return tar(index({ ...top, annotations: named("a:1") }), ...[...nested, ...blobs()].map(blob));
      },
      "IMAGE_INVALID",
      /indexes inside indexes/,
    ],
    [
      "has a layer that leads out of the image",
      () => archiveOf("a:1", parts({ layers: [tar(entry({ name: "../../escaped" }))] })),
      "IMAGE_INVALID",
      /layer/,
    ],
    [
      "has a layer that is not what its configuration says",
      () => {
        const liar = parts({ compressions: ["none"] });
        const wrong = jsonBytes({
          ...JSON.parse(liar.config.toString()),
          rootfs: { type: "layers", diff_ids: [sha256(config())] },
        });
        const false_manifest = jsonBytes({
          ...JSON.parse(liar.manifest.toString()),
          config: { ...JSON.parse(liar.manifest.toString()).config, digest: sha256(wrong), size: wrong.length },
        });
        const described = descriptorOf(OCI_MANIFEST, false_manifest);
        return archiveOf("a:1", { ...liar, descriptor: described, blobs: [false_manifest, wrong, ...liar.layers] });
      },
      "IMAGE_INVALID",
      /diff_id/,
    ],
  ])("that %s is refused, and nothing of it stays", async (_what, bytes, error_code, error) => {
    const answer = await load(bytes());
    expect(answer.body).toMatchObject({ error_code, error: expect.stringMatching(error) });
    expect([await images(), kept()]).toEqual([[], []]);
  });

  /** A tenant with 4 MiB of images. */
  async function smallTenant(name: string): Promise<string> {
    const made = await daemon.call("POST", "/api/tenants", { name, limits: { image_mb_max: 4 } });
    return (await daemon.call("POST", `/api/tenants/${made.body.tenant_id}/api-keys`, { name: "k" })).body.key;
  }
  /** Whichever comes first: the reservation of all layers, or what is left of it for the one that is unpacked. */
  const error = expect.stringMatching(/image_mb_max|layer too large when unpacked/);
  const QUOTA = { status: 403, body: { error_code: "QUOTA_EXCEEDED", error } };

  it("whose layers unpack to more than the tenant may have is refused", async () => {
    const key = await smallTenant("small");
    const content = Buffer.alloc(3 * 1024 * 1024);
    const layers = ["one", "two"].map((name) => tar(entry({ name, content })));
    for (const compressions of [["gzip", "zstd"], ["zstd"], ["gzip"]] as const) {
      const own = parts({ layers, compressions: [...compressions] });
      expect(await load(archiveOf("bomb:1", own), "", key)).toMatchObject(QUOTA);
    }
    expect(kept()).toEqual([]);
    const fitting = parts({ layers: layers.slice(0, 1), compressions: ["gzip"] });
    expect(await load(archiveOf("fits:1", fitting), "", key)).toMatchObject({ status: 200 });
  });

  it("with a blob of zeros is refused before more of it is written than the tenant may have", async () => {
    const key = await smallTenant("zeros");
    // Neither its digest nor its end are ever looked at: they come behind what is refused.
    const head = entry({ name: `blobs/sha256/${"0".repeat(64)}`, content: Buffer.alloc(64 * 1024 * 1024) });
    let largest = 0;
    const watching = setInterval(() => {
      for (const name of kept()) largest = Math.max(largest, sizeOf(join(daemon.data_dir, "image-loads", name)));
    }, 1);
    try {
      expect(await load(gzipSync(head, { level: 1 }), "zeros:1", key)).toMatchObject(QUOTA);
    } finally {
      clearInterval(watching);
    }
    expect(largest).toBeLessThanOrEqual(4 * 1024 * 1024);
    expect(kept()).toEqual([]);
  });

  it("has no more room beside another load of the tenant than that leaves", async () => {
    const key = await smallTenant("both");
    const content = Buffer.alloc(3 * 1024 * 1024, 1);
    const blobs = Buffer.concat([blob(content)]);
    const first = request(`${daemon.url}/api/oci/images/load?reference=first:1`, {
      method: "POST",
      headers: { "x-api-key": key, "content-type": "application/x-tar" },
    });
    first.on("error", () => {}).on("response", (response) => response.resume());
    first.write(blobs);
    const sizes = () => kept().map((name) => sizeOf(join(daemon.data_dir, "image-loads", name)));
    await eventually("the first is written", () => sizes().some((size) => size >= content.length));
    expect(await load(tar(blob(Buffer.alloc(2 * 1024 * 1024, 2))), "second:1", key)).toMatchObject(QUOTA);
    first.destroy();
    await eventually("the first is gone", () => kept().length === 0);
    const alone = await load(tar(blob(content)), "second:1", key);
    expect(alone.body).toMatchObject({ error_code: "INVALID_ARGUMENT" });
  });
});

/** Bytes of the files of a directory, which may go meanwhile. */
function sizeOf(path: string): number {
  try {
    return readdirSync(path).reduce((sum, name) => sum + statSync(join(path, name)).size, 0);
  } catch {
    return 0;
  }
}

describe("a load that ends early", () => {
  const begin = () => {
    const sent = request(`${daemon.url}/api/oci/images/load`, {
      method: "POST",
      headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
    });
    sent.on("error", () => {}).on("response", (response) => response.resume());
    sent.write(archiveOf("a:1").subarray(0, 2_048));
    return sent;
  };

  it("leaves nothing: the client goes, or the daemon is killed", async () => {
    const sent = [begin(), begin()];
    await eventually("they are kept", () => kept().length === 2);
    expect(await load(archiveOf("a:1"))).toMatchObject({ status: 429, body: { error_code: "CONCURRENCY_LIMIT" } });
    for (const one of sent) one.destroy();
    await eventually("theirs is gone", () => kept().length === 0);
    await daemon.stop("SIGKILL");
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "oci.load.kept=kill" });
    await expect(load(archiveOf("a:1"))).rejects.toThrow();
    await eventually("the daemon is dead", () => !daemon.isAlive);
    expect(kept()).toHaveLength(1);
    await daemon.start(SETTINGS);
    expect([await images(), kept()]).toEqual([[], []]);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

/** Parts of one image, made when a test asks: the program is compiled before. */
function lazy() {
  const state: { parts: ReturnType<typeof parts> | null } = { parts: null };
  const get = () => {
    state.parts ??= parts();
    return state.parts;
  };
  return {
    config: () => get().config,
    manifest: () => get().manifest,
    descriptor: () => get().descriptor,
    blobs: () => get().blobs,
  };
}
