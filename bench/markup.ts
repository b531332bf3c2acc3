/**
 * Markup without a library: `markup` is a template tag whose text is markup and whose values are data. A value is
 * escaped unless it is markup itself, so that nothing that comes out of a measurement, an error's text for instance,
 * becomes an element or an attribute.
 */

export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Null and an empty list leave nothing; a list's parts follow each other. */
export type Part = string | number | Markup | null | readonly Part[];

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

export function escapeText(text: string): string {
  // Control characters have no place in a page, and most of them no escape either.
  return text.replace(/[&<>"']|(?![\t\n\r])\p{Cc}/gu, (character) => ENTITIES[character] ?? "\ufffd");
}

function write(part: Part): string {
  if (part === null) return "";
  if (part instanceof Markup) return part.text;
  if (typeof part === "string" || typeof part === "number") return escapeText(String(part));
  return part.map(write).join("");
}

export function markup(pieces: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(pieces.map((piece, i) => piece + write(parts[i] ?? null)).join(""));
}
