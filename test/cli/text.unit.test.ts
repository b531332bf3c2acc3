/** Text in columns: widths, cuts, what is made visible, tables that fit. */
import { describe, expect, it } from "vitest";
import { type Column, list, table } from "../../src/cli/output/table.ts";
import { cutTo, displayWidth, json, pad, visible } from "../../src/cli/output/text.ts";

const plain = (_format: unknown, text: string) => text;

describe("text", () => {
  it("counts wide characters as two columns, marks as none, joined pictures as one picture", () => {
    const widths = ["abc", "日本", "한글", "e\u0301", "👍", "👩‍👩‍👧", "ｆｕ", "ß"].map(displayWidth);
    expect(widths).toEqual([3, 4, 4, 1, 2, 2, 4, 1]);
  });

  it("is cut with an ellipsis and never wider than asked", () => {
    expect(cutTo("hello", 5)).toBe("hello");
    expect(cutTo("hello!", 5)).toBe("hell…");
    // A wide character that would stand over the edge goes.
    expect(cutTo("日本語", 4)).toBe("日…");
    expect(cutTo("日本語", 0)).toBe("");
    expect(pad("日本", 6)).toBe("日本  ");
    expect(pad("7", 3, "right")).toBe("  7");
  });

  it("has every control, mark of direction and half character made visible", () => {
    expect(visible("a\x1b[31m\x07\x9b1m\n\t\r\x7f")).toBe("a\\x1b[31m\\x07\\x9b1m\\n\\t\\r\\x7f");
    expect(visible("evil\u202egpj.exe\u2066\u200f\ud800")).toBe("evil\\u202egpj.exe\\u2066\\u200f\\ud800");
    expect(visible("日本 é 👍")).toBe("日本 é 👍");
  });

  it("is JSON that a terminal does not obey and a program reads as it was", () => {
    const value = { name: "a\x1b[2J\x9b2J\x7f\u202e" };
    expect(json(value)).not.toMatch(/[^\P{Cc}\n]|\u202e/u);
    expect(JSON.parse(json(value))).toEqual(value);
  });
});

interface Row {
  readonly name: string;
  readonly count: number | null;
  readonly note: string;
}

const COLUMNS: readonly Column<Row>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "COUNT", value: ({ count }) => count, side: "right" },
  { title: "ID", value: () => "id_0123456789", isSpare: true },
  { title: "NOTE", value: ({ note }) => note, isLong: true },
];
const ROWS: readonly Row[] = [
  { name: "hello", count: 12, note: "a note that goes on and on and on" },
  { name: "日本", count: null, note: "line\nbreak" },
];
const lines = (text: string) => text.trimEnd().split("\n");

describe("a table", () => {
  it("is whole where there is no terminal", () => {
    expect(lines(table(COLUMNS, ROWS, { width: null, paint: plain }))).toEqual([
      "NAME   COUNT  ID             NOTE",
      "hello     12  id_0123456789  a note that goes on and on and on",
      "日本       -  id_0123456789  line\\nbreak",
    ]);
  });

  it("takes what is missing from free text first", () => {
    expect(lines(table(COLUMNS, ROWS, { width: 40, paint: plain }))).toEqual([
      "NAME   COUNT  ID             NOTE",
      "hello     12  id_0123456789  a note tha…",
      "日本       -  id_0123456789  line\\nbreak",
    ]);
  });

  it("then leaves out what one can do without, then shrinks every column", () => {
    expect(lines(table(COLUMNS, ROWS, { width: 30, paint: plain }))[1]).toBe("hello     12  a note that goe…");
    expect(lines(table(COLUMNS, ROWS, { width: 17, paint: plain }))[1]).toBe("hel…    12  a n…");
  });

  it("never is wider than a terminal of any reasonable width", () => {
    for (let width = 17; width < 90; width++) {
      const widest = Math.max(...lines(table(COLUMNS, ROWS, { width, paint: plain })).map(displayWidth));
      expect(widest, `at ${width}`).toBeLessThanOrEqual(width);
    }
  });

  it("is painted after it was measured", () => {
    const painted = table([{ title: "S", value: () => "ok", format: () => "green" as const }], [1], {
      width: 10,
      paint: (format, text) => `<${format}>${text}</>`,
    });
    expect(painted).toBe("<bold>S</>\n<green>ok</>\n");
  });
});

describe("a list of names and values", () => {
  it("has one column of names, and values cut at the edge", () => {
    const text = list(
      [
        ["id", "fn_1"],
        ["handler", "echo\x1b and more text"],
      ],
      { width: 20, paint: plain },
    );
    expect(lines(text)).toEqual(["id       fn_1", "handler  echo\\x1b a…"]);
  });
});
