/** One base64 string of a JSON body, read as it comes, whatever the pieces and the order of fields. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Base64Field } from "../../src/http/base64-field.ts";

const BYTES = Buffer.from(Array.from({ length: 100 }, (_, i) => (i * 37) % 256));
const TEXT = BYTES.toString("base64");

async function read(json: string | Buffer, piece_bytes: number) {
  const found: Buffer[] = [];
  const held = { bytes: 0 };
  const sink = async (bytes: Uint8Array) => {
    found.push(Buffer.from(bytes));
  };
  const field = new Base64Field("content", sink, (bytes) => {
    held.bytes += bytes;
  });
  const all = Buffer.from(json);
  for (let at = 0; at < all.length; at += piece_bytes) await field.add(all.subarray(at, at + piece_bytes));
  return { body: field.end(), content: Buffer.concat(found), held };
}

const escaped = (text: string) => [...text].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

describe("a base64 field of a JSON body", () => {
  it.each([
    ["first", `{"content":"${TEXT}","path":"a"}`, { content: "", path: "a" }],
    ["last", `{"path":"a","mode":644,"content":"${TEXT}"}`, { path: "a", mode: 644, content: "" }],
    ["among spaces", `\n { "path" : "a" ,\t"content" : \r"${TEXT}" } \n`, { path: "a", content: "" }],
    [
      "behind texts like it",
      `{"x":"\\"content\\":","y":"content","content":"${TEXT}"}`,
      { x: '"content":', y: "content", content: "" },
    ],
    [
      "behind one inside",
      `{"x":{"content":"no","y":["content",{}]},"content":"${TEXT}"}`,
      { x: { content: "no", y: ["content", {}] }, content: "" },
    ],
    ["with escaped slashes", `{"content":"${TEXT.replaceAll("/", "\\/")}"}`, { content: "" }],
    ["escaped throughout", `{"content":"${escaped(TEXT)}"}`, { content: "" }],
  ])("is decoded %s, in pieces of any length", async (_, json, body) => {
    expect(JSON.parse(json)).toMatchObject({ content: TEXT });
    for (let length = 1; length <= json.length; length += length < 12 ? 1 : 29) {
      const found = await read(json, length);
      expect(found.body).toEqual(body);
      expect(found.content.equals(BYTES)).toBe(true);
      expect(found.held.bytes).toBeLessThan(100);
    }
  });

  it("is as long as its padding says", async () => {
    for (let length = 0; length < 9; length++) {
      const bytes = BYTES.subarray(0, length);
      const found = await read(`{"content":"${bytes.toString("base64")}"}`, 3);
      expect(found.content.equals(bytes)).toBe(true);
    }
  });

  it.each([
    "A",
    "AA",
    "AAA",
    "AAAAA",
    "AA=A",
    "A===",
    "====",
    "AA==AAAA",
    "AA==AA==",
    "AAA=A",
    "AA==\\n",
    "AA AA",
    "AA-_",
    "AAA\\",
    "AAA\\u00",
    "AAA\\u00zz",
    "AAAé",
    "\\u0041\\u0000AA",
  ])("is refused as %j", async (text) => {
    for (const length of [1, 5, 1_000]) {
      await expect(read(`{"content":"${text}"}`, length)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    }
  });

  it.each([
    "{",
    '{"content"',
    '{"content":"',
    '{"content":"AAAA',
    '{"content":"AAAA"',
    '{"content":"AAAA"}}',
    '{"content":"AAAA" "x"}',
    '{"content":"AAAA","content":"AAAA"}',
    '{"cont\\u0065nt":"AAAA"}',
    '{"content":"AAAA","cont\\u0065nt":"AAAA"}',
    "\u0000",
    '{"content":"AAAA",}',
  ])("is refused in %j, which is no JSON that holds it once", async (json) => {
    for (const length of [1, 5, 1_000]) {
      await expect(read(json, length)).rejects.toMatchObject({ code: "INVALID_JSON" });
    }
  });

  it.each([
    "[]",
    "3",
    '"content"',
    '["content","AAAA"]',
    '{"content":5}',
    '{"content":null}',
    '{"content":["AAAA"]}',
    "{}",
    '[{"content":"AAAA"}]',
  ])("is left to the schema in %s", async (json) => {
    const found = await read(json, 2);
    expect([found.body, found.content.length]).toEqual([JSON.parse(json), 0]);
  });

  it("leaves the rest of the body its bound", async () => {
    const json = Buffer.from(`{"x":"${"x".repeat(LIMITS.body_bytes_max)}","content":"AAAA"}`);
    await expect(read(json, 64 * 1024)).rejects.toMatchObject({ code: "BODY_TOO_LARGE" });
  });

  it("costs no more than its length, also where every character is an escape", async () => {
    const plain = await timed(Buffer.from(`{"content":"${"/".repeat(4 * 1024 * 1024)}"}`));
    const worst = await timed(Buffer.from(`{"content":"${"\\/".repeat(4 * 1024 * 1024)}"}`));
    expect([plain, worst]).toEqual([3 * 1024 * 1024, 3 * 1024 * 1024]);
  });
});

async function timed(json: Buffer): Promise<number> {
  return (await read(json, 64 * 1024)).content.length;
}
