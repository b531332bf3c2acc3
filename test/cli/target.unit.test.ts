/** Profiles, and which daemon and key are meant: flag, environment, profile, this machine. */
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Profiles } from "../../src/cli/session/profiles.ts";
import {
  profilesOf,
  readEnvironment,
  readTarget,
  type TargetFlags,
  THIS_MACHINE,
} from "../../src/cli/session/target.ts";

const REMOTE = "http://10.0.0.5:8700";
const state = { dir: "" };

beforeEach(() => {
  state.dir = mkdtempSync("/var/tmp/hearth-cli-");
});
afterEach(() => rmSync(state.dir, { recursive: true }));

const environment = (variables: Record<string, string> = {}) =>
  readEnvironment({ XDG_CONFIG_HOME: state.dir, HEARTH_DATA_DIR: state.dir, ...variables });
const target = (flags: TargetFlags, variables: Record<string, string> = {}) => {
  const { url, key, url_source, key_source } = readTarget(flags, environment(variables));
  return [url, url_source, key, key_source];
};
const keepProfile = (isCurrent = true) =>
  profilesOf(environment()).put("work", { url: REMOTE, key: "work-key" }, isCurrent);
const keepKeyFile = () => writeFileSync(join(state.dir, "key"), "machine-key\n");

describe("profiles", () => {
  it("are kept, used, replaced and removed in a file that only the user reads", () => {
    const profiles = new Profiles(join(state.dir, "deep", "profiles.json"));
    expect(profiles.read()).toEqual({ current: null, profiles: {} });
    profiles.put("a", { url: REMOTE, key: "k1" }, false);
    profiles.put("b", { url: REMOTE, key: "k2" }, true);
    profiles.put("a", { url: REMOTE, key: "k3" }, false);
    expect(profiles.read()).toEqual({
      current: "b",
      profiles: { b: { url: REMOTE, key: "k2" }, a: { url: REMOTE, key: "k3" } },
    });
    expect(statSync(profiles.file).mode & 0o777).toBe(0o600);
    expect(statSync(join(state.dir, "deep")).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(state.dir, "deep"))).toEqual(["profiles.json"]);
    profiles.use("a");
    profiles.remove("a");
    expect(profiles.read()).toEqual({ current: null, profiles: { b: { url: REMOTE, key: "k2" } } });
    profiles.use("b");
    profiles.use(null);
    expect(profiles.read().current).toBeNull();
  });

  it("get their mode back when someone has opened it", () => {
    keepProfile();
    const { file } = profilesOf(environment());
    chmodSync(file, 0o644);
    keepProfile();
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it("are never written through what lies in their way", () => {
    keepProfile();
    const { file } = profilesOf(environment());
    const elsewhere = join(state.dir, "elsewhere");
    symlinkSync(elsewhere, `${file}.${process.pid}`);
    keepProfile();
    expect(existsSync(elsewhere)).toBe(false);
    expect(lstatSync(file).isFile()).toBe(true);
    writeFileSync(`${file}.${process.pid}`, "old", { mode: 0o644 });
    keepProfile();
    expect(lstatSync(file).mode & 0o777).toBe(0o600);
  });

  it("say what is there when one is not, also one that every object has", () => {
    keepProfile();
    const profiles = profilesOf(environment());
    expect(() => profiles.get("wrok")).toThrow(expect.objectContaining({ exit_code: 2, hint: "did you mean 'work'?" }));
    for (const name of ["toString", "__proto__"])
      expect(() => profiles.get(name)).toThrow(`no profile named '${name}'`);
  });

  it("are not guessed from a file that holds something else, which stays as it was", () => {
    keepProfile();
    const { file } = profilesOf(environment());
    for (const text of ["", "{", "[]", '{"current": 3, "profiles": {}}', '{"current": null, "profiles": {"a": {}}}']) {
      writeFileSync(file, text);
      expect(() => profilesOf(environment()).put("b", { url: REMOTE, key: "k" }, true)).toThrow("invalid profile file");
      expect(readFileSync(file, "utf8")).toBe(text);
    }
  });
});

function keyFile(text: string): string {
  const file = join(state.dir, "given.key");
  writeFileSync(file, text);
  return file;
}

describe("which daemon is meant", () => {
  it("is this machine's with its key file, unless something is said", () => {
    keepKeyFile();
    expect(target({})).toEqual(["http://127.0.0.1:8700", THIS_MACHINE, "machine-key", join(state.dir, "key")]);
    expect(target({}, { HEARTH_BOOTSTRAP_KEY: "b" }).slice(2)).toEqual(["b", "HEARTH_BOOTSTRAP_KEY"]);
  });

  it("goes by flag, then environment, then profile, then this machine", () => {
    keepKeyFile();
    keepProfile();
    const variables = { HEARTH_URL: "http://env:1/", HEARTH_KEY: "env-key" };
    expect(target({ url: "http://flag:1", keyFile: keyFile("flag-key\n") }, variables)).toEqual([
      "http://flag:1",
      "--url",
      "flag-key",
      "--key-file",
    ]);
    expect(target({}, variables)).toEqual(["http://env:1", "HEARTH_URL", "env-key", "HEARTH_KEY"]);
    expect(target({})).toEqual([REMOTE, "profile 'work'", "work-key", "profile 'work'"]);
    expect(target({ profile: "work" }, variables)).toEqual([REMOTE, "profile 'work'", "work-key", "profile 'work'"]);
    expect(target({ keyFile: keyFile("other") })).toEqual([REMOTE, "profile 'work'", "other", "--key-file"]);
  });

  it("finds the profile that is named, by flag or HEARTH_PROFILE, and refuses one that is not there", () => {
    keepProfile(false);
    keepKeyFile();
    expect(target({})[1]).toBe(THIS_MACHINE);
    expect(target({}, { HEARTH_PROFILE: "work" })[0]).toBe(REMOTE);
    expect(() => target({}, { HEARTH_PROFILE: "nope" })).toThrow("no profile named 'nope'");
  });

  it("sends no key where it does not belong", () => {
    keepKeyFile();
    keepProfile();
    expect(() => target({ url: "http://elsewhere.test" })).toThrow("no key for http://elsewhere.test");
    expect(() => target({}, { HEARTH_URL: "http://127.0.0.1.elsewhere.test" })).toThrow("no key for");
    expect(() => target({}, { HEARTH_URL: "http://127.0.0.1@elsewhere.test" })).toThrow("no key for");
    // The profile's URL by another way is the profile's URL, and any address of this machine is this machine.
    expect(target({ url: REMOTE })[2]).toBe("work-key");
    for (const url of ["http://localhost:9", "http://[::1]:9", "http://127.0.0.5:9"]) {
      expect(target({ url })[2]).toBe("machine-key");
    }
  });

  it("needs no readable profiles where all is said", () => {
    keepProfile();
    writeFileSync(profilesOf(environment()).file, "broken");
    expect(target({ url: "http://a:1", keyFile: keyFile("k") })[0]).toBe("http://a:1");
    expect(() => target({ url: "http://a:1" })).toThrow("invalid profile file");
  });

  it("takes no key from a file that is not there or holds none, and shows nothing of it", () => {
    expect(() => target({ url: "http://a:1", keyFile: join(state.dir, "none") })).toThrow("cannot read");
    expect(() => target({ url: "http://a:1", keyFile: keyFile("two words") })).toThrow(/^invalid key: empty/);
  });

  it("reads the key file that the daemon of this machine is given", () => {
    const HEARTH_BOOTSTRAP_KEY_FILE = keyFile("given-key");
    expect(target({}, { HEARTH_BOOTSTRAP_KEY_FILE }).slice(2)).toEqual(["given-key", HEARTH_BOOTSTRAP_KEY_FILE]);
  });

  it("is a URL, and there is a key", () => {
    expect(() => target({ url: "127.0.0.1:8700", keyFile: keyFile("k") })).toThrow("invalid URL");
    expect(() => target({ url: "ftp://a", keyFile: keyFile("k") })).toThrow("invalid URL");
    expect(existsSync(join(state.dir, "key"))).toBe(false);
    expect(() => target({})).toThrow(
      expect.objectContaining({ exit_code: 2, hint: expect.stringContaining("npm start") }),
    );
  });
});
