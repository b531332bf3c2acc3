/** What reaches a port that speaks HTTP: requests that were damaged on the way, and what never was one. */
import fc from "fast-check";

/** What is wrong with how a request is framed rather than with what it says. */
function framed(key: string): readonly (readonly string[])[] {
  const post = `POST /api/functions/invoke/nobody HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n`;
  const get = `GET /api/functions HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n`;
  const chunked = `${post}Transfer-Encoding: chunked\r\n\r\n`;
  return [
    [`${chunked}zz\r\n{}\r\n0\r\n\r\n`],
    [`${chunked}-1\r\n{}\r\n0\r\n\r\n`],
    [`${chunked}fffffffffffffffff\r\n{}\r\n`],
    [`${chunked}2;${"e".repeat(20_000)}\r\n{}\r\n0\r\n\r\n`],
    [`${chunked}2\r\n{}0\r\n\r\n`],
    [`${chunked}2\r\n{}\r\n0\r\nTrailer: ${"t".repeat(20_000)}\r\n\r\n`],
    [`${chunked}2\r\n`, "{", "}"],
    [`${post}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n`],
    [`${post}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`],
    [`${post}Transfer-Encoding: nothing\r\n\r\n{}`],
    [`${post}Content-Length: -1\r\n\r\n{}`],
    [`${post}Content-Length: 2, 3\r\n\r\n{}`],
    [`${post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`],
    [`${post}Content-Length: 99999999999999999999\r\n\r\n{}`],
    [`${post}Content-Length: 9000000\r\n\r\n`, "x".repeat(100_000)],
    [`${post}Content-Length: 100\r\n\r\n{"payload":`],
    [`${post}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}`],
    [`${post}Content-Length: 2\r\nExpect: the-unexpected\r\n\r\n{}`],
    [`${post}Content-Length: 2\r\n\r\n{}${post}Content-Length: 2\r\n\r\n{}`.repeat(10)],
    [`${get}\r\n`.repeat(200)],
    [`${get}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`],
    [`${get}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n`],
    [`${get}Folded: a\r\n b\r\n\r\n`],
    [`${get}No-Colon\r\n\r\n`],
    [`${get}: no name\r\n\r\n`],
    [`${get}Spaced : x\r\n\r\n`],
    [`${get}Nul: a\0b\r\n\r\n`],
    [`${get.replaceAll("\r\n", "\n")}\n`],
    [`${get.replaceAll("\r\n", "\r")}\r`],
    [get + Array.from({ length: 5_000 }, (_, n) => `H${n}: x\r\n`).join("")],
    [`${get}${"A: b\r\n".repeat(1_500)}\r\n`],
    [`${get}Large: ${"x".repeat(100_000)}\r\n\r\n`],
    [`GET /${"x".repeat(100_000)} HTTP/1.1\r\nHost: x\r\n\r\n`],
    [`GET /api/functions/${"%41".repeat(4_000)} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n\r\n`],
    ["GET /health HTTP/1.1\r\n\r\n"],
    ["GET /health HTTP/1.1\r\nHost: \r\n\r\n"],
    ["GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"],
    ["GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n"],
    ["GET /health HTTP/1.0\r\n\r\n"],
    ["GET /health HTTP/0.9\r\n\r\n"],
    ["GET /health\r\n\r\n"],
    ["GET /health HTTP/9.9\r\n\r\n"],
    ["GET http://elsewhere.test/health HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["GET //elsewhere.test/health HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["GET \\\\x HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["GET * HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["CONNECT elsewhere.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["get /health HTTP/1.1\r\nHost: x\r\n\r\n"],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
    ["SSH-2.0-fuzz\r\n"],
    ["\r\n".repeat(10_000)],
    ["\0".repeat(1_000)],
    [""],
  ];
}

type Damage =
  | { readonly kind: "flip" | "insert"; readonly at: number; readonly bytes: Uint8Array }
  | { readonly kind: "cut" | "twice"; readonly at: number; readonly length: number }
  | { readonly kind: "end"; readonly at: number };

const damage: fc.Arbitrary<Damage> = fc.oneof(
  fc.record({
    kind: fc.constantFrom("flip" as const, "insert" as const),
    at: fc.nat(400),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 8 }),
  }),
  fc.record({ kind: fc.constantFrom("cut" as const, "twice" as const), at: fc.nat(400), length: fc.nat(60) }),
  fc.record({ kind: fc.constant("end" as const), at: fc.nat(400) }),
);

function damaged(bytes: Buffer, all: readonly Damage[]): Buffer {
  return all.reduce((before, one) => {
    const at = one.at % (before.length + 1);
    const [head, tail] = [before.subarray(0, at), before.subarray(at)];
    switch (one.kind) {
      case "flip":
        return Buffer.concat([head, one.bytes, tail.subarray(one.bytes.length)]);
      case "insert":
        return Buffer.concat([head, one.bytes, tail]);
      case "cut":
        return Buffer.concat([head, tail.subarray(one.length)]);
      case "twice":
        return Buffer.concat([head, tail.subarray(0, one.length), tail]);
      default:
        return head;
    }
  }, bytes);
}

/** What one connection is sent, in the pieces in which it is. */
export function connections(key: string): fc.Arbitrary<readonly Buffer[]> {
  const body = '{"payload":"x","timeout_seconds":5}';
  const whole = [
    `POST /api/functions/invoke/nobody HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    `GET /api/functions?limit=5 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`,
    "GET /api/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
    `POST /api/auth/token HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  ];
  const split = fc
    .tuple(fc.constantFrom(...whole), fc.array(damage, { maxLength: 4 }), fc.nat(400))
    .map(([text, all, at]) => {
      const bytes = damaged(Buffer.from(text), all);
      return [bytes.subarray(0, at), bytes.subarray(at)];
    });
  return fc.oneof(
    {
      weight: 2,
      arbitrary: fc.constantFrom(...framed(key)).map((all) => all.map((one) => Buffer.from(one, "latin1"))),
    },
    { weight: 5, arbitrary: split },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 2_000 }).map((bytes) => [Buffer.from(bytes)]) },
  );
}
