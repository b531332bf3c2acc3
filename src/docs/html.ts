/** Pieces of HTML. Text of the API and of guides is text until `escaped` has processed it. */

/** Returns text in which no character can be markup. */
export const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/** Returns text whose backquotes mark code. */
export const prose = (text: string): string => escaped(text).replace(/`([^`]+)`/g, "<code>$1</code>");

export const code = (text: string): string => `<code>${escaped(text)}</code>`;

export const anchor = (id: string): string =>
  `<a class="anchor" href="#${escaped(id)}" aria-label="Link to this part">#</a>`;

/** A row of cells; with an id it is the target of links and an entry of the search. */
export interface HtmlRow {
  readonly cells: readonly string[];
  readonly entry?: Entry;
}

/** An entry of the search: an element with its id, its kind and its title. */
export interface Entry {
  readonly id: string;
  readonly kind: "guide" | "operation" | "error" | "setting" | "limit" | "schema";
  readonly title: string;
}

/** Returns the attributes that make an element an entry of the search. */
export const entryAttributes = ({ id, kind, title }: Entry): string =>
  `id="${escaped(id)}" data-kind="${kind}" data-title="${escaped(title)}"`;

/** Returns a table without the columns that would be empty. */
export function table(head: readonly string[], rows: readonly (readonly string[] | HtmlRow)[]): string {
  const all = rows.map((row): HtmlRow => ("cells" in row ? row : { cells: row }));
  if (all.length === 0) return "";
  const shown = [...head.keys()].filter((i) => all.some(({ cells }) => cells[i] !== ""));
  const line = ({ cells, entry }: HtmlRow): string =>
    `<tr${entry === undefined ? "" : ` ${entryAttributes(entry)}`}>${shown
      .map((i) => `<td data-label="${escaped(head[i] ?? "")}">${cells[i]}</td>`)
      .join("")}</tr>`;
  return `<div class="wide"><table><thead><tr>${shown.map((i) => `<th scope="col">${head[i]}</th>`).join("")}</tr></thead>
<tbody>${all.map(line).join("\n")}</tbody></table></div>`;
}
