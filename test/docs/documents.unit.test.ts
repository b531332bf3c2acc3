/** The documents: links lead somewhere, README stays short, and names in them exist. */
import { existsSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import { PROJECT_DIR } from "../../src/installation/paths.js";
import { DOCUMENTS, documentAt, PASTED } from "../support/markdown-documents.ts";
import { makeProgram } from "../support/program.ts";
import { PROJECT_FILES, readText } from "../support/project-files.ts";

const README = documentAt("README.md");

const program = makeProgram();

/** Returns the first word that no command has; null if all words before a flag or an argument are commands. */
function unknownCommand(words: readonly string[]): string | null {
  let at: Command = program;
  for (const word of words) {
    if (at.commands.length === 0 || !/^[a-z-]+$/.test(word)) return null;
    const found = at.commands.find((one) => one.name() === word || one.aliases().includes(word));
    // `login` has a word of its own, and commands below it.
    if (found === undefined) return at.registeredArguments.length > 0 ? null : word;
    at = found;
  }
  return null;
}

describe("the documents", () => {
  it("link only to files and headings that exist", () => {
    const broken = DOCUMENTS.flatMap(({ path, links }) =>
      links
        .filter((link) => !/^[a-z]+:/.test(link))
        .filter((link) => {
          const [file = "", anchor] = link.split("#");
          const target = file === "" ? path : normalize(join(dirname(path), file));
          if (!existsSync(join(PROJECT_DIR, target))) return true;
          return anchor !== undefined && !documentAt(target).anchors.includes(anchor);
        })
        .map((link) => `${path} → ${link}`),
    );
    expect(broken).toEqual([]);
  });

  it("name the daemon of their commands, so that they run as pasted on any port", () => {
    const guides = PASTED.filter(({ path, text }) => path !== "README.md" && /^npx hearth (?!help|--help)/m.test(text));
    expect(guides.length).toBeGreaterThan(5);
    const silent = guides.filter(({ blocks }) => {
      const first = blocks.find(({ language }) => language === "sh");
      return !/^export HEARTH_URL=\S+ HEARTH_KEY=/.test(first?.text ?? "");
    });
    // It describes how the command line chooses a daemon.
    expect(silent.map(({ path }) => path)).toEqual(["src/docs/guides/command-line.md"]);
  });

  it("name only files that exist", () => {
    const named = /`((?:src|pool|runtimes|test|bench)\/[\w./-]*\w)`/g;
    const missing = DOCUMENTS.flatMap(({ path, prose }) =>
      [...prose.matchAll(named)]
        .map(([, file = ""]) => file)
        .filter((file) => !existsSync(join(PROJECT_DIR, file)))
        .map((file) => `${path}: ${file}`),
    );
    expect(missing).toEqual([]);
  });

  it("are all reached from README by links", () => {
    const reached = new Set(["README.md"]);
    for (const path of reached) {
      for (const link of documentAt(path).links.filter((one) => !/^[a-z]+:/.test(one))) {
        const target = normalize(join(dirname(path), link.split("#")[0] ?? ""));
        if (DOCUMENTS.some((one) => one.path === target)) reached.add(target);
      }
    }
    expect(DOCUMENTS.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
  });

  it.each(["pool", "src/telemetry"])("of %s link every file of the folder", (folder) => {
    const { links } = documentAt(`${folder}/README.md`);
    const files = PROJECT_FILES.filter((file) => dirname(file) === folder && file.endsWith(".ts"));
    expect(files.map((file) => basename(file)).filter((file) => !links.includes(file))).toEqual([]);
  });

  it("name the language of every fenced block", () => {
    const languages = new Set(["sh", "text", "json", "yaml", "js", "py", "toml"]);
    const wrong = DOCUMENTS.flatMap(({ path, blocks }) =>
      blocks.filter(({ language }) => !languages.has(language)).map(({ text }) => `${path}: ${text.slice(0, 40)}`),
    );
    expect(wrong).toEqual([]);
  });

  it("show only npm scripts and commands of hearth that exist", () => {
    const { scripts } = JSON.parse(readText("package.json")) as { scripts: Readonly<Record<string, string>> };
    const wrong = DOCUMENTS.flatMap(({ path, text }) => {
      const npm = [...text.matchAll(/\bnpm (?:run ([\w:]+)|(start|test)\b)/g)].map(([, run, own]) => run ?? own ?? "");
      const shown = [...text.matchAll(/(?:^\s*npx |`(?:npx )?)hearth ([a-z][^`\n]*)/gm)].map(([, line = ""]) => line);
      const unknown = shown.map((line) => unknownCommand(line.replaceAll("\\|", " | ").split(/\s+/)));
      return [
        ...npm.filter((name) => scripts[name] === undefined).map((name) => `${path}: npm run ${name}`),
        ...unknown.filter((word) => word !== null).map((word) => `${path}: hearth … ${word}`),
      ];
    });
    expect(wrong).toEqual([]);
  });
});

describe("README", () => {
  it("has at most 200 lines and 14,000 characters", () => {
    expect(README.text.trimEnd().split("\n").length).toBeLessThanOrEqual(200);
    expect(README.text.length).toBeLessThanOrEqual(14_000);
  });
});

describe("README and the guides", () => {
  it("have commands to paste, which a test of the API runs", () => {
    const scripts = PASTED.filter(({ blocks }) => blocks.some(({ language }) => language === "sh"));
    expect(scripts.length).toBeGreaterThan(8);
  });
});
