/** Recipes of profiles, their ids, and the records of releases: without a build. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { imageStore, PROJECT_DIR } from "../../src/installation/paths.js";
import {
  npmFiles,
  PROFILES_DIR,
  type Profile,
  pinnedPackages,
  profileChain,
  profileImage,
  profileNames,
} from "../../src/installation/profiles.js";
import {
  channelRelease,
  channelVersions,
  type Package,
  type Release,
  readChannel,
  readPackages,
  readReleases,
  removeRelease,
  VERSION,
  versionOf,
  writeChannel,
  writeRelease,
} from "../../src/installation/releases.js";
import { Commands } from "../../src/setup/command.js";
import { installedPackages, licencesOf } from "../../src/setup/package-list.js";
import { finishScript } from "../../src/setup/profile-root.js";

let directory = "";
const commands = new Commands(() => {});

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "hearth-profiles-"));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

function writeRecipe(name: string, more: Partial<Profile> & { readonly from: string | null }): void {
  const lists = { packages: [], directories: [], path_exclude: [], path_include: [], tools: [], verify: [] };
  const maps = { npm_files: {}, scripts: {}, links: {}, environment: {} };
  const recipe = { name, title: name, description: name, revision: 1, ...lists, ...maps, ...more };
  mkdirSync(join(directory, name), { recursive: true });
  writeFileSync(join(directory, name, "profile.json"), JSON.stringify(recipe));
}

const own = () => ({ further_dir: directory });
const idOf = (name: string) => profileImage(name, own()).recipe_id;

describe("recipes of this checkout", () => {
  test("are those that the interface names, and two for agents", () => {
    expect(profileNames()).toEqual(["aegis", "amp", "cc", "codex", "prod", "prod-gui", "rlm"]);
  });

  test.each(profileNames())("%s is well-formed and begins with prod", (name) => {
    const chain = profileChain(name);
    expect(chain[0]?.profile).toMatchObject({ name: "prod", from: null });
    const { profile } = profileImage(name);
    expect(profile.name).toBe(name);
    expect(profile.title).not.toBe("");
    expect(profile.description).toMatch(/\.$/);
    expect(profile.packages).toEqual([...new Set(profile.packages)].sort());
    for (const one of profile.packages) expect(one).toMatch(/^[a-z0-9][a-z0-9.+-]+$/);
    const paths = [...profile.directories, ...Object.keys(profile.scripts), ...Object.keys(profile.links)];
    for (const path of paths) expect(path).toMatch(/^\/[^.].*[^/]$/);
    expect(profile.tools.length).toBeGreaterThan(0);
    for (const tool of profile.tools) expect(tool).toMatch(/^[\w.+-]+$/);
  });

  test("cc and codex share the layer of the agent tools", () => {
    for (const name of ["cc", "codex"]) {
      expect(profileChain(name).map(({ profile }) => profile.name)).toEqual(["prod", "amp", name]);
      expect(profileImage(name).profile.packages).toEqual([]);
    }
  });

  test("each folder holds a recipe and its files, and nothing else", () => {
    for (const name of readdirSync(PROFILES_DIR)) {
      const extra = readdirSync(join(PROFILES_DIR, name)).filter((one) => one !== "profile.json" && one !== "files");
      expect(extra).toEqual([]);
    }
  });
});

describe("the id of a recipe", () => {
  test("is twelve hex digits, and names the newest release in the store", () => {
    const { reference, recipe_id } = profileImage();
    expect(recipe_id).toMatch(/^[0-9a-f]{12}$/);
    expect(reference).toBe(`localhost/hearth/prod:${recipe_id}`);
  });

  test("changes with the recipe, its files and their mode, and the recipe below it, but not with words for people", () => {
    writeRecipe("below", { from: null });
    writeRecipe("above", { from: "below" });
    const first = idOf("above");
    writeRecipe("above", { from: "below", title: "Other", description: "Other." });
    expect(idOf("above")).toBe(first);
    writeRecipe("above", { from: "below", packages: ["git"] });
    const second = idOf("above");
    expect(second).not.toBe(first);
    const file = join(directory, "above/files/etc/motd");
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(file, "hello\n");
    const third = idOf("above");
    expect(third).not.toBe(second);
    writeFileSync(file, "hello\n", { mode: 0o755 });
    rmSync(file);
    writeFileSync(file, "hello\n", { mode: 0o755 });
    expect(idOf("above")).not.toBe(third);
    const fourth = idOf("above");
    writeRecipe("below", { from: null, revision: 2 });
    expect(idOf("above")).not.toBe(fourth);
  });

  test("changes with the pinned npm packages that the profile copies", () => {
    const { profile, recipe_id } = profileImage();
    const pins = JSON.parse(readFileSync(join(PROJECT_DIR, "package.json"), "utf8"));
    const node = `node-linux-${process.arch}`;
    expect(npmFiles(profile)["/usr/local/bin/node"]).toBe(`${node}/bin/node`);
    expect(pinnedPackages(profile, pins)).toEqual([
      `${node} ${pins.optionalDependencies[node]}`,
      `npm ${pins.dependencies.npm}`,
    ]);
    const newer = { ...pins, dependencies: { ...pins.dependencies, npm: "999.0.0" } };
    expect(profileImage("prod", { pins }).recipe_id).toBe(recipe_id);
    expect(profileImage("prod", { pins: newer }).recipe_id).not.toBe(recipe_id);
  });
});

describe("a recipe is refused", () => {
  test.each([
    ["layers in a circle", () => writeRecipe("a", { from: "a" }), /more than 8 layers/],
    ["an unknown profile below it", () => writeRecipe("a", { from: "none" }), /unknown profile: 'none'/],
    ["another name than its folder", () => writeRecipe("a", { from: null, name: "b" }), /field name is malformed/],
    ["a list that is none", () => writeRecipe("a", { from: null, tools: "sh" as never }), /field tools is malformed/],
  ])("with %s", (_title, write, message) => {
    write();
    expect(() => profileChain("a", own())).toThrow(message);
  });

  test("with a name that leads out of the folder", () => {
    for (const name of ["../prod", "prod/../prod", "", ".", "PROD"])
      expect(() => profileChain(name)).toThrow(/unknown/);
  });
});

describe("the finished root", () => {
  test("has no settings of apt, and has the links, scripts and files of the profile", async () => {
    const image = profileImage();
    const profile = { ...image.profile, npm_files: {} };
    const root = join(directory, "root");
    mkdirSync(join(root, "etc/apt/apt.conf.d"), { recursive: true });
    mkdirSync(join(root, "usr/bin"), { recursive: true });
    writeFileSync(join(root, "etc/apt/apt.conf.d/99proxy"), "Acquire::http::Proxy secret;");
    mkdirSync(join(directory, "files/etc"), { recursive: true });
    writeFileSync(join(directory, "files/etc/run.sh"), "#!/bin/sh\n", { mode: 0o700 });
    await commands.run(["sh", "-c", finishScript({ ...image, profile, directory }), "sh", root]);
    expect(existsSync(join(root, "etc/apt"))).toBe(false);
    expect(readFileSync(join(root, "etc/resolv.conf"), "utf8")).toBe("");
    expect(readFileSync(join(root, "etc/hosts"), "utf8")).toContain("127.0.0.1\tlocalhost");
    expect(readdirSync(join(root, "usr/bin"))).toEqual(["python"]);
    expect(readdirSync(join(root, "usr/local/bin")).sort()).toEqual(["npm", "npx", "pip", "pip3"]);
    expect(statSync(join(root, "usr/local/bin/pip")).mode & 0o777).toBe(0o755);
    expect(statSync(join(root, "etc/run.sh"))).toMatchObject({ uid: 0, gid: 0 });
    expect(statSync(join(root, "etc/run.sh")).mode & 0o7777).toBe(0o755);
    expect(readFileSync(join(root, "usr/local/bin/pip"), "utf8")).toContain(`exec python3 "$wheel/pip" "$@"`);
    expect(statSync(join(root, "run/secrets")).mode & 0o777).toBe(0o755);
  });

  test("of a hardened profile has no setuid file and no folder that others may write but /tmp and /var/tmp", async () => {
    const image = profileImage();
    const profile = { ...image.profile, npm_files: {}, from: "prod", hardened: true };
    for (const path of ["usr/bin", "var/tmp", "tmp", "srv/open"]) mkdirSync(join(directory, path), { recursive: true });
    writeFileSync(join(directory, "usr/bin/su"), "");
    const script = 'cd "$1"; chmod 6755 usr/bin/su; chmod 1777 var/tmp tmp srv/open; chmod 666 etc/hosts';
    mkdirSync(join(directory, "etc"));
    writeFileSync(join(directory, "etc/hosts"), "");
    await commands.run(["sh", "-c", script, "sh", directory]);
    await commands.run(["sh", "-c", finishScript({ ...image, profile, directory: "/nowhere" }), "sh", directory]);
    const mode = (path: string) => statSync(join(directory, path)).mode & 0o7777;
    expect(mode("usr/bin/su")).toBe(0o755);
    expect([mode("tmp"), mode("var/tmp")]).toEqual([0o1777, 0o1777]);
    expect(mode("srv/open")).toBe(0o1775);
    expect(mode("etc/hosts")).toBe(0o664);
  });
});

describe("packages", () => {
  const status = [
    "Package: gcc-12-base\nStatus: install ok installed\nInstalled-Size: 101\nSource: gcc-12 (12.2.0-14)\nArchitecture: amd64\nVersion: 12.2.0-14+deb12u1",
    "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1",
    "Package: bash\nStatus: install ok installed\nInstalled-Size: 7164\nArchitecture: amd64\nVersion: 5.2.15-2+b7\n",
  ].join("\n\n");

  test("are the installed ones of dpkg's status file, by name", () => {
    expect(installedPackages(status)).toEqual([
      { name: "bash", version: "5.2.15-2+b7", architecture: "amd64", source: "bash", size_kb: 7164, kind: "deb" },
      {
        ...{ name: "gcc-12-base", version: "12.2.0-14+deb12u1", architecture: "amd64" },
        ...{ source: "gcc-12", size_kb: 101, kind: "deb" },
      },
    ]);
  });

  test("have the licences that their copyright file names", () => {
    expect(licencesOf("Files: *\nLicense: GPL-3+\n\nLicense: MIT\n Permission\nLicense: GPL-3+\n")).toEqual([
      "GPL-3+",
      "MIT",
    ]);
    expect(licencesOf("see /usr/share/common-licenses/GPL-2.\n")).toEqual(["GPL-2"]);
    expect(licencesOf("License:\n")).toEqual([]);
  });
});

describe("releases and channels", () => {
  const packageOf = (name: string, version: string): Package => {
    return { name, version, architecture: "amd64", source: name, licences: [], size_kb: 1, kind: "deb" };
  };

  function release(version: string, image_id: string, created_at: number): Release {
    const { recipe_id, suite, repository } = profileImage();
    return {
      ...{ profile: "prod", version, recipe_id, suite, architecture: "x64", image_id, digest: "sha256:00" },
      ...{ reference: `${repository}:${version}`, base_version: null, created_at, size_bytes: 1, own_bytes: 1 },
      ...{ package_count: 1, tools: {}, phases_ms: {} },
    };
  }

  function store(...ids: string[]): void {
    const { images_file } = imageStore(directory);
    mkdirSync(join(images_file, ".."), { recursive: true });
    writeFileSync(images_file, JSON.stringify(ids.map((id) => ({ id, names: ["0123"] }))));
  }

  test("a version names the recipe and the versions of all packages, whatever their order", () => {
    const a = versionOf("0123456789ab", [packageOf("a", "1"), packageOf("b", "2")]);
    expect(a).toMatch(VERSION);
    expect(versionOf("0123456789ab", [packageOf("b", "2"), packageOf("a", "1")])).toBe(a);
    expect(versionOf("0123456789ab", [packageOf("a", "1"), packageOf("b", "3")])).not.toBe(a);
  });

  test("a release counts only while the store lists its image", () => {
    const image = profileImage();
    const version = versionOf(image.recipe_id, []);
    writeRelease(directory, release(version, "0123", 1), [packageOf("a", "1")], "status");
    writeChannel(directory, image, "latest", { version, history: [], changed_at: 1 });
    expect(channelRelease(directory, image)).toBe(null);
    store("4567");
    expect(channelRelease(directory, image)).toBe(null);
    expect(readReleases(directory, "prod")).toEqual([]);
    store("0123");
    expect(channelRelease(directory, image)).toMatchObject({ version, image_id: "0123" });
    expect(readReleases(directory, "prod").map((one) => one.version)).toEqual([version]);
    expect(readPackages(directory, "prod", version)).toEqual([packageOf("a", "1")]);
    removeRelease(directory, "prod", version);
    expect(channelRelease(directory, image)).toBe(null);
    expect(readdirSync(join(directory, "profiles/prod"))).toEqual([]);
  });

  test("a record that a full disk cut short is no release", () => {
    const image = profileImage();
    const version = versionOf(image.recipe_id, []);
    writeRelease(directory, release(version, "0123", 1), [], "");
    store("0123");
    writeFileSync(join(directory, "profiles/prod", `${version}.json`), '{"profile":"pr');
    writeChannel(directory, image, "latest", { version, history: [], changed_at: 1 });
    expect(channelRelease(directory, image)).toBe(null);
  });

  test("latest of another recipe is another channel, and stable is one for all", () => {
    const image = profileImage();
    const other = { ...image, recipe_id: "ffffffffffff" };
    writeChannel(directory, image, "latest", { version: "a", history: [], changed_at: 1 });
    writeChannel(directory, other, "latest", { version: "b", history: ["c"], changed_at: 1 });
    writeChannel(directory, other, "stable", { version: "d", history: [], changed_at: 1 });
    expect(readChannel(directory, image, "latest")).toMatchObject({ version: "a", history: [] });
    expect(readChannel(directory, image, "stable")).toMatchObject({ version: "d" });
    expect(channelVersions(directory, image)).toEqual(new Set(["a", "d"]));
  });
});
