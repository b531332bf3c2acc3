/** The rules of .gitignore, held against git itself: which files of a folder are code. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { scan } from "../../src/cli/project/files.ts";

const root = mkdtempSync(join(tmpdir(), "hearth-git-"));
afterAll(() => rmSync(root, { recursive: true }));

/** Git without the settings of the machine and its user. */
const environment = {
  PATH: "/usr/bin:/bin:/usr/local/bin",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_SYSTEM: "/dev/null",
};
const git = (...args: string[]) => execFileSync("git", args, { cwd: root, encoding: "utf8", env: environment });

const NAMES = ["a", "A", "ab", "b", "bar", "a b", "a ", "é", ".c", "[a]", "a\\", "#a", "!a", "*", "a-b"];
const FOLDERS = ["", "a", "a/b", "a/b/a", "A", "bar", "bar/ab", "é", "a b", "[a]"];

beforeAll(() => {
  git("init", "-q");
  for (const base of FOLDERS) {
    mkdirSync(join(root, base), { recursive: true });
    for (const name of NAMES) {
      const path = base === "" ? name : `${base}/${name}`;
      if (!FOLDERS.includes(path)) writeFileSync(join(root, path), "");
    }
  }
});

type Rules = Readonly<Record<string, string>>;

/** Writes files of rules by folder, and reads what git and the scan keep. */
function both(rules: Rules): { readonly wanted: readonly string[]; readonly own: readonly string[] } {
  const files = Object.entries(rules).map(([base, text]) => [join(root, base, ".gitignore"), text] as const);
  for (const [file, text] of files) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  const listed = git("ls-files", "-z", "--others", "--exclude-standard").split("\0");
  const wanted = listed.filter((path) => path !== "" && !/(^|\/)\.gitignore$/.test(path));
  const own = scan(root).entries.filter(({ type }) => type === "file");
  for (const [file] of files) rmSync(file);
  return { wanted: wanted.sort(), own: own.map(({ path }) => path).sort() };
}

describe("the code of a folder", () => {
  it("is what git keeps, for rules known to be hard", () => {
    const hard: readonly Rules[] = [
      { "": "BAR\nAB\n" },
      { "": "bar/\n!bar/ab\n" },
      { "": "a/*\n!a/b\n" },
      { "": "/*\n!/bar\n/bar/*\n!/bar/ab\n" },
      { "": "b\n", a: "!b\n" },
      { "": "ab\n", bar: "!ab/\n" },
      { "": "bar   \n" },
      { "": "a\\ \n" },
      { "": "a \n" },
      { "": "bar\t\n" },
      { "": "bar\r\na b\r\n" },
      { "": "\ufeffbar\n" },
      { "": "a**/ab\n" },
      { "": "a/**/ab\n" },
      { "": "**/ab\nbar/**\n!bar/ab/**\n" },
      { "": "***\\/ab\n" },
      { "": "?\n??\n!a\n" },
      { "": "[à-ü]\n[[:upper:]]\n" },
      { "": "[]a]b\n[!a]\n[a-\n" },
      { "": "\\#a\n\\!a\n\\*\n!\\[a]\n" },
      { "": "a\\\\\n\\\n" },
      { "": "bar\0x\n" },
      { "": "/\n//\n!\n!/\n/a/\n" },
      { "": "bar", "a/b": "/a\n" },
    ];
    for (const rules of hard) {
      const { wanted, own } = both(rules);
      expect(own, JSON.stringify(rules)).toEqual(wanted);
    }
  });

  it("is what git keeps, whatever the rules", () => {
    const parts = [
      ...NAMES,
      "*",
      "**",
      "***",
      "?",
      "[a-b]",
      "[!a]",
      "[^b]",
      "[[:alpha:]]",
      "[",
      "]",
      "\\",
      "\\ ",
      "/",
      "/",
    ];
    const pattern = fc
      .record({
        negation: fc.constantFrom("", "", "!"),
        start: fc.constantFrom("", "", "/", "**/"),
        middle: fc.array(fc.constantFrom(...parts), { minLength: 1, maxLength: 5 }),
        end: fc.constantFrom("", "", "/", "/*", "/**", " ", "\r", "\t"),
      })
      .map(({ negation, start, middle, end }) => negation + start + middle.join("") + end);
    const text = fc.array(pattern, { minLength: 1, maxLength: 6 }).map((lines) => lines.join("\n"));
    const rules = fc.dictionary(fc.constantFrom(...FOLDERS), text, { minKeys: 1, maxKeys: 3 });
    fc.assert(
      fc.property(rules, (one) => {
        const { wanted, own } = both(one);
        expect(own).toEqual(wanted);
      }),
      { numRuns: 300 },
    );
  });
});
