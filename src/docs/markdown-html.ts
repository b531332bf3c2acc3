/**
 * Guides as HTML. The reader knows the part of Markdown that guides use: headings, paragraphs, lists, tables, fenced
 * blocks, code, bold, and links. Each part under a heading becomes a section and an entry of the search.
 */
import { anchor, entryAttributes, escaped, table } from "./html.ts";

export interface GuideOptions {
  /** Begins the ids of the guide's parts. */
  readonly id: string;
  readonly title: string;
  /** Returns the address of a link's target; null: the page does not have it, and shows the text alone. */
  readonly href: (target: string) => string | null;
}

/** Returns a guide without its title. */
export function guideHtml(markdown: string, options: GuideOptions): string {
  const [intro = "", ...parts] = markdown
    .replace(/^# .*\n/, "")
    .split(/^(?=## )/m)
    .map((part) => part.trim());
  const section = (part: string): string => {
    const [heading = "", ...rest] = part.split("\n");
    const title = heading.replace(/^#+ /, "");
    const id = `${options.id}-${slug(title)}`;
    const entry = entryAttributes({ id, kind: "guide", title: `${options.title}: ${title}` });
    return `<section class="part" ${entry}><h3>${anchor(id)}${escaped(title)}</h3>
${blocks(rest, options)}</section>`;
  };
  return [blocks(intro.split("\n"), options), ...parts.map(section)].join("\n");
}

/** Returns the id of a heading, as GitHub makes it. */
function slug(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

const ITEM = /^(?:-|\d+\.) /;

function blocks(lines: readonly string[], options: GuideOptions): string {
  const made: string[] = [];
  const inline = (text: string): string => inlineHtml(text, options);
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] ?? "";
    const end = (isIn: (line: string) => boolean): number => {
      const found = lines.findIndex((next, i) => i > at && !isIn(next));
      return found < 0 ? lines.length : found;
    };
    if (line.trim() === "") at++;
    else if (line.startsWith("```")) {
      const close = lines.findIndex((next, i) => i > at && next.startsWith("```"));
      made.push(`<pre tabindex="0"><code>${escaped(lines.slice(at + 1, close).join("\n"))}</code></pre>`);
      at = close + 1;
    } else if (line.startsWith("|")) {
      const stop = end((next) => next.startsWith("|"));
      const [head = [], , ...rows] = lines.slice(at, stop).map((row) => cellsOf(row).map(inline));
      made.push(table(head, rows));
      at = stop;
    } else if (ITEM.test(line)) {
      const stop = end((next) => ITEM.test(next) || next.startsWith("  "));
      const items: string[] = [];
      for (const next of lines.slice(at, stop)) {
        if (ITEM.test(next)) items.push(next.replace(ITEM, ""));
        else items.push(`${items.pop()} ${next.trim()}`);
      }
      const kind = line.startsWith("-") ? "ul" : "ol";
      made.push(`<${kind}>${items.map((item) => `<li>${inline(item)}</li>`).join("\n")}</${kind}>`);
      at = stop;
    } else {
      const stop = end((next) => next.trim() !== "" && !/^(```|\||- |\d+\. )/.test(next));
      made.push(`<p>${inline(lines.slice(at, stop).join(" "))}</p>`);
      at = stop;
    }
  }
  return made.join("\n");
}

/** Splits a row at bars without a backslash. */
function cellsOf(row: string): string[] {
  return row
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function inlineHtml(text: string, { href }: GuideOptions): string {
  return text
    .split(/(`[^`]+`)/)
    .map((part) => (part.startsWith("`") ? `<code>${escaped(part.slice(1, -1))}</code>` : escaped(part)))
    .join("")
    .replace(/\*\*(.+?)\*\*/g, "<strong>$1</strong>")
    .replace(/(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])/g, "<em>$1</em>")
    .replace(/&#60;(https?:\/\/[^\s&]+)&#62;/g, "<code>$1</code>")
    .replace(/\[([^\]]+)\]\(([^)\s]+)\)/g, (_, shown: string, target: string) => {
      const to = href(target);
      return to === null ? shown : `<a href="${to}">${shown}</a>`;
    });
}
