/** Containers of images that differ from the usual ones, from a registry of Debian through the real API: each runs, with its files as they are in the image. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readDirectories } from "../../src/installation/paths.js";
import { machinePlatform } from "../../src/oci/platform.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { DockerRegistry } from "../support/docker-registry.ts";
import { compile } from "../support/helper.ts";
import { directory, entry, hardLink, pax, symlink, tar } from "../support/layer-bytes.ts";
import { build } from "../support/made-images.ts";
import { type Compression, OddImages } from "../support/odd-images.ts";
import { sha256 } from "../support/registry.ts";

const SOURCE = join(import.meta.dirname, "../support/look.c");
const place = mkdtempSync("/var/tmp/hearth-odd-");
const program = join(place, "look");
const daemon = new Daemon();
const user = new ContainerUser(daemon);
const registry = new DockerRegistry();
const images = new OddImages(registry, daemon, user, program);

/** File capabilities as the kernel stores them (version 2, permitted and effective): CAP_CHOWN, and CAP_SYS_ADMIN. */
const CHOWN = Buffer.from("0100000201000000000000000000000000000000", "hex");
const SYS_ADMIN = Buffer.from("0100000200002000000000000000000000000000", "hex");
const { architecture } = machinePlatform();

const file = (name: string, content: string | Buffer = name, mode = 0o644) => entry({ name, content, mode });
/** Names of the device nodes below /dev that the store has of a layer. */
function devicesOf(layer: Buffer): string[] {
  const storage = `${readDirectories(process.env, []).image_dir}/storage`;
  const rows = JSON.parse(readFileSync(`${storage}/overlay-layers/layers.json`, "utf8"));
  const row = rows.find((one: Record<string, string>) => one["diff-digest"] === sha256(layer));
  const places = readdirSync(`${storage}/overlay/${row.id}/diff/dev`, { recursive: true, withFileTypes: true });
  return places.filter((one) => one.isBlockDevice() || one.isCharacterDevice()).map(({ name }) => name);
}

const withAttribute = (name: string, value: Buffer, one: Buffer) =>
  Buffer.concat([pax({ [`SCHILY.xattr.${name}`]: value.toString("latin1") }), one]);

beforeAll(async () => {
  compile(program, [SOURCE]);
  await registry.start();
  await daemon.start({ HEARTH_CELLS: "0" });
});

afterAll(async () => {
  await daemon.dispose();
  await registry.dispose();
  rmSync(place, { recursive: true, force: true });
});

describe("an image without a shell, of one static program,", () => {
  it.each<[string, "oci" | "docker", readonly Compression[]]>([
    ["gzip layers in OCI's format", "oci", ["gzip"]],
    ["zstd layers in OCI's format", "oci", ["zstd"]],
    ["uncompressed layers in OCI's format", "oci", ["none"]],
    ["layers of all compressions in OCI's format", "oci", ["zstd", "none", "gzip"]],
    ["gzip layers in Docker's format", "docker", ["gzip"]],
    ["uncompressed layers in Docker's format", "docker", ["none"]],
  ])("runs with %s", async (_how, format, compressions) => {
    const layers = ["one", "two"].map((name) => tar(file(name)));
    const reference = await images.pulled({ format, compressions, layers });
    const id = await images.container(reference);
    expect(await images.look(id, "read:/one", "read:/two", "id:")).toEqual([
      "one",
      "two",
      expect.stringMatching(/^uid 0 0 gid 0 0 caps [0-9a-f]+ no_new_privs 0$/),
    ]);
    expect(await user.exec(id, ["sh", "-c", "true"])).toMatchObject({
      exit_code: 127,
      stderr: expect.stringMatching(/sh/),
    });
    await user.delete(id);
  });

  it("runs as its main command, with the output in the log", async () => {
    const reference = await images.pulled({ config: { Entrypoint: ["/look"], Cmd: ["read:/etc/hostname"] } });
    const id = await images.container(reference);
    expect(await user.until(id, "its end", ({ state }) => state === "exited")).toMatchObject({ exit_code: 0 });
    expect((await user.logs(id)).length).toBeGreaterThan(0);
    await user.delete(id);
  });
});

