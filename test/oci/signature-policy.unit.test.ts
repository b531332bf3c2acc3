/** Policies that accept an image as it is, and all others. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { acceptsEverything } from "../../src/oci/registry/signature-policy.ts";

const directory = mkdtempSync("/var/tmp/hearth-policy-");
afterAll(() => rmSync(directory, { recursive: true }));

const ANY = [{ type: "insecureAcceptAnything" }];
const SIGNED = [{ type: "signedBy", keyType: "GPGKeys", keyPath: "/key" }];
const REJECT = [{ type: "reject" }];
const docker = (scopes: object, other: object = REJECT) => ({ default: other, transports: { docker: scopes } });

describe("a policy of signatures", () => {
  it.each([
    ["accepts all", { default: ANY }, true],
    ["rejects all", { default: REJECT }, false],
    ["has no requirement", { default: [] }, false],
    ["asks for a signature too", { default: [...ANY, ...SIGNED] }, false],
    ["accepts the transport", docker({ "": ANY }), true],
    ["accepts the registry", docker({ "example.com:5000": ANY }), true],
    ["accepts subdomains", docker({ "*.com": ANY }), true],
    ["accepts the repository", docker({ "example.com:5000/team/app": ANY }), true],
    ["accepts another registry", docker({ "example.org": ANY }), false],
    ["accepts a name that only begins alike", docker({ "example.com:5000/te": ANY }), false],
    ["asks for a signature of the folder", docker({ "example.com:5000/team": SIGNED }, ANY), false],
    ["asks for a signature of one tag", docker({ "": ANY, "example.com:5000/team/app:1": SIGNED }), false],
    ["has another shape", { default: "anything" }, false],
  ])("that %s: %j is %s", async (_, policy, expected) => {
    writeFileSync(`${directory}/policy.json`, JSON.stringify(policy));
    expect(await acceptsEverything(`${directory}/policy.json`, "example.com:5000/team/app")).toBe(expected);
  });

  it("that cannot be read accepts nothing", async () => {
    writeFileSync(`${directory}/broken.json`, "{");
    const files = [null, `${directory}/none.json`, `${directory}/broken.json`];
    expect(await Promise.all(files.map((file) => acceptsEverything(file, "example.com/app")))).toEqual([
      false,
      false,
      false,
    ]);
  });
});
