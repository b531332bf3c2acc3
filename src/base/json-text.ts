/** A part of an answer that is JSON already, and is written as it is: its numbers would change if it were parsed. */
import { randomBytes } from "node:crypto";

/** Stands for a text while the value around it is written. No text can have it, because nobody learns of it. */
const MARK = randomBytes(16).toString("hex");
const QUOTED = `"${MARK}"`;

/** Of the value that is being written, in one go: the texts in it, in order. Null: none is. */
const writing: { texts: string[] | null } = { texts: null };

export class JsonText {
  readonly json: string;

  /** `json`: one value of valid JSON. */
  constructor(json: string) {
    this.json = json;
  }

  /** For `JSON.stringify`: elsewhere than in `jsonOf`, numbers become doubles. */
  toJSON(): unknown {
    if (writing.texts === null) return JSON.parse(this.json);
    writing.texts.push(this.json);
    return MARK;
  }
}

/** Returns what `JSON.stringify` does, with each `JsonText` as it is. */
export function jsonOf(value: unknown): string {
  const texts: string[] = [];
  writing.texts = texts;
  try {
    const text = JSON.stringify(value);
    if (texts.length === 0) return text;
    return text.split(QUOTED).reduce((all, part, i) => all + texts[i - 1] + part);
  } finally {
    writing.texts = null;
  }
}
