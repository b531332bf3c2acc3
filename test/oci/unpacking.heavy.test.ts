/**
 * Layers that pass the check, unpacked by containers/storage itself: the tree has the entries that were checked, with their
 * sizes, and no others. A parser that reads a field in another way than Go would let the two differ.
 */
import { lstatSync, readdirSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LayerEntries } from "../../src/oci/layers/layer-entries.ts";
import { type LayerEntry, LayerTar } from "../../src/oci/layers/layer-tar.ts";
import { storeCommands } from "../support/image-parts.ts";
import { directory, END, entry, hardLink, long, padded, pax, symlink } from "../support/layer-bytes.ts";
import { Ground } from "../support/storage-ground.ts";

const LAYERS = 1_000;
const SEED = 20_261_123;

const ground = new Ground();
beforeAll(() => ground.start());
afterAll(() => ground.stop());

/** Returns the entries of a layer that passes the check, null if it is refused. */
function checked(layer: Buffer): LayerEntry[] | null {
  const found: LayerEntry[] = [];
  const rules = new LayerEntries();
  const tar = new LayerTar((one) => {
    rules.add(one);
    found.push(one);
  });
  try {
    tar.push(layer);
    tar.end();
    return found;
  } catch {
    return null;
  }
}

const normal = (name: string) =>
  name
    .split("/")
    .filter((part) => part !== "" && part !== ".")
    .join("/");

/** Names that a tree may have because of an entry, whiteouts included. */
function namesOf({ name }: LayerEntry): string[] {
  const parts = normal(name).split("/");
  const above = parts.map((_, i) => parts.slice(0, i + 1).join("/"));
  const base = parts.at(-1) ?? "";
  return base.startsWith(".wh.") ? [...above, [...parts.slice(0, -1), base.slice(4)].join("/")] : above;
}

/** Paths below a directory, with the sizes of files. */
function treeOf(root: string, at = ""): [path: string, size: number | null][] {
  return readdirSync(`${root}/${at}`).flatMap((name) => {
    const path = at === "" ? name : `${at}/${name}`;
    const info = lstatSync(`${root}/${path}`);
    const own: [string, number | null] = [path, info.isFile() ? info.size : null];
    return info.isDirectory() ? [own, ...treeOf(root, path)] : [own];
  });
}

/** A content that is an entry of its own to a reader that begins in it. */
const hidden = fc.nat(9).map((n) => entry({ name: `hidden${n}`, content: "h" }));
const name = fc.constantFrom("a", "b", "a/b", "d/", "./c", "d//e", "d/./f", "x/y/z", ".wh.a", "d/.wh..wh..opq", "..a");
const value = fc.constantFrom(
  "",
  "0",
  "1",
  "512",
  "1000",
  "1024",
  "1536",
  "+5",
  "-1",
  " 7",
  "7 ",
  "0x10",
  "1\0",
  "a",
  "d/e",
);
const number = fc.constantFrom(
  ..."0 1000 00000001000 1000\0\0\0 \0\0\0\u00001000 1000\u00001 \x80\0\0\0\0\0\0\0\0\0\x02\0 9 \u00001".split(" "),
  " 1000 ",
  "      1000  ",
  "1000 1",
);
const key = fc.constantFrom(
  ..."path linkpath size comment uid mtime GNU.sparse.name GNU.sparse.major GNU.sparse.minor GNU.sparse.map".split(" "),
  ..."GNU.sparse.size GNU.sparse.realsize GNU.sparse.numblocks GNU.sparse.offset GNU.sparse.numbytes".split(" "),
);
const magic = fc.constantFrom("ustar\u000000", "ustar  \0", "", "ustar\0  ", "ustar ");
const patch = fc.constantFrom(
  [345, "p"],
  [345, "p/q"],
  [357, "\x80"],
  [357, "77"],
  [345, "no time"],
  [482, "\x01"],
  [483, "1000\0"],
  [386, "0\0"],
  [508, "tar\0"],
  [476, "behind"],
) as fc.Arbitrary<readonly [number, string]>;
const type = fc.constantFrom(..."00000\0\x0012567SSVgx".split(""));

