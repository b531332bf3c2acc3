/** A picture from a container, which is untrusted: the daemon passes only a whole PNG (RFC 2083) of bounded size on. */
import { LIMITS } from "../base/limits.ts";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** Length, type and checksum. */
const CHUNK_FRAME_BYTES = 12;
const HEADER_BYTES = 13;

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** Returns the size of a picture; null for bytes that are no PNG from the first chunk to the last, or that have too many chunks. */
export function pngSize(bytes: Buffer): Size | null {
  if (!bytes.subarray(0, SIGNATURE.length).equals(SIGNATURE)) return null;
  let size: Size | null = null;
  let chunk_count = 0;
  for (let at = SIGNATURE.length; at + CHUNK_FRAME_BYTES <= bytes.length; ) {
    chunk_count++;
    if (chunk_count > LIMITS.gui_screenshot_chunks_max) return null;
    const length = bytes.readUInt32BE(at);
    const type = bytes.toString("latin1", at + 4, at + 8);
    const next = at + CHUNK_FRAME_BYTES + length;
    if (next > bytes.length) return null;
    if (size === null) {
      if (type !== "IHDR" || length !== HEADER_BYTES) return null;
      size = { width: bytes.readUInt32BE(at + 8), height: bytes.readUInt32BE(at + 12) };
      if (!isSide(size.width) || !isSide(size.height)) return null;
    } else if (type === "IEND") {
      return length === 0 && next === bytes.length ? size : null;
    }
    at = next;
  }
  return null;
}

export const isSide = (pixels: number): boolean => pixels > 0 && pixels <= LIMITS.gui_side_max;