describe("an image with musl in place of glibc", () => {
  it("runs a program that loads musl", async () => {
    const dynamic = join(place, "musl-look");
    compile(dynamic, [SOURCE], ["musl-gcc", "-O1"]);
    const loader =
      readFileSync(dynamic)
        .toString("latin1")
        .match(/\/lib\/ld-musl-[\w.-]+/)?.[0] ?? "";
    const musl = tar(directory("lib"), file(loader.slice(1), readFileSync(loader), 0o755), file("musl"));
    const id = await images.container(await images.pulled({ program: dynamic, layers: [musl] }));
    expect(await images.look(id, "read:/musl")).toEqual(["musl"]);
    await user.delete(id);
  });
});

describe("layers with names as kaniko, ko and distroless write them", () => {
  it("run: absolute names, the root alone, entries below a link of the layer, and no device of /dev but the usual", async () => {
    const layer = tar(
      ...[directory("/"), directory("/usr"), directory("/usr/lib"), symlink("/lib", "usr/lib"), file("/lib/below")],
      ...[directory("/etc"), symlink("usr/up", "../etc"), file("usr/up/hearth-test-up"), file("/absolute")],
      ...[hardLink("/hard", "lib/below"), directory("dev"), directory("dev/sub")],
      entry({ name: "/dev/sub/sda", type: "4", device: [8, 0] }),
      entry({ name: "dev/mem", type: "3", device: [1, 1] }),
      entry({ name: "dev/null", type: "3", device: [1, 3] }),
      ...[symlink("d", "dev"), hardLink("dev/other", "d/sub/sda")],
    );
    const reference = await images.pulled({ layers: [layer] });
    const id = await images.container(reference);
    expect(
      await images.look(id, "read:/usr/lib/below", "read:/hard", "read:/etc/hearth-test-up", "read:/absolute"),
    ).toEqual(["/lib/below", "/lib/below", "usr/up/hearth-test-up", "/absolute"]);
    await user.delete(id);
    expect(existsSync("/etc/hearth-test-up")).toBe(false);
    expect(devicesOf(layer)).toEqual(["null"]);
    expect((await images.save(reference)).status).toBe(200);
  });

  it("run, and are saved and loaded again with the same content: entries below absolute and ascending links", async () => {
    const layer = tar(
      ...["usr", "usr/lib", "run", "var", "etc"].map(directory),
      ...[symlink("lib", "/usr/lib"), file("lib/below"), symlink("var/run", "/run"), file("var/run/pid")],
      ...[symlink("var/up", "../../../usr/../etc"), file("var/up/hearth-test-up"), hardLink("hard", "var/run/pid")],
      ...[symlink("chain", "lib"), file("chain/of-links"), symlink("out", place), file("var/run/.wh.gone", "")],
    );
    const reference = await images.pulled({ layers: [layer] });
    const before = await images.shown(reference);
    const archive = await images.save(reference);
    const again = await images.load(archive.body, "again:1");
    expect([archive.status, again.status, again.body.image.id]).toEqual([200, 200, before.id]);
    const id = await images.container("again:1");
    const paths = ["/usr/lib/below", "/run/pid", "/hard", "/etc/hearth-test-up", "/usr/lib/of-links"];
    expect(await images.look(id, ...paths.map((path) => `read:${path}`))).toEqual([
      ...["lib/below", "var/run/pid", "var/run/pid", "var/up/hearth-test-up", "chain/of-links"],
    ]);
    await user.delete(id);
    expect([existsSync("/usr/lib/below"), existsSync("/run/pid")]).toEqual([false, false]);
  });

  it.each<[string, (content: Buffer) => readonly Buffer[]]>([
    ["an absolute link", (content) => [file("d/secret", content), symlink("d", place)]],
    ["a link that leads up", (content) => [file("d/secret", content), symlink("d", `${"../".repeat(12)}${place}`)]],
    ["a link of a process", (content) => [file("d/secret", content), symlink("d", `/proc/1/root${place}`)]],
    ["a hard link to such a link", (content) => [symlink("l", place), file("d/secret", content), hardLink("d", "l")]],
    [
      "a link to a deeper one",
      (content) => [file("d/e/secret", content), symlink("l", `${place}/..`), symlink("d", "l"), directory("e")],
    ],
    [
      "a link beside a pipe of its name",
      (content) => [
        file("d/secret", content),
        directory("p"),
        entry({ name: "p/secret", type: "6" }),
        symlink("d", "p"),
      ],
    ],
  ])("have no file of this machine in an archive through %s in the place of a directory", async (_what, entries) => {
    // Equal bytes: nothing but the place from which they are read tells them apart.
    const content = Buffer.from(`content of ${_what}`);
    writeFileSync(join(place, "secret"), content);
    const reference = await images.pulled({ layers: [tar(...entries(content))] });
    const { status, body } = await images.save(reference);
    expect([status, JSON.parse(body.toString())]).toMatchObject([
      400,
      { error_code: "IMAGE_INVALID", error: expect.stringMatching(/cannot be exported.*is no file of it any more/) },
    ]);
    const exports = readdirSync(`${daemon.data_dir}/exports`);
    expect(exports).toEqual([]);
  });

  it.each([
    ["an absolute link to a directory of this machine", (to: string) => to],
    ["a link that leads up", (to: string) => `../../../../../../../../../../../..${to}`],
    ["a link over the mounts of a process", (to: string) => `/proc/1/root${to}`],
  ])("write nothing on this machine through %s", async (_what, link) => {
    const layer = tar(symlink("out", link(place)), file("out/escaped"));
    const answer = await images.pull(await images.push({ layers: [layer] }));
    expect([answer.status, answer.body.error_code]).toEqual([400, "IMAGE_INVALID"]);
    expect(existsSync(join(place, "escaped"))).toBe(false);
  });
});

