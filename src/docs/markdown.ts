/** Pieces of Markdown (GitHub's, with tables), each a block. Text is escaped where it could mean something else. */

export const heading = (level: number, text: string): string => `${"#".repeat(level)} ${escaped(text)}`;

export const paragraph = (text: string): string => escaped(text);

export const numbered = (items: readonly string[]): string =>
  items.map((item, i) => `${i + 1}. ${escaped(item)}`).join("\n");

export const bullets = (items: readonly string[]): string => items.map((item) => `- ${escaped(item)}`).join("\n");

/** Cells in backquotes are code, others are text. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map((row) => line(row.map(cell)))].join("\n");
}

/** The fence is longer than any run of backquotes inside. */
export function fenced(language: string, text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text.replace(/\n?$/, "\n")}${fence}`;
}

export const document = (blocks: readonly string[]): string => `${blocks.join("\n\n")}\n`;

export const inlineCode = (text: string): string => `\`${text.replaceAll("`", "'")}\``;

/** Only what would mean something else, so that names and paths can be read as they are: not the '_' inside of a word. */
function escaped(text: string): string {
  return text.replace(/[\\`*[\]<]|(?<!\w)_|_(?!\w)/g, "\\$&");
}

function cell(text: string): string {
  const isCode = text.startsWith("`") && text.endsWith("`");
  return (isCode ? text : escaped(text)).replaceAll("|", "\\|").replaceAll("\n", " ");
}
