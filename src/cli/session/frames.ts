/** Objects that come one a line, as the API streams them. */

const NEWLINE = 0x0a;

export async function* frames<Frame>(pieces: AsyncIterable<Buffer>): AsyncGenerator<Frame> {
  let begun: Buffer[] = [];
  for await (const piece of pieces) {
    let from = 0;
    for (let end = piece.indexOf(NEWLINE); end >= 0; end = piece.indexOf(NEWLINE, from)) {
      begun.push(piece.subarray(from, end));
      yield JSON.parse(Buffer.concat(begun).toString("utf8")) as Frame;
      begun = [];
      from = end + 1;
    }
    if (from < piece.length) begun.push(piece.subarray(from));
  }
}