describe("users and privileges of an image", () => {
  it("of a user that is not root are those of each command", async () => {
    const reference = await images.pulled({ config: { User: "1234:55" }, layers: [tar(file("mine", "x", 0o600))] });
    const id = await images.container(reference);
    expect(await images.look(id, "id:", "read:/mine", "write:/new")).toEqual([
      "uid 1234 1234 gid 55 55 caps 0000000000000000 no_new_privs 0",
      "/mine: Permission denied",
      "/new: Permission denied",
    ]);
    await user.delete(id);
  });

  it("are raised by setuid and setgid files and by file capabilities up to those of root, and not if strict", async () => {
    const look = readFileSync(program);
    const layer = tar(
      file("setuid", look, 0o6755),
      withAttribute("security.capability", CHOWN, file("capable", look, 0o755)),
      withAttribute("security.capability", SYS_ADMIN, file("mighty", look, 0o755)),
    );
    const reference = await images.pulled({ config: { User: "1234:55" }, layers: [layer] });
    const id = await images.container(reference);
    // The files are as in the image.
    expect(await images.look(id, "stat:/setuid")).toEqual([expect.stringMatching(/^mode 106755 .* uid 0 gid 0 /)]);
    expect(await images.look(id, "xattr:/capable")).toEqual([expect.stringMatching(/^security\.capability=01000002/)]);
    // No container may have this capability: the kernel refuses the program.
    expect(await images.lookWith(id, "/mighty", "id:")).toEqual(["minit: /mighty: Operation not permitted"]);
    expect(await images.lookWith(id, "/setuid", "id:")).toEqual([
      "uid 1234 0 gid 55 0 caps 00000000800425fb no_new_privs 0",
    ]);
    expect(await images.lookWith(id, "/capable", "id:")).toEqual([
      "uid 1234 1234 gid 55 55 caps 0000000000000001 no_new_privs 0",
    ]);
    const strict = await images.container(reference, { strict: true });
    const same = "uid 1234 1234 gid 55 55 caps 0000000000000000 no_new_privs 1";
    expect(await images.lookWith(strict, "/setuid", "id:")).toEqual([same]);
    for (const one of ["/capable", "/mighty"]) {
      expect(await images.lookWith(strict, one, "id:")).toEqual([`minit: ${one}: Operation not permitted`]);
    }
    await user.delete(id, strict);
  });
});

