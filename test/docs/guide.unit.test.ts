/** Which form of a guide a client gets, and what its Markdown is made of. */
import { describe, expect, it } from "vitest";
import { preferredType } from "../../src/base/media-types.ts";
import { bullets, fenced, heading, table } from "../../src/docs/markdown.ts";

const JSON_OR_MARKDOWN = ["application/json", "text/markdown"] as const;
const chosen = (accept: string | null) => preferredType(accept, JSON_OR_MARKDOWN).split("/")[1];

describe("the type that a client would rather have", () => {
  it.each([
    [null, "json"],
    ["", "json"],
    ["*/*", "json"],
    ["application/json", "json"],
    ["text/markdown", "markdown"],
    ["Text/Markdown; charset=utf-8", "markdown"],
    ["text/*", "markdown"],
    // Named exactly, beside a wildcard that takes the other.
    ["text/markdown, */*", "markdown"],
    ["text/markdown, text/html, */*;q=0.8", "markdown"],
    ["text/markdown, application/json", "json"],
    ["application/json;q=0.9, text/markdown", "markdown"],
    ["application/json, text/markdown;q=0.9", "json"],
    // Refused by name, though a wildcard takes it.
    ["text/markdown;q=0, */*", "json"],
    ["application/json;q=0, */*;q=0.1", "markdown"],
    // A browser.
    ["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "json"],
    // Nothing that is offered, nothing that is a weight.
    ["image/png", "json"],
    ["text/markdown;q=lots", "json"],
    ["text/markdown;q=0.1, application/json;q=1.5", "markdown"],
    [",;,", "json"],
  ])("of %j is %s", (accept, type) => {
    expect(chosen(accept)).toBe(type);
  });
});

describe("Markdown", () => {
  it("keeps cells in their columns and text from meaning something", () => {
    expect(table(["A"], [["a|b\nc"], ["`x|y`"], ["<b> *c* [d] _e_"]])).toBe(
      "| A |\n| --- |\n| a\\|b c |\n| `x\\|y` |\n| \\<b> \\*c\\* \\[d\\] \\_e\\_ |",
    );
    expect(heading(2, "a_b, /{c_d}")).toBe("## a_b, /{c_d}");
    expect(bullets(["*"])).toBe("- \\*");
  });

  it("fences code with more backquotes than it holds, and changes nothing in it", () => {
    expect(fenced("sh", "echo `date`")).toBe("```sh\necho `date`\n```");
    expect(fenced("sh", "```\nx\n```\n")).toBe("````sh\n```\nx\n```\n````");
  });
});
