/** Words: private ones for which the field has a term stay out of documents, help, errors, descriptions and the page. */
import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import { openApiDocument } from "../../src/docs/openapi.ts";
import { DOCUMENTS } from "../support/markdown-documents.ts";
import { commandsOf, makeProgram } from "../support/program.ts";
import { PROJECT_FILES, readText, SOURCES } from "../support/project-files.ts";
import { ROUTES } from "../support/routes.ts";

/** A private word, and the terms to use instead. */
const BANNED: readonly (readonly [RegExp, string])[] = [
  [/\bstore area\b|\bthe area\b|\barea's\b/i, "storage pool"],
  [/\b(nobody|whoever)\b/i, "the actor: no client, the operator"],
  [/\btold\b|\btells?\b/i, "notifies, returns, reports, names"],
  [/\b(take[ns]?|taking|took) up\b(?! to)/i, "adopts, resumes"],
  [/\blook(s|ed|ing)? (at|into)\b/i, "checks, inspects, reads"],
  [/\b(go(es)?|going|gone|went) on\b/i, "continues, follows"],
  [/\bso (many|much|long|often)\b/i, "a number, a time, a limit"],
  [/\bas (it|they) comes?\b/i, "streams, as a stream"],
  [/\b(is|are|was|were) cut\b/i, "is truncated, is disconnected"],
  [/\bthat there (is|are)\b|\bwhat there is\b/i, "existing, lists"],
  [/\bgood for\b/i, "valid for"],
  [/\bthat is none\b|\bas may( be)?\b(?! [a-z])|\bas can be\b/i, "invalid; too many … (limit N)"],
  [/\bpassed over\b|\bpass(es)? over\b/i, "ignores"],
  [/\bby force\b/i, "SIGKILL, kills"],
  [/\bunless said\b/i, "by default"],
  [/\bnot there\b/i, "missing, not available"],
  [/\bgone\b/i, "removed, closed, ended, missing"],
  [/\banew\b/i, "again"],
  [/\bseen to\b|\bthere for\b|\bnothing to it\b|\blets? go\b/i, "removes, releases, survives"],
  [/\bstrays?\b/i, "leftover processes"],
  [/\bmade ahead\b/i, "created in advance"],
  [/\b(whether|what) (it|they) (lives?|live)\b|\bdaemon lives\b/i, "is alive"],
  [/\b(does|did) not get ready\b/i, "not ready within N ms"],
  [/\bdoes not go\b/i, "could not be removed"],
  [/\bnone is (called )?like that\b/i, "No containers match."],
];

function bannedIn(source: string, text: string): string[] {
  return BANNED.flatMap(([word, instead]) => {
    const at = text.search(word);
    if (at < 0) return [];
    const shown = text.slice(Math.max(0, at - 40), at + 40).replace(/\s+/g, " ");
    return [`${source}: "${shown}", write: ${instead}`];
  });
}

/** Every text of a tree of values. */
function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsOf) : [];
}

/** Literals of a source file that are sentences: errors, hints, help, descriptions, log lines. SQL and scripts are none. */
function sentencesOf(file: string): string[] {
  const code = readText(file).replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, "");
  return [...code.matchAll(/"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)]
    .map(([, quoted, template]) => quoted ?? template ?? "")
    .filter(
      (text) => /[a-z] [a-z]/i.test(text) && !/\b(SELECT|INSERT|UPDATE|DELETE FROM|CREATE)\b|\$\(|curl /.test(text),
    );
}

function helpOf(command: Command): string {
  const written: string[] = [];
  command.configureOutput({ writeOut: (text) => written.push(text) });
  command.outputHelp();
  return written.join("");
}

describe("private words are absent from", () => {
  it("the documents", () => {
    const found = DOCUMENTS.flatMap(({ path, prose }) => bannedIn(path, prose.replace(/`[^`\n]*`/g, "")));
    expect(found).toEqual([]);
  });

  it("the help of the command line", () => {
    const helps = commandsOf(makeProgram()).map(helpOf);
    expect(helps.flatMap((text) => bannedIn(text.split("\n")[0] ?? "", text))).toEqual([]);
  });

  it("the description of the API", () => {
    const about = { title: "hearth", version: "1", description: "", tags: {} };
    const description: unknown = openApiDocument(ROUTES, about);
    expect(textsOf(description).flatMap((text) => bannedIn("description", text))).toEqual([]);
  });

  it("errors, hints, log lines and texts of the page", () => {
    const pages = PROJECT_FILES.filter((file) => /^src\/page\/.*\.html$/.test(file));
    const found = [
      ...SOURCES.flatMap((file) => sentencesOf(file).flatMap((text) => bannedIn(file, text))),
      ...pages.flatMap((file) => bannedIn(file, readText(file))),
    ];
    expect(found).toEqual([]);
  });
});
