/** Requests and responses that pass between clients and published services, and those that never do. */
import { createHash, randomBytes } from "node:crypto";
import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { ask, at, exchange, Publisher, type Response, tokenIn } from "../support/services.ts";

const daemon = new Daemon();
const own = new Publisher(daemon);
const urls = { web: "", other: "", socket: "", hostile: "" };
const tokens: string[] = [];

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await own.container("web");
  const web = await own.publish("web", { name: "web", enable_websockets: true });
  const other = await own.publish("web", { name: "other" });
  const hostile = await own.publish("web", { name: "hostile", target_port: 9_090 });
  Object.assign(urls, {
    ...{ web: web.public_url, socket: web.websocket_url, other: other.public_url, hostile: hostile.public_url },
  });
  tokens.push(...[web, other, hostile].map(({ public_url }) => tokenIn(public_url)));
});
afterAll(() => daemon.dispose());

const seen = ({ text }: Response) => JSON.parse(text) as Record<string, string> & { headers: string[]; bytes: number };
const named = (raw: readonly string[], name: string) =>
  raw.filter((_, i) => i % 2 === 1 && raw[i - 1]?.toLowerCase() === name);
const hostOf = (url: string) => new URL(url).host;
const bare = (url: string) => `${new URL(url).origin}/`;
/** Headers of a browser that opens a page. */
const NAVIGATION = {
  "sec-fetch-mode": "navigate",
  "sec-fetch-dest": "document",
  "sec-fetch-site": "none",
  accept: "text/html",
};

/** Opens a page as a browser does. Returns its cookie. */
async function signIn(url: string): Promise<string> {
  const { headers } = await ask(url, { headers: NAVIGATION });
  return (headers["set-cookie"]?.[0] ?? "").split(";")[0] ?? "";
}