const any = fc
  .record({
    name,
    type,
    magic,
    link: name,
    content: fc.oneof(
      hidden,
      fc.constant(""),
      fc.constant("short"),
      hidden.map((one) => Buffer.concat([one, one])),
    ),
    size: fc.option(number, { nil: undefined }),
    patches: fc.array(patch, { maxLength: 2 }),
  })
  .map(({ size, ...header }) => entry(size === undefined ? header : { ...header, size }));
const records = fc.dictionary(key, fc.oneof(value, name), { maxKeys: 4 });
const sparse = fc
  .record({
    version: fc.constantFrom(["0", "0"], ["0", "1"], ["1", "0"], ["", ""], ["2", "0"]),
    map: value,
    size: value,
    name,
  })
  .map(({ version, map, size, name }) => {
    const [major = "", minor = ""] = version;
    const map_fields = { "GNU.sparse.map": map, "GNU.sparse.numblocks": "1", "GNU.sparse.size": size };
    return pax({ "GNU.sparse.major": major, "GNU.sparse.minor": minor, "GNU.sparse.name": name, ...map_fields });
  });
const named = fc
  .record({ kind: fc.constantFrom("L", "K"), text: name })
  .map(({ kind, text }) => long(kind as "L" | "K", text));
const plain = name.map((one) => entry({ name: one, content: "ok" }));
const paths = name.map((path) => pax({ path }));
/** Several headers of one entry, in any order. */
const headed = fc
  .tuple(
    fc.array(
      fc.oneof(
        named,
        sparse,
        paths,
        records.map((all) => pax(all)),
      ),
      { minLength: 1, maxLength: 3 },
    ),
    plain,
  )
  .map(([headers, one]) => Buffer.concat([...headers, one]));
const piece = fc.oneof(
  headed,
  headed,
  headed,
  any,
  any,
  any,
  records.map((all) => pax(all)),
  records.map((all) => pax(all, "g")),
  sparse,
  named,
  plain,
  name.map((one) => entry({ name: one, content: padded(Buffer.from("1\n0\n0\n")) })),
  name.map(directory),
  fc.tuple(name, name).map(([one, other]) => symlink(one, other)),
  fc.tuple(name, name).map(([one, other]) => hardLink(one, other)),
  hidden.map((one) => one.subarray(0, 512)),
);

describe("layers that pass", () => {
  it("are unpacked to the entries that were checked", { timeout: 600_000 }, async () => {
    const { root, storage } = storeCommands(ground.root);
    const samples = fc.sample(fc.array(piece, { minLength: 1, maxLength: 6 }), { seed: SEED, numRuns: LAYERS });
    const counts = { refused: 0, passed: 0, unpacked: 0 };
    for (const [i, pieces] of samples.entries()) {
      const layer = Buffer.concat([...pieces, END]);
      const entries = checked(layer);
      if (entries === null) {
        counts.refused++;
        continue;
      }
      counts.passed++;
      writeFileSync(`${ground.root}/layer`, layer);
      const id = i.toString(16).padStart(64, "0");
      const argv = [...storage, "import-layer", "--readonly", "--id", id, "--file", `${ground.root}/layer`];
      const { exit_code } = await ground.client.spawn({ argv, timeout_ms: 20_000 });
      // Go refuses it: nothing is unpacked.
      if (exit_code !== 0) continue;
      counts.unpacked++;
      const names = new Set(entries.flatMap(namesOf));
      const sizes = entries.filter((one) => one.type === "0").map((one) => `${normal(one.name)} ${one.size}`);
      const links = new Set(entries.filter((one) => one.type === "1").map((one) => normal(one.name)));
      const tree = treeOf(`${root}/overlay/${id}/diff`);
      const shown = `layer ${i}: ${JSON.stringify({ tree, entries })}`;
      expect(
        tree.filter(([path]) => !names.has(path)),
        shown,
      ).toEqual([]);
      const wrong = tree.filter(
        ([path, size]) => size !== null && !links.has(path) && !sizes.includes(`${path} ${size}`),
      );
      expect(wrong, shown).toEqual([]);
      await ground.client.run([...storage, "delete-layer", id], 20_000);
    }
    // The layers are neither all wrong nor all simple.
    expect(counts.unpacked).toBeGreaterThan(LAYERS / 10);
    expect(counts.refused).toBeGreaterThan(LAYERS / 10);
  });
});
