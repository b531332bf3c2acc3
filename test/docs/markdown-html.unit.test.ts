/** Guides as HTML: the Markdown that guides use, and nothing of a guide as markup. */
import { describe, expect, it } from "vitest";
import { guideHtml } from "../../src/docs/markdown-html.ts";

const html = (markdown: string): string =>
  guideHtml(markdown, {
    id: "guide",
    title: "Guide",
    href: (target) => (target === "events.md" ? "#page-events" : null),
  });

describe("a guide", () => {
  it("has paragraphs, code, bold and emphasised words, and links that the page has", () => {
    expect(html("# Guide\n\nOne `a<b` *two*\n**three** [four](events.md) [five](../x.ts).\n")).toBe(
      '<p>One <code>a&#60;b</code> <em>two</em> <strong>three</strong> <a href="#page-events">four</a> five.</p>',
    );
  });

  it("has lists whose items may go over lines", () => {
    expect(html("- one\n  more\n- two\n\n1. first\n2. second")).toBe(
      "<ul><li>one more</li>\n<li>two</li></ul>\n<ol><li>first</li>\n<li>second</li></ol>",
    );
  });

  it("has fenced blocks as they are, tables, and a section for each heading", () => {
    expect(html("```sh\necho '<a>'\n\n# no heading\n```")).toBe(
      '<pre tabindex="0"><code>echo &#39;&#60;a&#62;&#39;\n\n# no heading</code></pre>',
    );
    expect(html("| a | b |\n|---|---|\n| `x\\|y` | z |")).toContain("<code>x|y</code></td>");
    expect(html("intro\n\n## See *also*\n\ntext")).toContain('id="guide-see-also" data-kind="guide"');
  });

  it("is text where it looks like markup", () => {
    expect(html('<img src=x> & "q" `<b>`')).toBe(
      "<p>&#60;img src=x&#62; &#38; &#34;q&#34; <code>&#60;b&#62;</code></p>",
    );
  });
});