describe("a request", () => {
  it("keeps method, path and query byte for byte, without the token", async () => {
    const token = tokenIn(urls.web);
    const cases = [
      ["/", "/"],
      ["/a%2Fb/../%C3%A9;x=1//", "/a%2Fb/../%C3%A9;x=1//"],
      // The path is the service's own: nothing of the daemon is chosen by it.
      ["/a/%2E%2e/%2e%2E%2Fb/..;/x\\..\\y//", "/a/%2E%2e/%2e%2E%2Fb/..;/x\\..\\y//"],
      ["/p?a=1&b&=c&a=%20+", "/p?a=1&b&=c&a=%20+"],
      ["/p?a=%zz&b[]=1", "/p?a=%zz&b[]=1"],
    ];
    for (const [sent = "", wanted] of cases) {
      for (const path of [
        `${sent}${sent.includes("?") ? "&" : "?"}service_token=${token}`,
        sent.includes("?") ? sent.replace("?", `?service_token=${token}&`) : `${sent}?service_token=${token}`,
      ]) {
        expect(seen(await ask(urls.web, { path }))).toMatchObject({ method: "GET", url: wanted });
      }
    }
    const escaped = await ask(urls.web, { path: `/x?service%5Ftoken=${token}&y=1` });
    expect(seen(escaped).url).toBe("/x?y=1");
    const elsewhere = await ask(urls.web, {
      path: `/x?service_token=${token}&next=http%3A%2F%2Fa%2F%3Fservice_token%3D${token}`,
    });
    expect(seen(elsewhere).url).toBe("/x?next=http%3A%2F%2Fa%2F%3Fservice_token%3D");
    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]) {
      expect(seen(await ask(urls.web, { method }))).toMatchObject({ method, url: "/", bytes: 0 });
    }
  });

  it("has no trace of token, cookie or key, and tells of the client what the daemon saw", async () => {
    const token = tokenIn(urls.web);
    const cookie = await signIn(urls.web);
    const answer = seen(
      await ask(at(urls.web, "/x"), {
        headers: {
          referer: at(urls.web, "/page", { a: "1" }),
          cookie: `${cookie}; theme=dark; ${cookie}`,
          authorization: `Bearer hk_abcdef_${KEY}`,
          "x-api-key": `hk_abcdef_${KEY}`,
          "x-custom": `see ${urls.web}`,
          "x-forwarded-for": "6.6.6.6",
          x_forwarded_for: "6.6.6.6",
          "X-Forwarded-Host": "evil.example",
          "X-Forwarded-Prefix": "/admin",
          forwarded: "for=6.6.6.6",
          "x-real-ip": "6.6.6.6",
          "proxy-authorization": "Basic eA==",
          te: "trailers",
          connection: "keep-alive, x-hop",
          "x-hop": "1",
        },
      }),
    );
    const text = JSON.stringify(answer);
    expect(text).not.toContain(token);
    expect(text).not.toContain(cookie.split("=")[1]);
    for (const word of ["6.6.6.6", "evil.example", "/admin", "hk_", "x-hop", "Basic"]) expect(text).not.toContain(word);
    expect(named(answer.headers, "te")).toEqual([]);
    expect(named(answer.headers, "cookie")).toEqual(["theme=dark"]);
    expect(named(answer.headers, "referer")).toEqual([`${bare(urls.web)}page?a=1`]);
    expect(named(answer.headers, "host")).toEqual([hostOf(urls.web)]);
    expect(named(answer.headers, "x-forwarded-for")).toEqual(["127.0.0.1"]);
    expect(named(answer.headers, "x-forwarded-host")).toEqual([hostOf(urls.web)]);
    expect(named(answer.headers, "x-forwarded-proto")).toEqual(["http"]);
    const kept = seen(
      await ask(urls.web, { headers: { authorization: "Bearer of-the-app", "x-api-key": "of-the-app" } }),
    );
    expect([named(kept.headers, "authorization"), named(kept.headers, "x-api-key")]).toEqual([
      ["Bearer of-the-app"],
      ["of-the-app"],
    ]);
  });

  it("streams a large body with a length or in chunks, with trailers", async () => {
    const body = randomBytes(20 * 1024 * 1024);
    const sha256 = createHash("sha256").update(body).digest("hex");
    const whole = seen(await ask(urls.web, { method: "POST", body }));
    expect([whole.bytes, whole.sha256, named(whole.headers, "content-length")]).toEqual([
      body.length,
      sha256,
      [String(body.length)],
    ]);
    const { hostname, port, search } = new URL(urls.web);
    const chunked = await new Promise<string>((resolve, reject) => {
      const sent = request(
        { hostname, port, method: "PUT", path: `/${search}`, headers: { trailer: "x-sum" } },
        (response) => {
          let text = "";
          response
            .setEncoding("utf8")
            .on("data", (chunk) => (text += chunk))
            .on("end", () => resolve(text));
        },
      );
      sent.on("error", reject);
      for (let i = 0; i < body.length; i += 100_000) sent.write(body.subarray(i, i + 100_000));
      // Those that no trailer may have are dropped.
      sent.addTrailers({ "x-sum": "7", "X-Forwarded-For": "8.8.8.8", X_Real_IP: "8.8.8.8", Cookie: "a=1", Host: "x" });
      sent.end();
    });
    expect(JSON.parse(chunked)).toMatchObject({ bytes: body.length, sha256, trailers: ["x-sum", "7"] });
  });

  it("with Expect waits for the container's decision", async () => {
    const path = `/x${new URL(urls.web).search}`;
    const head = (path: string) =>
      `POST ${path} HTTP/1.1\r\nHost: ${hostOf(urls.web)}\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n`;
    const text = await exchange(urls.web, head(path), 700);
    expect(text).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    const refused = await exchange(urls.web, head(path.replace("/x", "/refuse")), 700);
    expect(refused).toMatch(/^HTTP\/1\.1 417 /);
    expect(refused).not.toContain("100 Continue");
  });

  it("uses idle connections to the container again", async () => {
    const first = Number(seen(await ask(urls.web)).connections);
    for (let i = 0; i < 10; i++) await ask(urls.web);
    expect(Number(seen(await ask(urls.web)).connections) - first).toBeLessThanOrEqual(1);
  });
});

