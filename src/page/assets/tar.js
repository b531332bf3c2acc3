/** Files of the browser as a tar archive, which is how the API takes them: any number, any size, nothing is read here. */

const BLOCK_BYTES = 512;
const NAME_BYTES_MAX = 100;
/** What eleven octal digits hold; above it the size is written in base 256, as GNU tar does. */
const OCTAL_MAX = 8 ** 11;
const encoder = new TextEncoder();

/** @param {Uint8Array<ArrayBuffer>} name at most 100 bytes @param {number} size @param {string} type @param {number} mtime */
function header(name, size, type, mtime) {
  const block = new Uint8Array(BLOCK_BYTES);
  const write = (/** @type {number} */ at, /** @type {string} */ text) => block.set(encoder.encode(text), at);
  const octal = (/** @type {number} */ value, /** @type {number} */ digits) => value.toString(8).padStart(digits, "0");
  block.set(name, 0);
  write(100, `${octal(0o644, 7)}\0${octal(0, 7)}\0${octal(0, 7)}\0`);
  if (size < OCTAL_MAX) write(124, octal(size, 11));
  else {
    block[124] = 0x80;
    new DataView(block.buffer).setBigUint64(128, BigInt(size));
  }
  write(136, octal(mtime, 11));
  write(156, type);
  write(257, "ustar  \0");
  // The sum counts its own field as spaces.
  write(148, " ".repeat(8));
  const sum = block.reduce((total, byte) => total + byte, 0);
  write(148, `${octal(sum, 6)}\0 `);
  return block;
}

/** @param {number} size */
const padding = (size) => new Uint8Array((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);

/** @param {readonly File[]} files each under its name @returns {Blob} */
export function tarOf(files) {
  /** @type {BlobPart[]} */
  const parts = [];
  for (const file of files) {
    const mtime = Math.max(0, Math.floor(file.lastModified / 1000));
    const name = encoder.encode(file.name);
    if (name.length > NAME_BYTES_MAX) {
      const long = encoder.encode(`${file.name}\0`);
      parts.push(header(encoder.encode("././@LongLink"), long.length, "L", 0), long, padding(long.length));
    }
    parts.push(header(name.slice(0, NAME_BYTES_MAX), file.size, "0", mtime), file, padding(file.size));
  }
  parts.push(new Uint8Array(2 * BLOCK_BYTES));
  return new Blob(parts);
}
