/** Hints as the command line prints them: every hint of the source, against the commands and flags that exist. */
import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import { LIMIT_NAMES } from "../../src/base/tenant-limits.ts";
import { commandLineHint, HINT_WORDS } from "../../src/cli/hints.ts";
import { commandsOf, makeProgram } from "../support/program.ts";
import { readText, SOURCES } from "../support/project-files.ts";

/** Processes in containers request the routes of src/icc/inside, and no command does. */
const texts = SOURCES.filter((file) => /^src\/(?!cli\/|docs\/|icc\/inside\/).*\.ts$/.test(file)).map(readText);
/** The text of each `hint:`, with what is inserted as `<id>`. */
const hints = texts.flatMap((text) =>
  [...text.matchAll(/\bhint(?::| =)([^;{}]{0,40}?)(?:"([^"]+)"|`([^`]+)`)/g)].map(([, , plain, template]) =>
    (plain ?? template ?? "").replace(/\$\{[^}]*\}/g, "<id>"),
  ),
);

/** Terms that a user of the command line meets as they are, or never: nothing that it sends leads to the hint. */
const OTHERS = ["retry_after", "next_cursor", "container_id", "owner_node_id", "message_type", ...LIMIT_NAMES];

describe("a hint", () => {
  it("on the command line names commands and flags, not routes and fields", () => {
    expect(hints.length).toBeGreaterThan(50);
    const foreign = hints
      .map(commandLineHint)
      .filter((hint) => (hint.match(/\/api\/|\b[a-z]+(?:_[a-z]+)+\b/g) ?? []).some((term) => !OTHERS.includes(term)));
    expect(foreign).toEqual([]);
    expect(commandLineHint("send oci: true for an OCI image reference")).toBe("give --oci for an OCI image reference");
    expect(commandLineHint("start it with POST /api/containers/ctr_1/start")).toBe("start it with hearth start ctr_1");
  });

  it("names only commands and flags that exist", () => {
    const program = makeProgram();
    const flags = new Set(
      commandsOf(program).flatMap(({ options }) => options.flatMap(({ long, short }) => [long, short])),
    );
    for (const word of HINT_WORDS.flatMap((own) => own.match(/(?<!\w)--?[a-z]+(?:-[a-z]+)*/g) ?? []))
      expect(flags).toContain(word);
    for (const own of HINT_WORDS.filter((text) => text.startsWith("hearth "))) {
      let command: Command | undefined = program;
      for (const word of own.split(" ").slice(1)) {
        if (word !== "$1") command = command?.commands.find((one) => one.name() === word);
      }
      expect([own, command?.name()]).not.toContain(undefined);
    }
  });
});