describe("files of an image", () => {
  it("keep their extended attributes", async () => {
    const layer = tar(withAttribute("user.comment", Buffer.from("hello"), file("noted")));
    const id = await images.container(await images.pulled({ layers: [layer] }));
    expect(await images.look(id, "xattr:/noted")).toEqual([`user.comment=${Buffer.from("hello").toString("hex")}`]);
    await user.delete(id);
  });

  it("stay as they are when a container changes its own", async () => {
    const reference = await images.pulled({ layers: [tar(file("shared", "as built"))] });
    const [one, two] = [await images.container(reference), await images.container(reference)];
    expect(await images.look(one, "write:/shared", "read:/shared")).toEqual(["written", "changed"]);
    expect(await images.look(two, "read:/shared")).toEqual(["as built"]);
    const three = await images.container(reference, { read_only_root: true });
    expect(await images.look(three, "read:/shared", "write:/shared")).toEqual([
      "as built",
      "/shared: Read-only file system",
    ]);
    await user.delete(one, two, three);
  });

  it("are those of the topmost of 60 layers", async () => {
    const layers = Array.from({ length: 59 }, (_, i) => tar(file("top", `${i}`), directory("all"), file(`all/f${i}`)));
    const id = await images.container(await images.pulled({ layers }));
    expect(await images.look(id, "read:/top", "count:/all")).toEqual(["58", "59"]);
    await user.delete(id);
  });

  it("are gone where a later layer has a whiteout or an opaque directory", async () => {
    const below = tar(
      ...["d", "o", "gone", "gone/deep"].map(directory),
      ...["d/a", "d/b", "d/c", "o/x", "o/y", "gone/deep/f"].map((name) => file(name)),
    );
    const above = tar(
      directory("d"),
      ...["d/.wh.a", "d/.wh.b", ".wh.gone"].map((name) => file(name, "")),
      directory("o"),
      file("o/.wh..wh..opq", ""),
      file("o/new"),
    );
    const again = tar(directory("d"), file("d/a", "again"), directory("gone"), file("gone/new"));
    const two = await images.container(await images.pulled({ layers: [below, above] }));
    expect(await images.look(two, "list:/d", "list:/o", "list:/gone")).toEqual([
      "c",
      "new",
      "/gone: No such file or directory",
    ]);
    const three = await images.container(await images.pulled({ layers: [below, above, again] }));
    expect(await images.look(three, "list:/d", "read:/d/a", "list:/gone", "list:/o")).toEqual([
      "a c",
      "again",
      "new",
      "new",
    ]);
    await user.delete(two, three);
  });

  it("are one file where they are hard links, and differ where a later layer replaces one", async () => {
    const below = tar(directory("h"), file("h/a", "first"), hardLink("h/b", "h/a"), hardLink("h/c", "/h/a"));
    const one = await images.container(await images.pulled({ layers: [below] }));
    const [a = "", b = "", c = ""] = await images.look(one, "stat:/h/a", "stat:/h/b", "stat:/h/c");
    expect(a).toMatch(/ links 3 /);
    expect([b, c]).toEqual([a, a]);
    const above = tar(directory("h"), file("h/a", "second"), hardLink("h/d", "h/a"));
    const two = await images.container(await images.pulled({ layers: [below, above] }));
    expect(await images.look(two, "read:/h/a", "read:/h/b", "read:/h/c", "read:/h/d")).toEqual([
      "second",
      "first",
      "first",
      "second",
    ]);
    await user.delete(one, two);
  });

  it("of a hard link to a file of an earlier layer are refused, with the image", async () => {
    const layers = [tar(directory("h"), file("h/a")), tar(directory("h"), hardLink("h/b", "h/a"))];
    const { status, body } = await images.pull(await images.push({ layers }));
    expect([status, body.error_code]).toEqual([400, "IMAGE_INVALID"]);
  });
});

describe("an image of another architecture", () => {
  const other = architecture === "arm64" ? "amd64" : "arm64";

  it("is not pulled, and if it is asked for starts no container", async () => {
    const reference = await images.push({ architecture: other });
    const { status, body } = await images.pull(reference);
    expect([status, body.error_code, body.error]).toEqual([
      404,
      "NOT_FOUND",
      `image ${reference} does not support linux/${architecture} (it supports linux/${other})`,
    ]);
    expect((await images.pull(reference, { platform: `linux/${other}` })).status).toBe(200);
    const refused = await daemon.call("POST", "/api/containers", { name: "other", image: reference, oci: true });
    expect([refused.status, refused.body.error]).toEqual([400, expect.stringContaining(`linux/${other}`)]);
  });
});

it("leaves nothing", async () => {
  for (const { reference } of (await daemon.call("GET", "/api/oci/images")).body.images) {
    const path = `/api/oci/images?reference=${encodeURIComponent(reference)}`;
    expect((await daemon.call("DELETE", path)).status).toBe(200);
  }
  expect(build("images", "--format", "{{.Name}}:{{.Tag}}")).not.toContain(`hearth-${daemon.tag}-`);
  expect(await daemon.stop()).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
