/** Who may pull from where: credentials, tokens, redirects, mirrors, plain HTTP, and hosts that tenants must not reach. */
import { mkdirSync, writeFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { parseChallenges } from "../../src/oci/registry/authorization.ts";
import { GatewayTest, pullFrom } from "../support/gateway.ts";
import { type MadeImage, makeCertificate, makeImage, sha256, type TestRegistry, tarOf } from "../support/registry.ts";

const CREDENTIALS = { username: "ann", password: "pass:word-7391" };
const BASIC = `Basic ${Buffer.from("ann:pass:word-7391").toString("base64")}`;
const tenant = { isOperator: false };
const notAllowed = { code: "INVALID_ARGUMENT", reason_code: "OUTGOING_HOST_NOT_ALLOWED" };

describe("a registry", () => {
  let test: GatewayTest;
  let registry: TestRegistry;
  let image: MadeImage;
  let name = "";

  beforeEach(async () => {
    test = new GatewayTest();
    registry = await test.registry();
    image = registry.add("app", "latest", makeImage({ layers: [tarOf("f", Buffer.from("content"))] }));
    name = registry.host;
  });
  afterEach(() => test.close());

  /** Asks for `authorization` by a challenge. */
  const protect = (of: TestRegistry, challenge: string, isRight: (authorization: string | undefined) => boolean) => {
    of.behaviour = ({ headers }, response) => {
      const isAllowed = isRight(headers.authorization);
      if (!isAllowed) response.writeHead(401, { "www-authenticate": challenge }).end();
      return !isAllowed;
    };
  };

  describe("on loopback", () => {
    it("serves the operator at once, by plain HTTP too, but no tenant", async () => {
      const gateway = test.gateway();
      await pullFrom(await test.open(gateway, `${name}/app`));
      await pullFrom(await test.open(gateway, `localhost:${registry.port}/app`));
      const before = registry.requests.length;
      for (const host of [name, `localhost:${registry.port}`, `0.0.0.0:${registry.port}`, `[::1]:${registry.port}`]) {
        const error = await test.open(gateway, `${host}/app`, tenant).catch((reason: unknown) => reason);
        expect(error).toMatchObject({
          ...notAllowed,
          message: `registry ${host} not allowed (its address is not public)`,
        });
      }
      expect(registry.requests).toHaveLength(before);
    });

    it("serves no operator under a name that only leads there, nor at another forbidden address", async () => {
      const gateway = test.gateway({ resolve: async () => ["127.0.0.1"] });
      for (const host of [`registry.test:${registry.port}`, "169.254.169.254", "10.42.0.1:5000"]) {
        await expect(test.open(gateway, `${host}/app`)).rejects.toMatchObject(notAllowed);
      }
      expect(registry.requests).toEqual([]);
    });

    it.each([
      ["HEARTH_INSECURE_REGISTRIES", () => ({ insecure: [name] })],
      ["HEARTH_INSECURE_REGISTRIES, all ports", () => ({ insecure: ["127.0.0.1"] })],
      ["HEARTH_OUTGOING_ALLOWED", () => ({ allowed: [name] })],
      ["HEARTH_REGISTRY_MIRRORS", () => ({ mirrors: new Map([["docker.io", name]]) })],
    ])("serves a tenant if it is listed: %s", async (setting, options) => {
      const isMirror = setting.endsWith("MIRRORS");
      if (isMirror) registry.add("library/app", "latest", image);
      const source = await test.open(test.gateway(options()), isMirror ? "app" : `${name}/app`, tenant);
      expect((await pullFrom(source)).layers).toEqual(image.layers.map(sha256));
      expect(source.pull_reference.split("@")[0]).toBe(isMirror ? "docker.io/library/app" : `${name}/app`);
    });

    it("opens no other port by that", async () => {
      const other = await test.registry();
      other.add("app", "latest", image);
      const gateway = test.gateway({ insecure: [name] });
      await expect(test.open(gateway, `${other.host}/app`, tenant)).rejects.toMatchObject(notAllowed);
      expect(other.requests).toEqual([]);
    });
  });

  describe("elsewhere", () => {
    it("speaks TLS unless the operator lists it as insecure", async () => {
      const host = `registry.test:${registry.port}`;
      const common = { resolve: async () => ["127.0.0.1"], allowed: ["registry.test"] };
      await expect(test.open(test.gateway(common), `${host}/app`, tenant)).rejects.toThrow(/does not speak TLS/);
      expect(registry.requests).toEqual([]);
      const source = await test.open(test.gateway({ ...common, insecure: ["registry.test"] }), `${host}/app`, tenant);
      await pullFrom(source);
    });
  });

  describe("with redirects", () => {
    const redirect = (location: string) => {
      registry.behaviour = ({ url }, response) => {
        if (url?.includes("/blobs/")) response.writeHead(307, { location }).end();
        return url?.includes("/blobs/") === true;
      };
    };

    it("leads to another host without the credentials, but with the range", async () => {
      const elsewhere = await test.registry();
      const [layer = Buffer.alloc(0)] = image.layers;
      let count = 0;
      elsewhere.behaviour = ({ url, headers }, response) => {
        if (url === "/config") response.end(image.config);
        else if (++count === 1) {
          response
            .writeHead(200, { "content-length": layer.length })
            .write(layer.subarray(0, 5), () => response.destroy());
        } else {
          expect(headers.range).toBe("bytes=5-");
          response
            .writeHead(206, { "content-range": `bytes 5-${layer.length - 1}/${layer.length}` })
            .end(layer.subarray(5));
        }
        return true;
      };
      protect(registry, "Basic", (authorization) => authorization === BASIC);
      const guarded = registry.behaviour;
      registry.behaviour = (request, response) => {
        if (guarded(request, response)) return true;
        const isConfig = request.url?.endsWith(sha256(image.config));
        const isBlob = request.url?.includes("/blobs/") === true;
        if (isBlob)
          response.writeHead(302, { location: `http://${elsewhere.host}/${isConfig ? "config" : "layer"}` }).end();
        return isBlob;
      };
      const gateway = test.gateway({ insecure: [name], allowed: ["127.0.0.1"] });
      const source = await test.open(gateway, `${name}/app`, { ...tenant, credentials: CREDENTIALS });
      expect((await pullFrom(source)).layers).toEqual(image.layers.map(sha256));
      expect(elsewhere.requests.map(({ headers }) => headers.authorization)).toEqual([undefined, undefined, undefined]);
    });

    it.each([
      "http://127.0.0.1:1/x",
      "http://169.254.169.254/latest/meta-data",
      "http://[::1]/",
      "//0.0.0.0/x",
      "http://10.42.0.1/",
    ])("never leads to %s", async (location) => {
      redirect(location);
      for (const options of [tenant, { isOperator: true }]) {
        await expect(test.open(test.gateway({ insecure: [name] }), `${name}/app`, options)).rejects.toMatchObject({
          ...notAllowed,
          message: expect.stringContaining(`registry ${name} refers to a host that is not allowed`),
        });
      }
    });

    it("leads neither in circles nor to other protocols", async () => {
      const refused = {
        code: "REGISTRY_FAILED",
        retryable: false,
        message: expect.stringContaining(`registry ${name} not usable`),
      };
      redirect("/v2/app/blobs/again");
      await expect(test.open(test.gateway(), `${name}/app`)).rejects.toMatchObject(refused);
      redirect("file:///etc/passwd");
      await expect(test.open(test.gateway(), `${name}/app`)).rejects.toMatchObject(refused);
    });

    it("does not lead from TLS to plain HTTP", async () => {
      const certificate = makeCertificate();
      const tls = await test.registry(certificate);
      tls.behaviour = (_, response) => {
        response.writeHead(307, { location: `http://${name}/v2/app/manifests/latest` }).end();
        return true;
      };
      const directory = `${test.directory}/certificates`;
      mkdirSync(`${directory}/${tls.host}`, { recursive: true });
      writeFileSync(`${directory}/${tls.host}/ca.crt`, certificate.cert);
      const gateway = test.gateway({ allowed: ["127.0.0.1"] });
      await expect(test.open(gateway, `${tls.host}/app`)).rejects.toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringContaining("from https to http"),
      });
      expect(registry.requests).toEqual([]);
    });
  });

  describe("with Basic", () => {
    it("gets the credentials after its challenge, and never before", async () => {
      protect(registry, 'Basic realm="registry"', (authorization) => authorization === BASIC);
      const source = await test.open(test.gateway(), `${name}/app`, { credentials: CREDENTIALS });
      expect((await pullFrom(source)).layers).toEqual(image.layers.map(sha256));
      const [first, ...later] = registry.requests.map(({ headers }) => headers.authorization);
      expect(first).toBeUndefined();
      expect(new Set(later)).toEqual(new Set([BASIC]));
    });

    it("denies wrong credentials and none, and no error shows them", async () => {
      protect(registry, "Basic realm=registry", () => false);
      const denied = { code: "FORBIDDEN" };
      const error = await test
        .open(test.gateway(), `${name}/app`, { credentials: CREDENTIALS })
        .catch((reason: unknown) => reason as Error);
      expect(error).toMatchObject({ ...denied, message: expect.stringContaining("with these credentials") });
      const shown = JSON.stringify([error, (error as Error).message, (error as Error).cause, (error as Error).stack]);
      expect(shown).not.toMatch(/7391|cGFzcz/);
      await expect(test.open(test.gateway(), `${name}/app`)).rejects.toMatchObject({
        ...denied,
        message: expect.stringContaining("without credentials"),
        hint: expect.stringContaining("registry_username"),
      });
      for (const username of ["a:b", "a\r\nx-evil: 1"]) {
        const opening = test.open(test.gateway(), `${name}/app`, { credentials: { username, password: "x" } });
        await expect(opening).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
      }
    });

    it("gets no credentials as a mirror of another", async () => {
      registry.add("library/app", "latest", image);
      protect(registry, "Basic", () => false);
      const gateway = test.gateway({ mirrors: new Map([["docker.io", name]]) });
      await expect(test.open(gateway, "app", { credentials: CREDENTIALS })).rejects.toMatchObject({
        code: "FORBIDDEN",
        message: expect.stringContaining(`registry docker.io (mirror ${name}) denies access`),
        hint: expect.stringContaining("mirror"),
      });
      expect(registry.requests.map(({ headers }) => headers.authorization)).toEqual([undefined]);
    });
  });

  describe("with bearer tokens", () => {
    let realm: TestRegistry;
    let tokens: string[] = [];
    /** Issues a new token for the right credentials. */
    const issue = (isRight: (authorization: string | undefined) => boolean, answer?: unknown) => {
      realm.behaviour = ({ headers }, response) => {
        if (!isRight(headers.authorization)) response.writeHead(401).end();
        else {
          tokens.push(`token-${tokens.length}`);
          response.end(typeof answer === "string" ? answer : JSON.stringify(answer ?? { token: tokens.at(-1) }));
        }
        return true;
      };
    };
    const challenge = (more = "") => `Bearer realm="http://${realm.host}/token?x=1",service="the registry"${more}`;
    const open = (options = {}) =>
      test.open(test.gateway({ insecure: [name, realm.host] }), `${name}/app`, { ...tenant, ...options });

    beforeEach(async () => {
      realm = await test.registry();
      tokens = [];
      issue((authorization) => authorization === BASIC);
      protect(registry, challenge(), (authorization) => authorization === `Bearer ${tokens.at(-1)}`);
    });

    it("gets a token for the one repository; its realm alone gets the credentials", async () => {
      expect((await pullFrom(await open({ credentials: CREDENTIALS }))).layers).toEqual(image.layers.map(sha256));
      expect(tokens).toHaveLength(1);
      const asked = new URL(`http://realm${realm.requests[0]?.url}`);
      expect(Object.fromEntries(asked.searchParams)).toEqual({
        ...{ x: "1", service: "the registry", scope: "repository:app:pull", account: "ann" },
      });
      expect(registry.requests.map(({ headers }) => headers.authorization)).not.toContain(BASIC);
    });

    it("gets a token without credentials where the realm gives one", async () => {
      issue((authorization) => authorization === undefined, undefined);
      await pullFrom(await open());
      expect(new URL(`http://realm${realm.requests[0]?.url}`).searchParams.has("account")).toBe(false);
    });

    it("gets a new token when one expires, for layers too", async () => {
      let isExpired = false;
      registry.behaviour = ({ url, headers }, response) => {
        if (url?.endsWith(sha256(image.layers[0] ?? Buffer.alloc(0))) && tokens.length === 1) isExpired = true;
        const isAllowed = headers.authorization === `Bearer ${tokens.at(-1)}` && !(isExpired && tokens.length === 1);
        if (!isAllowed) response.writeHead(401, { "www-authenticate": challenge() }).end();
        return !isAllowed;
      };
      expect((await pullFrom(await open({ credentials: CREDENTIALS }))).layers).toEqual(image.layers.map(sha256));
      expect(tokens).toHaveLength(2);
    });

    it("is not asked for tokens without end if it accepts none", async () => {
      protect(registry, challenge(), () => false);
      await expect(open({ credentials: CREDENTIALS })).rejects.toMatchObject({ code: "FORBIDDEN" });
      expect(tokens.length).toBeLessThan(5);
      realm.behaviour = (_, response) => {
        response.writeHead(401).end();
        return true;
      };
      await expect(open({ credentials: CREDENTIALS })).rejects.toMatchObject({
        code: "FORBIDDEN",
        message: expect.stringContaining("with these credentials"),
      });
    });

    it.each([
      ["no JSON", "<html>"],
      ["no token", "{}"],
      ["a token that would be two headers", JSON.stringify({ token: "a\r\nx-evil: 1" })],
      ["a token that is no text", JSON.stringify({ token: 7 })],
      ["a token that is long", JSON.stringify({ token: "x".repeat(LIMITS.registry_token_length_max + 1) })],
    ])("is refused if its realm gives %s", async (_, answer) => {
      issue(() => true, answer);
      await expect(open()).rejects.toMatchObject({
        code: "REGISTRY_FAILED",
        message: expect.stringMatching(/^registry \S+ does not answer as a registry: no usable token/),
      });
    });

    it("cannot send a tenant's credentials to loopback, to plain HTTP elsewhere, or to no URL", async () => {
      const gateway = test.gateway({ insecure: [name], resolve: async () => ["203.0.113.7"] });
      const pull = () => test.open(gateway, `${name}/app`, { ...tenant, credentials: CREDENTIALS });
      await expect(pull()).rejects.toMatchObject({
        ...notAllowed,
        message: expect.stringContaining(`token realm ${realm.host} of registry ${name}`),
      });
      expect(realm.requests).toEqual([]);
      for (const wrong of ["http://realm.test/token", "", "token", "file:///etc/passwd", "https://a:b@realm.test/"]) {
        protect(registry, `Bearer realm="${wrong}"`, () => false);
        await expect(pull()).rejects.toMatchObject({
          code: "REGISTRY_FAILED",
          message: expect.stringContaining("its token realm is not an https URL"),
        });
      }
    });

    it("cannot widen the scope of the token", async () => {
      protect(registry, challenge(',scope="repository:app:pull,push registry:catalog:*"'), () => false);
      await open({ credentials: CREDENTIALS }).catch(() => {});
      expect(new URL(`http://realm${realm.requests[0]?.url}`).searchParams.get("scope")).toBe("repository:app:pull");
    });
  });
});

describe("a challenge", () => {
  it.each([
    ["", []],
    ["Basic", [["basic", {}]]],
    [
      'Bearer realm="https://a/b?c=d,e",service=x , scope="p:q:r,s"',
      [["bearer", { realm: "https://a/b?c=d,e", service: "x", scope: "p:q:r,s" }]],
    ],
    [
      'Negotiate, Basic realm="a \\"b\\"", Bearer Realm=z',
      [
        ["negotiate", {}],
        ["basic", { realm: 'a "b"' }],
        ["bearer", { realm: "z" }],
      ],
    ],
    ['realm="x"', []],
  ])("%s is read", (header, expected) => {
    const found = parseChallenges(header).map(({ scheme, parameters }) => [scheme, Object.fromEntries(parameters)]);
    expect(found).toEqual(expected);
  });

  it("of hostile length is read in time", () => {
    // Work that grows with the square of the length would take minutes. Of the thread alone: others take the cores.
    const before = process.threadCpuUsage();
    for (const text of ['"'.repeat(640_000), "a=".repeat(320_000), " ,".repeat(320_000), `a="${"\\".repeat(640_000)}`])
      parseChallenges(text);
    expect(process.threadCpuUsage(before).user / 1e6).toBeLessThan(10);
  });
});
