/** References of images and platforms: which text means which image, and what is refused. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { fitOf, parsePlatform, platformText } from "../../src/oci/platform.ts";
import { parseReference, referenceText } from "../../src/oci/reference.ts";

const DIGEST = `sha256:${"0123456789abcdef".repeat(4)}`;

describe("a reference", () => {
  it.each([
    ["alpine", "docker.io/library/alpine:latest"],
    ["alpine:3.20", "docker.io/library/alpine:3.20"],
    ["docker:dind", "docker.io/library/docker:dind"],
    ["oci:1", "docker.io/library/oci:1"],
    ["user/app", "docker.io/user/app:latest"],
    ["docker.io/alpine", "docker.io/library/alpine:latest"],
    ["index.docker.io/alpine", "docker.io/library/alpine:latest"],
    ["registry-1.docker.io/user/app:1", "docker.io/user/app:1"],
    ["DOCKER.IO/alpine", "docker.io/library/alpine:latest"],
    ["localhost/app", "localhost/app:latest"],
    ["localhost:5000/app", "localhost:5000/app:latest"],
    ["localhost", "docker.io/library/localhost:latest"],
    ["host:5000/a/b/c:v1", "host:5000/a/b/c:v1"],
    ["ghcr.io/a", "ghcr.io/a:latest"],
    ["a/b.c/d", "docker.io/a/b.c/d:latest"],
    ["127.0.0.1:5000/x", "127.0.0.1:5000/x:latest"],
    ["[::1]:5000/x:y", "[::1]:5000/x:y"],
    ["a__b/c-----d/e.f_g", "docker.io/a__b/c-----d/e.f_g:latest"],
    ["alpine:_A.b-C", "docker.io/library/alpine:_A.b-C"],
    [`alpine@${DIGEST}`, `docker.io/library/alpine@${DIGEST}`],
    [`alpine:3.20@${DIGEST}`, `docker.io/library/alpine@${DIGEST}`],
    [`host:1/x:y@${DIGEST}`, `host:1/x@${DIGEST}`],
  ])("%s means %s", (text, full) => {
    expect(referenceText(parseReference(text))).toBe(full);
    expect(parseReference(full)).toEqual(parseReference(text));
  });

  it.each([
    ["", "it is empty"],
    ["a".repeat(513), "longer than 512"],
    [`a/${"b".repeat(250)}`, "longer than 255"],
    ["Alpine", "upper-case"],
    ["host:5000/App", "upper-case"],
    ["docker://alpine", "begins with docker://"],
    ["https://ghcr.io/a", "begins with https://"],
    ["containers-storage:localhost/a:1", "begins with containers-storage:"],
    ["alpine:", "its tag"],
    ["alpine:-x", "its tag"],
    [`alpine:${"x".repeat(129)}`, "its tag"],
    ["alpine:a b", "its tag"],
    ["alpine@", "its digest"],
    ["alpine@sha256:12", "its digest"],
    [`alpine@sha512:${"a".repeat(128)}`, "its digest"],
    [`alpine@${DIGEST.toUpperCase()}`, "its digest"],
    [`a@b@${DIGEST}`, "its repository"],
    ["a//b", "its repository"],
    ["/a", "its repository"],
    ["a/", "its repository"],
    ["../a", "its registry"],
    ["a/../b", "its repository"],
    ["a..b", "its repository"],
    ["-a", "its repository"],
    ["a\n", "its repository"],
    ["host:0/a", "no valid port"],
    ["host:65536/a", "no valid port"],
    ["host:x/a", "its registry"],
    ["ho_st.x/a", "its registry"],
    ["a.b/", "its repository is missing"],
    ["user:pw@host.x/a", "its digest"],
    ["a.b%2f/c", "its registry"],
    ['a.b"/c', "its registry"],
    ["0123456789abcdef".repeat(4), "the id of an image"],
  ])("%s is refused: %s", (text, problem) => {
    const failure = (() => {
      try {
        return parseReference(text);
      } catch (error) {
        return error;
      }
    })();
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringContaining(problem) });
  });

  it("is refused by an error of the table or means itself, whatever the text", () => {
    const part = fc.stringMatching(/^[a-zA-Z0-9._:@/[\]-]{0,40}$/);
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          part,
          part.map((text) => `a.b/${text}`),
        ),
        (text) => {
          try {
            const full = referenceText(parseReference(text));
            expect(full).toMatch(/^[\w.:/@[\]-]+$/);
            expect(referenceText(parseReference(full))).toBe(full);
          } catch (error) {
            if (!(error instanceof AppError)) throw error;
          }
        },
      ),
      { numRuns: 2_000 },
    );
  });
});

describe("a platform", () => {
  it("is read with the names that other tools use", () => {
    const texts = ["linux/amd64", "Linux/x86_64", "linux/aarch64", "linux/arm64/v8", "linux/arm/v7"];
    const expected = ["linux/amd64", "linux/amd64", "linux/arm64", "linux/arm64/v8", "linux/arm/v7"];
    expect(texts.map((text) => platformText(parsePlatform(text)))).toEqual(expected);
  });

  it.each(["", "linux", "linux/", "linux/a/b/c", "linux/am d64", "../../x", "linux/amd64/"])(
    "%s is refused",
    (text) => {
      expect(() => parsePlatform(text)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    },
  );

  it.each([
    ["linux/amd64", ["linux/amd64/v1", "linux/amd64"]],
    ["linux/amd64/v3", ["linux/amd64/v3", "linux/amd64/v2", "linux/amd64"]],
    ["linux/arm64", ["linux/arm64/v8", "linux/arm64"]],
    ["linux/arm", ["linux/arm/v7", "linux/arm/v6", "linux/arm/v5", "linux/arm"]],
    ["linux/arm/v6", ["linux/arm/v6", "linux/arm/v5", "linux/arm"]],
    ["linux/riscv64", ["linux/riscv64"]],
  ])("%s runs, from the best on: %s", (asked, fitting) => {
    const others = ["windows/amd64", "linux/386", "linux/amd64/v4", "linux/arm/v8", "linux/s390x"];
    const found = [...others, ...fitting.toReversed()].map(parsePlatform);
    const ranked = found
      .map((platform) => ({ platform, fit: fitOf(parsePlatform(asked), platform) }))
      .filter(({ fit }) => fit !== null)
      .toSorted((a, b) => (a.fit ?? 0) - (b.fit ?? 0));
    expect(ranked.map(({ platform }) => platformText(platform))).toEqual(fitting);
  });
});
