/**
 * Tables: aligned columns, header first, never wider than the terminal. What does not fit is taken from free text, down
 * to a width at which one still sees what it is; then from the columns that one can do without; then from the widest.
 */
import type { Format, Paint } from "./terminal.ts";
import { cutTo, displayWidth, pad, visible } from "./text.ts";

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | number | null;
  /** Numbers stand at the right. */
  readonly side?: "left" | "right";
  /** Free text, which shrinks before names, states and ids do. */
  readonly isLong?: boolean;
  /** Left out where there is not room for all. */
  readonly isSpare?: boolean;
  readonly format?: (row: Row) => Format | null;
}

export interface TableOptions {
  /** Of the terminal; null where there is none: then nothing is cut. */
  readonly width: number | null;
  readonly paint: Paint;
}

const GAP = "  ";
const LONG_WIDTH_MIN = 8;
const WIDTH_MIN = 4;
/** One that is seen may be written as several: marks upon letters, joined pictures. */
const CHARACTERS_PER_COLUMN_MAX = 16;

/** Widths that together fit into `room`, where that is possible: the widest columns are cut to one common width. */
function shrunk(natural: readonly number[], isLong: readonly boolean[], room: number): readonly number[] {
  const steps: [(column: number) => boolean, number][] = [
    [(column) => isLong[column] === true, LONG_WIDTH_MIN],
    [() => true, WIDTH_MIN],
  ];
  return steps.reduce((widths, [mayShrink, floor]) => {
    const capped = (cap: number) => widths.map((width, column) => (mayShrink(column) ? Math.min(width, cap) : width));
    const isTooWide = (all: readonly number[]) => all.reduce((sum, width) => sum + width, 0) > room;
    if (!isTooWide(widths)) return widths;
    let cap = Math.max(floor, room);
    while (cap > floor && isTooWide(capped(cap))) cap--;
    return capped(cap);
  }, natural);
}

/** A cell's text. What is far beyond the terminal's edge is dropped at once: a handler may be 64 KiB long. */
function shown(value: string | number | null, width: number | null): string {
  const text = String(value ?? "-");
  return visible(width === null ? text : text.slice(0, width * CHARACTERS_PER_COLUMN_MAX));
}

/** The rows under their titles, each line with its end. */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  { width, paint }: TableOptions,
): string {
  const all = columns.map((column) => {
    const cells = rows.map((row) => shown(column.value(row), width));
    return { ...column, cells, width: Math.max(displayWidth(column.title), ...cells.map(displayWidth)) };
  });
  const minimal = ({ isLong, width }: (typeof all)[number]) => (isLong ? Math.min(width, LONG_WIDTH_MIN) : width);
  const needed = all.reduce((sum, column) => sum + minimal(column) + GAP.length, -GAP.length);
  const kept = all.filter(({ isSpare }) => width === null || needed <= width || !isSpare);
  const widths = shrunk(
    kept.map((column) => column.width),
    kept.map(({ isLong }) => isLong === true),
    width === null ? Number.POSITIVE_INFINITY : width - GAP.length * (kept.length - 1),
  );
  const line = (
    textOf: (column: (typeof kept)[number]) => string,
    formatOf: (column: Column<Row>) => Format | null,
  ) => {
    const parts = kept.map((column, i) => {
      const cut = cutTo(textOf(column), widths[i] ?? 0);
      const isLast = i === kept.length - 1 && column.side !== "right";
      const padded = isLast ? cut : pad(cut, widths[i] ?? 0, column.side);
      const format = formatOf(column);
      return format === null || cut === "" ? padded : paint(format, padded);
    });
    return `${parts.join(GAP).trimEnd()}\n`;
  };
  const head = line(
    ({ title }) => title,
    () => "bold",
  );
  const body = rows.map((row, i) =>
    line(
      ({ cells }) => cells[i] ?? "",
      ({ format }) => format?.(row) ?? null,
    ),
  );
  return head + body.join("");
}

/** Names and values below each other, the names in one column. A value may be long: it is cut at the terminal's edge. */
export function list(entries: readonly (readonly [string, string])[], { width, paint }: TableOptions): string {
  const name_width = Math.max(0, ...entries.map(([name]) => displayWidth(name)));
  return entries
    .map(([name, value]) => {
      const text = shown(value, width);
      const cut = width === null ? text : cutTo(text, Math.max(WIDTH_MIN, width - name_width - GAP.length));
      return `${paint("dim", pad(name, name_width))}${GAP}${cut}\n`;
    })
    .join("");
}
