/** Made-up build files: the same ones for the same seed. */

/** Numbers in [0, 1) that a seed alone determines (mulberry32). */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const PLAIN = [
  "a",
  "b.txt",
  "./src",
  "/usr/bin",
  "x=1",
  "--not-first",
  "#no-comment",
  "é☃",
  "a,b",
  "[a]",
  "*.c",
  "&&",
  "|",
];

export class Maker {
  readonly #next: () => number;

  constructor(seed: number) {
    this.#next = numbers(seed);
  }

  below(count: number): number {
    return Math.floor(this.#next() * count);
  }

  chance(part: number): boolean {
    return this.#next() < part;
  }

  one<T>(from: readonly T[]): T {
    return from[this.below(from.length)] as T;
  }

  list<T>(count_max: number, make: () => T): T[] {
    return Array.from({ length: 1 + this.below(count_max) }, make);
  }

  /** A build file with continuations, comments, here-documents, JSON, and blanks of all kinds. */
  file(): string {
    const escape_char = this.chance(0.2) ? "`" : "\\";
    const end = this.chance(0.25) ? "\r\n" : "\n";
    const top = [
      ...(this.chance(0.3) ? ["# syntax=docker/dockerfile:1"] : []),
      ...(escape_char === "`" ? [this.one(["# escape=`", "#escape = `", "#\tEscape=`"])] : []),
    ];
    const lines = this.list(8, () => this.#instruction(escape_char)).flat();
    const mark = this.chance(0.15) ? "\uFEFF" : "";
    return `${mark}${[...top, "FROM base", ...lines].join(end)}${this.chance(0.5) ? end : ""}`;
  }

  #keyword(name: string): string {
    return this.chance(0.3) ? name.toLowerCase() : this.chance(0.2) ? `${name[0]}${name.slice(1).toLowerCase()}` : name;
  }

  #instruction(escape_char: string): string[] {
    const indent = this.chance(0.2) ? this.one([" ", "\t", "   "]) : "";
    const before = this.chance(0.3) ? [this.one(["", "# about it", "  # indented", "   ", "#"])] : [];
    const kind = this.one([
      "RUN",
      "RUN",
      "COPY",
      "ADD",
      "WORKDIR",
      "USER",
      "EXPOSE",
      "CMD",
      "ENTRYPOINT",
      "json",
      "here",
    ]);
    if (kind === "here") return [...before, ...this.#documents(indent)];
    if (kind === "json") return [...before, `${indent}${this.#keyword("CMD")} ${this.#json()}`];
    const flags = this.#flags(kind);
    const words = this.list(5, () => this.one(PLAIN));
    const [first = "", ...others] = [this.#keyword(kind), ...flags, "first", ...words, "last"];
    let line = `${indent}${first}`;
    const lines: string[] = [];
    for (const word of others) {
      const blank = this.one([" ", " ", "  ", "\t"]);
      if (!this.chance(0.3)) {
        line += blank + word;
        continue;
      }
      lines.push(`${line}${blank}${escape_char}${this.chance(0.2) ? "  " : ""}`);
      if (this.chance(0.3)) lines.push(this.one(["# inside", "  # inside and indented", "#"]));
      if (this.chance(0.15)) lines.push(this.one(["", "  "]));
      // At the beginning of a line it would be a comment.
      line = `${this.one(["", "  ", "\t"])}${word.replace("#", "x#")}`;
    }
    return [...before, ...lines, line];
  }

  #flags(kind: string): string[] {
    if (kind === "RUN")
      return this.chance(0.3) ? ["--mount=type=cache,target=/c", "--network=none"].slice(this.below(2)) : [];
    if (kind === "COPY") return this.chance(0.4) ? ["--from=base", "--chown=1:2"].slice(this.below(2)) : [];
    return kind === "ADD" && this.chance(0.4) ? ["--chmod=755", "--link"].slice(0, 1 + this.below(2)) : [];
  }

  #json(): string {
    const words = this.list(4, () => JSON.stringify(this.one(["a", "b-c", "é", "$HOME", "/bin/sh", "#x", "'q'"])));
    return `[${this.one(["", " "])}${words.join(this.one([",", ", ", " , "]))}${this.one(["", " "])}]`;
  }

  #documents(indent: string): string[] {
    const names = this.list(2, () => this.one(["EOF", "END_1", "A"])).filter((name, i, all) => all.indexOf(name) === i);
    const written = names.map((name) => ({ name, mark: this.one(["<<", "<<-"]), quote: this.one(["", '"', "'"]) }));
    const openings = written.map(({ name, mark, quote }) => `${mark}${quote}${name}${quote}`);
    const bodies = written.flatMap(({ name, mark }) => [
      ...this.list(3, () => this.one(["line", "  # kept", "RUN no instruction", "", "$A \\", "\tindented"])),
      `${mark === "<<-" ? this.one(["", "\t"]) : ""}${name}`,
    ]);
    return [`${indent}${this.#keyword("COPY")} ${openings.join(" ")} /target/`, ...bodies];
  }

  /** A value of LABEL or ENV: quotes, escapes and variables A (set), E (empty) and U (not set). */
  value(): string {
    const part = (isQuoted: boolean): string =>
      this.one([
        () => this.one(["a", "bc", "1", "x-y", "é", "=", "#", "/p"]),
        () => this.one(["$A", "${A}", "$E", "${U}", "${A}b", "\\$A", "$A/$A"]),
        () => `\${${this.one(["A", "E", "U"])}${this.one([":-", ":+"])}${this.one(["", "w", "$A", "${A}"])}}`,
        () => this.one(["\\\\", isQuoted ? "\\n" : "\\ ", "\\a", isQuoted ? " " : "."]),
      ])();
    const text = (isQuoted: boolean) => this.list(3, () => part(isQuoted)).join("");
    const piece = () =>
      this.one([() => text(false), () => `"${text(true)}${this.one(["", '\\"', "'"])}"`, () => "'$A \\ \"x'"])();
    // BuildKit has two escape characters at the end of a line as one of them, and buildah goes on in the next line.
    return `${this.list(3, piece).join("")}${this.one(["", "", "end"])}`.replace(/\\$/, "\\.");
  }

  /** A substitution of a variable V with a pattern, and a value for V. */
  substitution(): { readonly value: string; readonly text: string } {
    const word = (parts: readonly string[]) => this.list(5, () => this.one(parts)).join("");
    const pattern = word(["a", "b", "*", "?", "ab", "\\*", "\\?"]);
    const operation = this.one(["#", "##", "%", "%%", "/", "//"]);
    const by = operation.startsWith("/") ? `/${this.one(["", "x", "yz"])}` : "";
    return { value: word(["a", "b", "c", "*", "?"]), text: `\${V${operation}${pattern}${by}}` };
  }
}
