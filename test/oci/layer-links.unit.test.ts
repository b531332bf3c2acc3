/** Names and links of a layer's entries: which pass, and where they lie. */
import { describe, expect, it } from "vitest";
import { LayerInspection } from "../../src/oci/layers/inspection.ts";
import { directory, entry, hardLink, pax, sha256, symlink, tar } from "../support/layer-bytes.ts";

async function inspect(layer: Buffer) {
  const claimed = { digest: sha256(layer), size_bytes: layer.length, unpacked_bytes_max: 2 ** 24 };
  const inspection = new LayerInspection(claimed);
  try {
    await inspection.write(layer);
    return await inspection.end();
  } finally {
    inspection.destroy();
  }
}

const expectRefused = (layer: Buffer, message: RegExp) =>
  expect(inspect(layer)).rejects.toMatchObject({ code: "IMAGE_INVALID", message: expect.stringMatching(message) });

describe("an entry of a layer", () => {
  it.each([
    ["an absolute name", [entry({ name: "/etc/passwd" }), directory("//var//"), hardLink("/b", "/etc/passwd")]],
    ["the name / alone, as a directory", [directory("/"), directory("/."), directory("./")]],
    ["an absolute whiteout", [entry({ name: "/a/.wh.b" }), entry({ name: "/a/.wh..wh..opq" })]],
    [
      "a path below a symbolic link",
      [symlink("lib", "usr/lib"), entry({ name: "/lib/x" }), entry({ name: "lib/.wh.y" })],
    ],
    ["a path below a link that leads up", [symlink("a/b/c", "../../d/."), entry({ name: "a/b/c/x" })]],
    [
      "a path below a chain of links",
      [symlink("a", "b/c"), symlink("b", "d"), entry({ name: "a/x" }), directory("a/y")],
    ],
    ["a hard link through a symbolic link", [symlink("a", "b"), hardLink("c", "/a/x")]],
    ["a passed link that is there again", [symlink("a", "b"), entry({ name: "a/x" }), symlink("a", "b")]],
    [
      "a link that leads out with nothing below it",
      [symlink("a", "/etc"), symlink("b", "../.."), entry({ name: "ab/x" })],
    ],
    ["a link that got another target", [symlink("a", "/etc"), symlink("a", "b"), entry({ name: "a/x" })]],
    ["a link that became a directory", [symlink("a", "/etc"), directory("a"), entry({ name: "a/x" })]],
  ])("passes as %s", async (_name, entries) => {
    await inspect(tar(...entries));
  });

  it.each([
    ["an absolute link", [symlink("a", "/etc")], "a", "etc"],
    ["a link to the root", [symlink("a", "/")], "a/etc", "etc"],
    ["a link that leads up", [symlink("a/b", "../../etc")], "a/b", "etc"],
    ["a link that leads up, and down again", [symlink("a", "b/../../c/./d")], "a", "c/d"],
    ["a link in another spelling", [symlink("./a/", "//etc/")], "/a/.", "etc"],
    ["a chain of links", [symlink("a", "b"), symlink("b", "c/d"), symlink("c", "/")], "a", "d"],
    ["a chain that leads up at its end", [symlink("d/a", "../b"), symlink("b", "..")], "d/a/e", "e"],
    ["a hard link to the link", [symlink("a", "/etc"), hardLink("b", "a")], "b", "etc"],
    ["a link that was made below another", [symlink("a", "b"), symlink("a/l", "/etc")], "b/l", "etc"],
    ["the same by another name", [symlink("a", "b/c"), symlink("b/c/l", "/etc")], "a/l", "etc"],
  ])("lies below %s where a chroot of the layer has it", async (_name, links, name, place) => {
    const layer = [...links, symlink(`${name}/l`, "q"), entry({ name: `${name}/l/x` }), hardLink("h", `${name}/l/x`)];
    await inspect(tar(...layer, entry({ name: `${name}/.wh.y` }), directory(`${name}/z`)));
    await expectRefused(
      tar(...layer, symlink(`${place}/l`, "r")),
      /replaces a symbolic link that has entries below it/,
    );
    await expectRefused(tar(...layer, directory(`${place}/l`)), /replaces a symbolic link that has entries below it/);
  });

  it.each([
    ["a link that leads out", symlink("a", "/etc")],
    ["another link", symlink("a", "c")],
    ["a hard link to a link that leads out", hardLink("a", "out")],
    ["a directory", directory("a")],
  ])("is refused in the place of a link that was passed: %s", async (_name, second) => {
    const layer = tar(symlink("out", "/etc"), symlink("a", "b"), entry({ name: "a/x" }), second);
    await expectRefused(layer, /replaces a symbolic link that has entries below it/);
  });

  it("is refused below links that lead to each other", async () => {
    await expectRefused(tar(symlink("a", "b"), symlink("b", "a"), entry({ name: "a/x" })), /too many symbolic links/);
  });

  it("is refused as a link with a target that no file system takes", async () => {
    const layer = tar(pax({ linkpath: "a/".repeat(100_000) }), symlink("l", "x"), entry({ name: "l/x" }));
    await expectRefused(layer, /target that is too long/);
  });

  it("is refused if links and directories that deep cost too much to follow", async () => {
    const deep = Array.from({ length: 300 }, (_, i) => [
      pax({ path: `${i}/${"d/".repeat(2_000)}x` }),
      entry({ name: "x" }),
    ]);
    await inspect(tar(...deep.flat()));
    await expectRefused(tar(symlink("l", "x"), ...deep.flat()), /exceeds what all directories may cost/);
    const chain = Array.from({ length: 39 }, (_, i) => [
      pax({ linkpath: `${"../a/".repeat(800)}l${i + 1}` }),
      symlink(`a/l${i}`, "x"),
    ]);
    await expectRefused(
      tar(
        ...chain.flat(),
        ...Array(400)
          .fill([entry({ name: "a/l0/x" }), symlink("y", "z")])
          .flat(),
      ),
      /what all directories may cost/,
    );
  });
});