describe("a response", () => {
  it("keeps status, reason, headers and their repetition, without those of one connection", async () => {
    const answer = await ask(at(urls.web, "/status", { code: "418" }));
    expect([answer.status, answer.message, answer.headers["x-own"]]).toEqual([418, "Own Words", "1"]);
    const unchanged = await ask(at(urls.web, "/not-modified"));
    expect([unchanged.status, unchanged.headers.etag, unchanged.text]).toEqual([304, '"a"', ""]);
    const head = await ask(at(urls.web, "/big", { bytes: "1000", length: "1" }), { method: "HEAD" });
    expect([head.status, head.headers["content-length"], head.text]).toEqual([200, "1000", ""]);
    const hop = await ask(at(urls.web, "/hop"));
    expect([hop.headers["x-kept"], hop.headers["x-secret-hop"], hop.headers["proxy-authenticate"]]).toEqual([
      "1",
      undefined,
      undefined,
    ]);
    expect((await ask(at(urls.web, "/trailers"))).trailers).toEqual({ "x-sum": "42" });
    expect((await ask(at(urls.web, "/hints"))).text).toBe("hinted");
    expect((await ask(urls.web)).headers["referrer-policy"]).toBe("same-origin");
    expect((await ask(at(urls.web, "/policy"))).headers["referrer-policy"]).toBe("no-referrer");
  });

  it("streams: events arrive as they are sent", async () => {
    const times: number[] = [];
    const begun = performance.now();
    const response = await fetch(at(urls.web, "/events"));
    for await (const _ of response.body ?? []) times.push(performance.now() - begun);
    expect(times.length).toBe(3);
    expect((times[2] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(200);
  });

  it("moves no faster than the client takes it, and is whole", async () => {
    const bytes = 64 * 1024 * 1024;
    const response = await fetch(at(urls.web, "/big", { bytes: String(bytes) }));
    const reader = response.body?.getReader();
    await reader?.read();
    await new Promise((resolve) => setTimeout(resolve, 500));
    const { sent } = JSON.parse((await ask(at(urls.web, "/seen"))).text);
    expect(sent).toBeLessThan(bytes / 2);
    let count = 0;
    for (let next = await reader?.read(); next?.done === false; next = await reader?.read()) count += next.value.length;
    expect(count).toBeGreaterThan(bytes - 1024 * 1024);
  });

  it("comes whole although the container did not read the request", async () => {
    const answer = await ask(at(urls.web, "/early"), { method: "POST", body: Buffer.alloc(8 * 1024 * 1024) });
    expect([answer.status, answer.text]).toEqual([413, "too large"]);
  });
});

describe("a container that closes the connection", () => {
  it("costs the client a 502", async () => {
    const { status, text } = await ask(at(urls.hostile, "/close"));
    expect([status, JSON.parse(text).error_code]).toEqual([502, "SERVICE_FAILED"]);
  });
});

describe("a browser", () => {
  it("gets a cookie in place of the token and continues without it", async () => {
    const opened = await ask(at(urls.web, "//evil.example/a", { b: "1" }), { headers: NAVIGATION });
    expect(opened.status).toBe(302);
    expect(opened.headers.location).toBe(`${new URL(urls.web).origin}//evil.example/a?b=1`);
    expect(opened.headers).toMatchObject({ "cache-control": "no-store", "referrer-policy": "no-referrer" });
    const [cookie = ""] = opened.headers["set-cookie"] ?? [];
    expect(cookie).toMatch(/^hearth_service=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/);
    expect(cookie).not.toContain(tokenIn(urls.web));
    const page = await ask(`${bare(urls.web)}page`, { headers: { cookie: cookie.split(";")[0] } });
    expect([page.status, seen(page).url, named(seen(page).headers, "cookie")]).toEqual([200, "/page", []]);
    expect((await ask(urls.web, { headers: { accept: "text/html,*/*" } })).status).toBe(302);
    // A frame of another site would get no cookie.
    expect((await ask(urls.web, { headers: { ...NAVIGATION, "sec-fetch-dest": "iframe" } })).status).toBe(200);
  });

  it("has cookies of one service for this one alone", async () => {
    expect(hostOf(urls.web)).not.toBe(hostOf(urls.other));
    const cookie = await signIn(urls.web);
    expect((await ask(bare(urls.other), { headers: { cookie } })).status).toBe(401);
    const set = [
      "a=1; Domain=127.0.0.1; Path=/",
      "b=2; path=/; DOMAIN = .example.com; HttpOnly",
      "c=3",
      "hearth_service=stolen; Path=/",
    ];
    const path = `/cookie?${set.map((one) => `set=${encodeURIComponent(one)}`).join("&")}&service_token=${tokenIn(urls.web)}`;
    expect((await ask(urls.web, { path })).headers["set-cookie"]).toEqual([
      "a=1; Path=/",
      "b=2; path=/; HttpOnly",
      "c=3",
    ]);
  });

  it("cannot be made to use the cookie by a page of another origin", async () => {
    const cookie = await signIn(urls.web);
    const status = async (headers: Record<string, string>, method = "GET") =>
      (await ask(`${bare(urls.web)}x`, { method, headers: { cookie, ...headers } })).status;
    const origin = new URL(urls.web).origin;
    expect(await status({ "sec-fetch-site": "same-origin" })).toBe(200);
    expect(await status({ origin }, "POST")).toBe(200);
    expect(await status({ origin: new URL(urls.other).origin }, "POST")).toBe(401);
    expect(await status({ origin: "null" }, "POST")).toBe(401);
    expect(await status({ "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors" })).toBe(401);
    expect(await status({ "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors" })).toBe(401);
    expect(await status({ ...NAVIGATION, "sec-fetch-site": "cross-site" })).toBe(200);
    expect(await status({ ...NAVIGATION, "sec-fetch-site": "cross-site" }, "POST")).toBe(401);
  });
});

describe("a WebSocket", () => {
  const open = (url: string, headers: Record<string, string> = {}) =>
    new Promise<WebSocket>((resolve, reject) => {
      const socket = new WebSocket(url, { headers });
      socket.once("open", () => resolve(socket)).once("error", reject);
    });
  const echo = (socket: WebSocket, text: string) =>
    new Promise<string>((resolve) => {
      socket.once("message", (data) => resolve(data.toString()));
      socket.send(text);
    });
  const closed = (socket: WebSocket) => new Promise<void>((resolve) => socket.once("close", () => resolve()));

  it("passes messages in both directions, and the container sees no token", async () => {
    const socket = await open(at(urls.socket, "/chat", { room: "1" }));
    expect(await echo(socket, "hello")).toBe("hello");
    const long = "x".repeat(60_000);
    expect(await echo(socket, long)).toBe(long);
    const { url, headers } = JSON.parse(await echo(socket, "who"));
    expect(url).toBe("/chat?room=1");
    expect(JSON.stringify(headers)).not.toContain(tokenIn(urls.web));
    expect(named(headers, "x-forwarded-for")).toEqual(["127.0.0.1"]);
    socket.close();
    await closed(socket);
  });

  it("needs the token or, from a page of the service itself, the cookie", async () => {
    const target = urls.socket.replace(/\?.*/, "");
    const cookie = await signIn(urls.web);
    await expect(open(target)).rejects.toThrow(/401/);
    await expect(open(target, { cookie, origin: new URL(urls.other).origin })).rejects.toThrow(/401/);
    const socket = await open(target, { cookie, origin: new URL(urls.web).origin });
    expect(await echo(socket, "a")).toBe("a");
    socket.terminate();
  });

  it("is refused by a service without enable_websockets, and by a container that refuses it", async () => {
    await expect(open(urls.other.replace("http", "ws"))).rejects.toThrow(/403/);
    const refused = await new Promise<string>((resolve) => {
      const socket = new WebSocket(at(urls.socket, "/refused"));
      socket.on("error", () => {});
      socket.on("unexpected-response", (_, response) => {
        let text = `${response.statusCode} ${response.headers["x-why"]} `;
        response.on("data", (chunk) => (text += chunk)).on("end", () => resolve(text));
      });
    });
    expect(refused).toBe("403 no no!!");
  });

  it("ends with its service and with a rotation", async () => {
    const service = await own.publish("web", { name: "ending", enable_websockets: true });
    const first = await open(service.websocket_url);
    expect(await echo(first, "a")).toBe("a");
    const [rotated] = await Promise.all([own.ok("POST", `/api/services/${service.service_id}/rotate`), closed(first)]);
    const second = await open(rotated.websocket_url);
    await Promise.all([own.ok("DELETE", `/api/services/${service.service_id}`), closed(second)]);
  });
});

describe("the daemon", () => {
  it("counts requests in its metrics and has no token in its log", async () => {
    const { body } = await daemon.call("GET", "/metrics");
    expect(body.match(/^hearth_services \d+$/m)?.[0]).toBe("hearth_services 3");
    expect(body).toMatch(/^hearth_service_responses_total\{status="2xx"\} [1-9]/m);
    expect(body).toMatch(/^hearth_service_refusals_total\{error_code="UNAUTHORIZED"\} [1-9]/m);
    await eventually("all requests have ended", async () =>
      /^hearth_service_requests_active 0$/m.test((await daemon.call("GET", "/metrics")).body),
    );
    for (const token of tokens) expect(daemon.output).not.toContain(token);
    expect(daemon.output).not.toContain("hearth_service=");
  });
});
