/**
 * A mask writes stars instead of the values of secrets in a stream of text.
 *
 * M1. No piece of a value is shown, whatever pieces the stream comes in and however values overlap or begin with each other.
 * M2. The mask keeps less than the longest value, and what `write` gets.
 */
import { LIMITS } from "../../base/limits.ts";

const STARS = "***";
/** Shorter values would blank words that are none. */
const SECRET_LENGTH_MIN = 4;

export class Mask {
  /** The longest first. */
  readonly #texts: readonly string[];
  #waiting = "";
  /** Characters at the beginning of `#waiting` whose stars were already returned. */
  #starred = 0;

  constructor(secrets: readonly Uint8Array[] = []) {
    this.#texts = maskedTexts(secrets);
  }

  /** Characters of the longest text that is masked. 0 without one. */
  get length_max(): number {
    return this.#texts[0]?.length ?? 0;
  }

  /** Adds text to the stream and returns what can be shown. The rest may be the beginning of a value and waits. */
  write(text: string): string {
    this.#waiting += text;
    return this.#take(this.#waiting.length - Math.max(0, this.length_max - 1));
  }

  /** Returns the rest of the stream. */
  end(): string {
    return this.#take(this.#waiting.length);
  }

  /** Returns the text before `end` (M1). Every value that begins there is complete in the waiting text, or never completes. */
  #take(end: number): string {
    if (end <= 0) return "";
    let [shown, at] = ["", this.#starred];
    for (const [span_begin, span_end] of this.#spans()) {
      if (span_begin >= end) break;
      if (span_begin >= at) shown += this.#waiting.slice(at, span_begin) + STARS;
      at = Math.max(at, span_end);
    }
    shown += this.#waiting.slice(at, end);
    this.#starred = Math.max(0, at - end);
    this.#waiting = this.#waiting.slice(end);
    return shown;
  }

  /** Places of the values, `[begin, end)` each, in order. */
  #spans(): readonly (readonly [number, number])[] {
    const spans: (readonly [number, number])[] = [];
    for (const text of this.#texts) {
      for (let at = this.#waiting.indexOf(text); at !== -1; at = this.#waiting.indexOf(text, at + text.length)) {
        spans.push([at, at + text.length]);
      }
    }
    return spans.sort(([a], [b]) => a - b);
  }
}

/** The texts that are written as stars, the longest first: each line of the values, or the values alone if the lines are too many. */
function maskedTexts(secrets: readonly Uint8Array[]): readonly string[] {
  const values = secrets.map((value) => Buffer.from(value).toString("utf8").trim());
  const lines = new Set(values.flatMap((value) => value.split("\n")).map((line) => line.trim()));
  const texts = lines.size <= LIMITS.build_masked_texts_max ? lines : new Set(values);
  return [...texts].filter(({ length }) => length >= SECRET_LENGTH_MIN).sort((a, b) => b.length - a.length);
}
