/** Targets of requests, byte for byte, and origins of pages. */
import { describe, expect, it } from "vitest";
import { originSet } from "../../src/base/origins.ts";
import { checkTarget } from "../../src/http/target.ts";

const FINE = [
  ...["/", "/a", "/a/", "/a//b", "/...", "/a../..b", "/a/.b/b.", "/a/..;/b", "/%252e%252e/b", "/a%2Fb", "/a%5Cb", "*"],
  ...["/a?path=../x", "/a?b=\\", "/a?x=/..", "http://h.example/a", "http://../a", "/%2e%2e%2e"],
];
const REFUSED = [
  ...[
    "/..",
    "/.",
    "/../a",
    "/a/..",
    "/a/.?x",
    "/a/./b",
    "/%2e",
    "/a/%2E%2e/b",
    "/a/.%2E",
    "/a%2f..",
    "/a%2F%2e%2e%2Fb",
  ],
  ...["/a\\b", "/a/..\\b", "/a%5c..", "/a%5C%2e%2e%5Cb", "/a#b", "/a?b#c", "http://h/../a", "http://h:1/%2e%2e?x"],
  ...["http://h\\..\\a", "//../a", "..", "a/.."],
];

describe("a request target", () => {
  it.each(FINE)("%s is accepted", (target) => {
    expect(checkTarget(target)).toBeUndefined();
  });

  it.each(REFUSED)("%s is refused", (target) => {
    expect(() => checkTarget(target)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });
});

describe("origins", () => {
  const refuse = (entry: string): never => {
    throw new RangeError(entry);
  };

  it("are those that a browser sends", () => {
    const origins = ["https://app.example.com", "http://localhost:5173", "http://[::1]:3000"];
    expect([...originSet(origins, refuse)]).toEqual(origins);
    expect([...originSet([], refuse)]).toEqual([]);
    const none = ["*", "null", "app.example.com", "https://a.example/", "https://A.example", "https://a.example:443"];
    for (const entry of [...none, "file:///x", "https://*.a.example", "https://u@a.example", "http://"]) {
      expect(() => originSet(["https://ok.example", entry], refuse)).toThrow(entry);
    }
  });
});
