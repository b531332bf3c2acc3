/** The pixels of a screenshot. */
import { inflateSync } from "node:zlib";

const CHANNELS = { 2: 3, 6: 4 } as const;

export class Pixels {
  readonly width: number;
  readonly height: number;
  readonly #rows: readonly Buffer[];
  readonly #channels: number;

  /** `png`: 8 bits a channel, with or without alpha, not interlaced, as maim writes it. */
  constructor(png: Buffer) {
    const [data, [depth, type, , , interlace]] = [[] as Buffer[], png.subarray(24, 29)];
    this.width = png.readUInt32BE(16);
    this.height = png.readUInt32BE(20);
    if (depth !== 8 || (type !== 2 && type !== 6) || interlace !== 0) throw new Error("another kind of PNG");
    this.#channels = CHANNELS[type];
    for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
      if (png.toString("latin1", at + 4, at + 8) === "IDAT")
        data.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
    }
    this.#rows = unfiltered(inflateSync(Buffer.concat(data)), this.width * this.#channels, this.#channels);
  }

  /** The colour of a pixel, as 0xRRGGBB. */
  at(x: number, y: number): number {
    return this.#rows[y]?.readUIntBE(x * this.#channels, 3) ?? -1;
  }

  /** Number of pixels of each colour in the rows from `top` up to `bottom`. */
  colours(top = 0, bottom = this.height): Map<number, number> {
    const counts = new Map<number, number>();
    for (let y = top; y < bottom; y++) {
      for (let x = 0; x < this.width; x++) counts.set(this.at(x, y), (counts.get(this.at(x, y)) ?? 0) + 1);
    }
    return counts;
  }
}

/** Takes the filters off the rows (RFC 2083, §6). */
function unfiltered(bytes: Buffer, row_bytes: number, channels: number): Buffer[] {
  const rows: Buffer[] = [];
  let above: Buffer = Buffer.alloc(row_bytes);
  for (let at = 0; at < bytes.length; at += row_bytes + 1) {
    const filter = bytes[at];
    const row = Buffer.from(bytes.subarray(at + 1, at + 1 + row_bytes));
    for (let i = 0; i < row_bytes; i++) {
      const left = row[i - channels] ?? 0;
      const [up, corner] = [above[i] ?? 0, above[i - channels] ?? 0];
      const predicted = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0;
      row[i] = ((row[i] ?? 0) + predicted) & 255;
    }
    rows.push(row);
    above = row;
  }
  return rows;
}

function paeth(left: number, up: number, corner: number): number {
  const guess = left + up - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

/** The mean brightness (0…255) of each field of a picture, in so many columns and rows. */
export function brightness(pixels: Pixels, columns: number, rows: number): number[] {
  const sums = new Array<number>(columns * rows).fill(0);
  const counts = new Array<number>(columns * rows).fill(0);
  for (let y = 0; y < pixels.height; y++) {
    for (let x = 0; x < pixels.width; x++) {
      const field = Math.floor((y * rows) / pixels.height) * columns + Math.floor((x * columns) / pixels.width);
      const colour = pixels.at(x, y);
      sums[field] = (sums[field] ?? 0) + ((colour >> 16) + ((colour >> 8) & 255) + (colour & 255)) / 3;
      counts[field] = (counts[field] ?? 0) + 1;
    }
  }
  return sums.map((sum, i) => sum / (counts[i] ?? 1));
}
