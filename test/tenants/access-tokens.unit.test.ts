/** Access tokens and what ends them, with the time held by hand and a real store. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { decodeJwt, exportJWK, generateKeyPair, SignJWT } from "jose";
import { describe, expect, it } from "vitest";
import { SCOPES } from "../../src/base/caller.ts";
import { randomIds } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import type { Log } from "../../src/base/log.ts";
import { Events } from "../../src/events/service.ts";
import { AccessTokens } from "../../src/tenants/access-tokens.ts";
import { Keys } from "../../src/tenants/keys.ts";
import { newTokenKey, TokenKeys } from "../../src/tenants/token-keys.ts";
import { HandClock } from "../pool/hand-clock.ts";
import { scratchStores } from "../store/scratch.ts";
import { testOutgoing } from "./test-keys.ts";

const refused = expect.objectContaining({ code: "UNAUTHORIZED" });
const OPERATOR = "operator-key-0123456789";

describe("access tokens", () => {
  const scratch = scratchStores();
  const open = async (jwks_url: string | null = null) => {
    const clock = new HandClock();
    clock.now_ms = 1_800_000_000_000;
    const warnings: string[] = [];
    const ignore = () => {};
    const log: Log = { debug: ignore, info: ignore, warn: (message) => warnings.push(message), error: ignore };
    const outside =
      jwks_url === null
        ? null
        : { issuer: "https://out.test", audience: "here", jwks_url, algorithms: ["ES256"], tenant_claim: "tenant_id" };
    const ids = randomIds();
    const outgoing = testOutgoing(clock, outside);
    const kept: string[] = [];
    const token_keys = new TokenKeys({ clock, text: newTokenKey(), keep: (text) => kept.push(text) });
    const tokens = new AccessTokens({ clock, ids, log, token_keys, outside, outgoing });
    const store = scratch().open();
    const keys = new Keys({ store, clock, ids, tokens, events: new Events({ store, clock, log }), logins: null });
    await keys.ensureBootstrap(OPERATOR);
    const operator = await keys.caller(OPERATOR);
    return { clock, keys, operator, warnings, kept };
  };
  const later = (clock: HandClock, seconds: number) => {
    clock.now_ms += seconds * 1000;
  };

  it("are good for their time, from the store and from the cache", async () => {
    const { keys, operator, clock } = await open();
    const { access_token, expires_in } = await keys.token(operator, { expires_in: 50 });
    expect(expires_in).toBe(50);
    expect(await keys.caller(access_token)).toMatchObject({ kind: "token", is_operator: false, scopes: SCOPES });
    later(clock, 49);
    expect(keys.cached(access_token)).not.toBeNull();
    later(clock, 1);
    expect(keys.cached(access_token)).toBeNull();
    await expect(keys.caller(access_token)).rejects.toEqual(refused);
  });

  it("end when their key expires, also while they are cached, and say so", async () => {
    const { keys, operator, clock } = await open();
    const expires_at = clock.now_ms / 1000 + 20;
    const { key } = await keys.create("default", { name: "short", expires_at }, operator);
    const { access_token, expires_in } = await keys.token(await keys.caller(key), { expires_in: 900 });
    expect(expires_in).toBe(20);
    await keys.caller(access_token);
    later(clock, 20);
    expect(keys.cached(access_token)).toBeNull();
    await expect(keys.caller(access_token)).rejects.toEqual(refused);
  });

  it("of the operator's key end when another key takes its place", async () => {
    const { keys, operator } = await open();
    const { access_token } = await keys.token(operator, { expires_in: 900 });
    await keys.caller(access_token);
    await keys.ensureBootstrap("another-operator-key");
    await expect(keys.caller(access_token)).rejects.toEqual(refused);
    const { access_token: newer } = await keys.token(await keys.caller("another-operator-key"), { expires_in: 900 });
    expect(await keys.caller(newer)).toMatchObject({ key_id: "bootstrap", kind: "token" });
  });

  it("of an earlier key are good for the overlap of a rotation, after a restart too, and not longer", async () => {
    const { keys, operator, clock, kept } = await open();
    const { access_token: old } = await keys.token(operator, { expires_in: 3_600 });
    await keys.caller(old);
    expect(keys.rotateTokenKey(600)).toBe(clock.now_ms / 1000 + 600);
    const { access_token: newer } = await keys.token(operator, { expires_in: 3_600 });
    const kid = (token: string) => JSON.parse(Buffer.from(token.split(".")[0] ?? "", "base64url").toString()).kid;
    expect(kid(newer)).not.toBe(kid(old));
    // The keys that a restart reads.
    const [text = ""] = kept;
    const again = new TokenKeys({ clock, text, keep: () => {} });
    expect(again.newest.kid).toBe(kid(newer));
    expect(again.good(kid(old))).toHaveLength(1);
    later(clock, 599);
    for (const token of [old, newer]) expect(await keys.caller(token)).toMatchObject({ key_id: "bootstrap" });
    later(clock, 1);
    expect(keys.cached(old)).toBeNull();
    await expect(keys.caller(old)).rejects.toEqual(refused);
    expect(again.good(kid(old))).toEqual([]);
    expect(await keys.caller(newer)).toMatchObject({ kind: "token" });
  });

  it("all end at once where a rotation has no overlap, also those that are cached", async () => {
    const { keys, operator } = await open();
    const { access_token } = await keys.token(operator, { expires_in: 3_600 });
    await keys.caller(access_token);
    keys.rotateTokenKey(0);
    expect(keys.cached(access_token)).toBeNull();
    await expect(keys.caller(access_token)).rejects.toEqual(refused);
  });

  it("of versions without key ids are good, and a bounded number of keys verifies", async () => {
    const { keys, operator, kept } = await open();
    keys.rotateTokenKey(3_600);
    const secret = Buffer.from(kept[0]?.split("\n")[0] ?? "", "hex");
    const { access_token } = await keys.token(operator, { expires_in: 3_600 });
    const bare = await new SignJWT(decodeJwt(access_token)).setProtectedHeader({ alg: "HS256" }).sign(secret);
    // Two keys verify already.
    for (let i = 2; i < LIMITS.token_keys_max; i++) keys.rotateTokenKey(3_600);
    for (const token of [access_token, bare]) expect(await keys.caller(token)).toMatchObject({ kind: "token" });
    const full = expect.objectContaining({ code: "QUOTA_EXCEEDED" });
    expect(() => keys.rotateTokenKey(3_600)).toThrow(full);
    expect(kept).toHaveLength(LIMITS.token_keys_max - 1);
    expect(() => keys.rotateTokenKey(0)).not.toThrow();
    for (const token of [access_token, bare]) await expect(keys.caller(token)).rejects.toEqual(refused);
  });

  it("of the operator's previous key are good for as long as that key", async () => {
    const { keys, operator, clock } = await open();
    const { access_token } = await keys.token(operator, { expires_in: 3_600 });
    await keys.caller(access_token);
    await keys.rotateBootstrap("another-operator-key", 60);
    for (const credential of [OPERATOR, "another-operator-key"]) {
      expect(await keys.caller(credential)).toMatchObject({ is_operator: true });
    }
    expect(await keys.caller(access_token)).toMatchObject({ key_id: "bootstrap" });
    later(clock, 60);
    for (const credential of [OPERATOR, access_token]) await expect(keys.caller(credential)).rejects.toEqual(refused);
    await keys.rotateBootstrap("a-third-operator-key", 0);
    await expect(keys.caller("another-operator-key")).rejects.toEqual(refused);
    expect(await keys.caller("a-third-operator-key")).toMatchObject({ is_operator: true });
  });

  it("are not made of a key that was revoked meanwhile", async () => {
    const { keys, operator } = await open();
    const { key, id } = await keys.create("default", { name: "k" }, operator);
    const caller = await keys.caller(key);
    await keys.revoke("default", id);
    await expect(keys.token(caller, { expires_in: 60 })).rejects.toEqual(refused);
  });

  it("of an issuer that cannot be reached are refused, which is logged once in a while and not for each", async () => {
    const { keys, warnings, clock } = await open("http://127.0.0.1:1/jwks");
    const { privateKey } = await generateKeyPair("ES256");
    const token = (sub: string) =>
      new SignJWT({ tenant_id: "default", scope: "read" })
        .setProtectedHeader({ alg: "ES256", kid: "k1" })
        .setIssuer("https://out.test")
        .setAudience("here")
        .setSubject(sub)
        .setExpirationTime(clock.now_ms / 1000 + 600)
        .sign(privateKey);
    for (const sub of ["a", "b", "c"]) await expect(keys.caller(await token(sub))).rejects.toEqual(refused);
    expect(warnings).toEqual(["cannot read the issuer's keys"]);
    later(clock, LIMITS.jwks_cooldown_ms / 1000);
    for (const sub of ["d", "e"]) await expect(keys.caller(await token(sub))).rejects.toEqual(refused);
    expect(warnings).toHaveLength(2);
    // A bad token says nothing of the issuer.
    later(clock, LIMITS.jwks_cooldown_ms / 1000);
    await expect(keys.caller("eyJhbGciOiJub25lIn0.e30.AAAA")).rejects.toEqual(refused);
    await expect(keys.caller(`${(await token("f")).slice(0, 20)}.x.y`)).rejects.toEqual(refused);
    expect(warnings).toHaveLength(2);
    expect(await keys.caller(OPERATOR)).toMatchObject({ is_operator: true });
  });

  it("of an issuer that answers are good for the scopes and the tenant that they name", async () => {
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const jwks = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256" }] });
    const issuer = createServer((_, response) => response.end(jwks)).listen(0, "127.0.0.1");
    await new Promise((resolve) => issuer.once("listening", resolve));
    try {
      const { keys, clock } = await open(`http://127.0.0.1:${(issuer.address() as AddressInfo).port}/`);
      const token = await new SignJWT({ tenant_id: "default", scope: "write read root" })
        .setProtectedHeader({ alg: "ES256", kid: "k1" })
        .setIssuer("https://out.test")
        .setAudience("here")
        .setSubject("bootstrap\u009b2J\u202e")
        .setExpirationTime(clock.now_ms / 1000 + 600)
        .sign(privateKey);
      expect(await keys.caller(token)).toEqual({
        tenant_id: "default",
        kind: "token",
        key_id: "jwt:bootstrap?2J?",
        scopes: ["read", "write"],
        is_operator: false,
        invocation: null,
      });
    } finally {
      issuer.close();
    }
  });

  it("of an issuer that fit several of its keys are refused, and its keys not blamed in the log", async () => {
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const jwk = { ...(await exportJWK(publicKey)), alg: "ES256" };
    const issuer = createServer((_, response) => response.end(JSON.stringify({ keys: [jwk, jwk] })));
    await new Promise((resolve) => issuer.listen(0, "127.0.0.1", () => resolve(null)));
    try {
      const { keys, clock, warnings } = await open(`http://127.0.0.1:${(issuer.address() as AddressInfo).port}/`);
      const claims = { iss: "https://out.test", aud: "here", tenant_id: "default", scope: "read" };
      const token = new SignJWT({ ...claims, sub: "x", exp: clock.now_ms / 1000 + 600 });
      // Two keys would do.
      await expect(keys.caller(await token.setProtectedHeader({ alg: "ES256" }).sign(privateKey))).rejects.toEqual(
        refused,
      );
      expect(warnings).toEqual([]);
    } finally {
      issuer.close();
    }
  });

  it("of an issuer that redirects to another service of this machine are refused, and that one is not asked", async () => {
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const jwks = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256" }] });
    const asked = { count: 0 };
    const inside = createServer((_, response) => {
      asked.count++;
      response.end(jwks);
    });
    await new Promise((resolve) => inside.listen(0, "127.0.0.1", () => resolve(null)));
    const location = `http://127.0.0.1:${(inside.address() as AddressInfo).port}/`;
    const issuer = createServer((_, response) => response.writeHead(302, { location }).end());
    await new Promise((resolve) => issuer.listen(0, "127.0.0.1", () => resolve(null)));
    try {
      const { keys, clock, warnings } = await open(`http://127.0.0.1:${(issuer.address() as AddressInfo).port}/`);
      const claims = { iss: "https://out.test", aud: "here", tenant_id: "default", scope: "read", sub: "x" };
      const token = new SignJWT({ ...claims, exp: clock.now_ms / 1000 + 600 });
      const signed = await token.setProtectedHeader({ alg: "ES256", kid: "k1" }).sign(privateKey);
      await expect(keys.caller(signed)).rejects.toEqual(refused);
      expect(asked.count).toBe(0);
      expect(warnings).toEqual(["cannot read the issuer's keys"]);
    } finally {
      for (const server of [inside, issuer]) server.close();
    }
  });

  it("of an issuer whose keys never end are refused before they take memory", async () => {
    const sent = { bytes: 0 };
    const issuer = createServer((_, response) => {
      const chunk = Buffer.alloc(64 * 1024, " ");
      const send = () => {
        while (!response.destroyed && sent.bytes < 100 * LIMITS.jwks_bytes_max) {
          sent.bytes += chunk.length;
          if (!response.write(chunk)) return;
        }
        response.end();
      };
      response.on("drain", send);
      send();
    });
    await new Promise((resolve) => issuer.listen(0, "127.0.0.1", () => resolve(null)));
    try {
      const { keys, clock, warnings } = await open(`http://127.0.0.1:${(issuer.address() as AddressInfo).port}/`);
      const { privateKey } = await generateKeyPair("ES256");
      const token = new SignJWT({ iss: "https://out.test", sub: "x", exp: clock.now_ms / 1000 + 600 });
      const signed = await token.setProtectedHeader({ alg: "ES256", kid: "k" }).sign(privateKey);
      await expect(keys.caller(signed)).rejects.toEqual(refused);
      expect(warnings).toEqual(["cannot read the issuer's keys"]);
      // What lies in the buffers of two sockets is beyond the bound.
      expect(sent.bytes).toBeLessThan(50 * LIMITS.jwks_bytes_max);
    } finally {
      issuer.closeAllConnections();
      issuer.close();
    }
  });
});
