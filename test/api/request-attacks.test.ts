/**
 * Requests that a careful HTTP client never sends, byte for byte: paths with dot segments at every listener, repeated
 * credentials and parameters, names that mislead JavaScript, marks before JSON, other origins.
 */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { socketPathOf } from "../support/container-socket.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { plant } from "../support/planted.ts";
import { SnapshotUser } from "../support/snapshots.ts";
import { TerminalTab } from "../support/socket.ts";

const daemon = new Daemon();
const user = new SnapshotUser(daemon);
const ORIGIN = "https://app.example.com";
const ids = { box: "", other: "" };

// biome-ignore lint/suspicious/noExplicitAny: answers as they came.
type Json = any;

interface Raw {
  readonly status: number;
  readonly headers: string;
  readonly body: Json;
}

/** Sends one request as it is, with the key. `lines`: more header lines. */
function raw(method: string, target: string, lines: readonly string[] = [], body = ""): Promise<Raw> {
  const { host } = new URL(daemon.url);
  const head = [`${method} ${target} HTTP/1.1`, `Host: ${host}`, "Connection: close", ...lines];
  if (body !== "") head.push(`Content-Length: ${Buffer.byteLength(body)}`);
  return sent(Number(new URL(daemon.url).port), `${head.join("\r\n")}\r\n\r\n${body}`);
}
const keyed = (method: string, target: string, lines: readonly string[] = [], body = "") =>
  raw(method, target, [`X-Api-Key: ${KEY}`, ...lines], body);

/** Sends bytes to a port or a unix socket. Resolves when the other end has closed. */
function sent(where: number | string, bytes: string): Promise<Raw> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = typeof where === "number" ? connect(where, "127.0.0.1") : connect(where);
    socket.setEncoding("utf8");
    socket.on("connect", () => socket.write(bytes));
    socket.on("data", (chunk: string) => {
      text += chunk;
    });
    socket.on("error", reject);
    socket.on("close", () => {
      const [headers = "", body = ""] = text.split(/\r\n\r\n(.*)/s);
      const json = /^[^{]*(\{.*\})[^}]*$/s.exec(body)?.[1];
      resolve({ status: Number(headers.split(" ")[1]), headers, body: json === undefined ? body : JSON.parse(json) });
    });
  });
}

const codeOf = ({ status, body }: Pick<Raw, "status" | "body">) => [status, body.error_code];
const BAD = [400, "INVALID_ARGUMENT"];

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_CORS_ORIGINS: `${ORIGIN}, http://localhost:5173` });
  ids.box = (await user.ok("POST", "/api/containers", { name: "box" })).container_id;
  ids.other = (await user.ok("POST", "/api/containers", { name: "other" })).container_id;
  for (const name of ["a", "b"]) {
    await user.ok("POST", "/api/volumes", { name });
    await user.ok("POST", `/api/volumes/${name}/files`, { path: "kept/x", content: "eA==" });
  }
});
afterAll(() => daemon.dispose());

/** Spellings of a path that leads from the files of volume a to volume b. */
const UP = [
  "..",
  "%2E%2E",
  "%2e%2e",
  ".%2e",
  "%2E.",
  "..%2F..",
  "%2e%2e%2f%2E%2E",
  "x/../..",
  "..%5C..",
  "./..",
  "%2e",
];

describe("a path with dot segments", () => {
  it("is refused by the API in all spellings, with and without a whole URL, and deletes nothing", async () => {
    const { host } = new URL(daemon.url);
    for (const up of UP) {
      const path = `/api/volumes/a/files/${up}/${up}/b`;
      for (const target of [path, `http://${host}${path}`, `${path}?x=1`]) {
        const answer = await keyed("DELETE", target);
        expect([target, ...codeOf(answer)]).toEqual([target, ...BAD]);
        expect(answer.body.error).toContain("path contains a dot segment: '/api/volumes/a/files/");
      }
    }
    for (const tail of ["..", "%2e%2E", "kept/..", "."]) {
      expect(codeOf(await keyed("DELETE", `/api/volumes/a/files/${tail}`))).toEqual(BAD);
    }
    for (const name of ["a", "b"]) {
      expect((await user.ok("GET", `/api/volumes/${name}/ls?path=kept`)).files).toMatchObject([{ name: "x" }]);
    }
  });

  it("is refused before the credential, the method and the route are looked at", async () => {
    expect(codeOf(await raw("GET", "/api/volumes/../volumes"))).toEqual(BAD);
    expect(codeOf(await raw("PUT", "/health/%2e%2e/health"))).toEqual(BAD);
    expect(codeOf(await raw("GET", "/%2e%2e/nowhere"))).toEqual(BAD);
    expect(codeOf(await raw("GET", "/page/../api/containers"))).toEqual(BAD);
  });

  it("is told from names with dots, from what is encoded twice, and from a query", async () => {
    for (const path of ["...", "..a", "a..", "..;", "%252e%252e", "%2525", ".hidden"]) {
      const answer = await keyed("DELETE", `/api/volumes/a/files/kept/${path}`);
      expect([path, ...codeOf(answer)]).toEqual([path, 404, "NOT_FOUND"]);
    }
    await user.ok("POST", "/api/volumes/a/files", { path: "%2e%2e", content: "eA==" });
    expect((await keyed("DELETE", "/api/volumes/a/files/%252e%252e")).status).toBe(200);
    expect((await keyed("GET", "/api/volumes/a/ls?path=/kept/../kept")).status).not.toBe(404);
  });

  it("is refused with a backslash and with a fragment, and a doubled slash leads nowhere else", async () => {
    for (const path of ["..\\..\\b", "x\\y", "kept\\..", "kept/x#/../.."]) {
      expect([path, ...codeOf(await keyed("DELETE", `/api/volumes/a/files/${path}`))]).toEqual([path, ...BAD]);
    }
    expect((await keyed("DELETE", "/api/volumes/a//b")).status).toBe(404);
    expect((await keyed("DELETE", "//api/volumes/b")).status).toBe(404);
    expect((await user.ok("GET", "/api/volumes")).volumes).toHaveLength(2);
  });

  it("is refused when it asks for a WebSocket", async () => {
    const upgrade = [
      ...["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"],
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    for (const target of [
      `/ws/terminal/x/../attach?container_id=${ids.box}`,
      `/ws/%2e%2e/ws/terminal/attach?container_id=${ids.box}`,
      `/gui/${ids.box}/%2e%2e/websockify`,
      `/gui/../ws/terminal/attach?container_id=${ids.box}`,
    ]) {
      expect([target, ...codeOf(await keyed("GET", target, upgrade))]).toEqual([target, ...BAD]);
    }
    expect((await user.ok("GET", "/api/terminal/sessions")).sessions).toEqual([]);
  });

  it("is refused on the socket of a container", async () => {
    const path = socketPathOf(daemon, ids.box);
    for (const target of [
      "/v1/../v1/self",
      "/v1/%2e%2e/v1/self",
      "/v1/topics/%2E%2E",
      "/v1/state/..%2fx",
      "/v1\\self",
    ]) {
      const answer = await sent(path, `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
      expect([target, ...codeOf(answer)]).toEqual([target, ...BAD]);
    }
  });

  it("is refused by the API that handlers of functions reach", async () => {
    const script = `host=\${HEARTH_URL#http://}; exec 3<>/dev/tcp/\${host%:*}/\${host##*:}
printf 'DELETE /api/volumes/a/files/%%2E%%2E/%%2E%%2E/b HTTP/1.1\\r\\nHost: x\\r\\nX-Api-Key: %s\\r\\nConnection: close\\r\\n\\r\\n' "$HEARTH_KEY" >&3
cat <&3`;
    await daemon.deploy({ name: "raw", handler: `bash -c '${script.replaceAll("'", `'\\''`)}'`, api_access: true });
    const { stdout } = await daemon.invoke("raw");
    expect(stdout).toMatch(/^HTTP\/1.1 400 [\s\S]*path contains a dot segment/);
    expect((await user.ok("GET", "/api/volumes/b")).name).toBe("b");
  });
});

describe("a request with more than it may have", () => {
  it("is refused with two credentials of the same kind, also if they are equal", async () => {
    const [key, bearer] = [`X-Api-Key: ${KEY}`, `Authorization: Bearer ${KEY}`];
    const other = "Authorization: Bearer other";
    for (const lines of [
      [key, key],
      [bearer, bearer],
      [bearer, other],
      [other, bearer],
      [key, "x-API-key: other"],
      [key, bearer],
    ]) {
      expect([lines, ...codeOf(await raw("GET", "/api/volumes", lines))]).toEqual([lines, 400, "TWO_CREDENTIALS"]);
    }
    expect(codeOf(await raw("GET", `/api/events?token=${KEY}&token=${KEY}`))).toEqual([400, "TWO_CREDENTIALS"]);
    expect((await raw("GET", "/api/volumes", [bearer])).status).toBe(200);
  });

  it("is refused with two tenants or two idempotency keys, and makes nothing", async () => {
    expect(codeOf(await keyed("GET", "/api/snapshots", ["X-Tenant-Id: default", "X-Tenant-Id: default"]))).toEqual(BAD);
    const lines = ["Idempotency-Key: one", "Idempotency-Key: two"];
    expect(codeOf(await keyed("POST", "/api/volumes", lines, '{"name":"twice"}'))).toEqual(BAD);
    expect((await user.call("GET", "/api/volumes/twice")).status).toBe(404);
  });

  it("is refused with a repeated query parameter where one is expected, by its name", async () => {
    for (const [path, name] of [
      ["/api/containers?state=running&state=exited", "state"],
      ["/api/containers?limit=1&limit=2&limit=3", "limit"],
      [`/api/icc/messages?container_id=${ids.box}&container_id=${ids.other}`, "container_id"],
      ["/api/volumes/a/ls?path=/&path=/kept", "path"],
      [`/api/containers/box/logs?follow=true&follow=true`, "follow"],
    ] as const) {
      const { status, body } = await user.call("GET", path);
      expect([path, status, body.error]).toEqual([
        ...[path, 400, expect.stringMatching(new RegExp(`^query parameter ${name} is repeated: [23] values`))],
      ]);
    }
    expect((await user.call("GET", "/api/snapshots?label=a=1&label=b=2")).status).toBe(200);
  });
});

describe("names that JavaScript treats specially", () => {
  const names = ["constructor", "prototype", "toString", "hasOwnProperty"];

  it("are refused as __proto__ wherever a map has names, and kept otherwise", async () => {
    const proto = '{"__proto__":"x"}';
    for (const [path, body] of [
      ["/api/containers", `{"name":"p1","labels":${proto}}`],
      ["/api/containers", `{"name":"p1","environment":${proto}}`],
      ["/api/containers/batch", `{"items":[{"name":"p1","labels":${proto}}]}`],
      ["/api/volumes", `{"name":"p1","labels":${proto}}`],
      ["/api/functions", `{"name":"p1","handler":"cat","environment":${proto}}`],
      ["/api/functions/invoke/raw", `{"environment":${proto}}`],
      [`/api/containers/${ids.box}/exec`, `{"command":["true"],"environment":${proto}}`],
      [`/api/containers/${ids.box}/snapshot`, `{"labels":${proto}}`],
      ["/api/oci/images/build", `{"context_id":"x","image_reference":"localhost/x:1","build_args":${proto}}`],
    ] as const) {
      const { status, body: told } = await user.call("POST", path, body);
      expect([path, status, told.error]).toEqual([path, 400, expect.stringContaining("invalid name: '__proto__'")]);
    }
    for (const method of ["PATCH", "PUT"]) {
      const answer = await user.call(method, `/api/containers/${ids.box}/env`, `{"environment":${proto}}`);
      expect(codeOf(answer)).toEqual(BAD);
    }
    const labels = Object.fromEntries(names.map((name) => [name, "x"]));
    const { labels: kept } = await user.ok("POST", "/api/volumes", { name: "named", labels });
    expect(kept).toEqual(labels);
    await user.ok("PUT", `/api/containers/${ids.other}/env`, { environment: labels });
    expect((await user.ok("GET", `/api/containers/${ids.other}/env`)).environment).toEqual(labels);
  });

  it("are unknown fields as __proto__ of a body, and are not looked up as other fields", async () => {
    for (const name of ["__proto__", ...names]) {
      const { status, body } = await user.call("POST", "/api/volumes", `{"name":"p2","${name}":{"driver":"nfs"}}`);
      expect([name, status, body.error]).toEqual([name, 422, expect.stringMatching(/^unknown field '/)]);
    }
    expect((await user.call("GET", "/api/volumes?__proto__=1&constructor=2&prototype=3")).status).toBe(200);
  });

  it("reach functions, states and messages whole", async () => {
    const payload = '{"__proto__":{"a":1},"constructor":2}';
    const { stdout } = await user
      .ok("POST", "/api/functions", { name: "echo", handler: "cat" })
      .then(async ({ id }) => {
        await user.ok("POST", `/api/functions/${id}/deploy`);
        return user.ok("POST", `/api/functions/${id}/invoke`, `{"payload":${payload}}`);
      });
    expect(stdout).toBe(payload);
    await user.ok("PUT", "/api/icc/state/proto", `{"value":${payload}}`);
    expect(JSON.stringify((await user.ok("GET", "/api/icc/state/proto")).value)).toBe(payload);
    await user.ok("POST", "/api/icc/messages", `{"to":"queue:proto","type":"t","payload":${payload}}`);
    const environment = `{"to":"queue:proto","type":"env_patch","payload":{"set":{"__proto__":"x"}}}`;
    await user.ok("POST", "/api/icc/messages", environment);
    const { messages } = await user.ok("GET", "/api/icc/inbox/queue:proto?include_message=true");
    expect(JSON.stringify(messages[0].message.payload)).toBe(payload);
    expect(JSON.stringify(messages[1].message.payload)).toContain('"set":{"__proto__":"x"}');
  });
});

describe("a byte order mark", () => {
  it("before a JSON body is ignored, and is nothing but a mark", async () => {
    expect((await user.call("POST", "/api/volumes", '\ufeff{"name":"marked"}')).status).toBe(201);
    const content = '\ufeff{"path":"m","content":"eA=="}';
    expect((await user.call("POST", "/api/volumes/marked/files", content)).status).toBe(200);
    const twice = await user.call("POST", "/api/volumes", '\ufeff\ufeff{"name":"marked2"}');
    expect(codeOf(twice)).toEqual([400, "INVALID_JSON"]);
    const inside = `POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: `;
    const body = '\ufeff{"to":"other","type":"marked"}';
    const answer = await sent(socketPathOf(daemon, ids.box), `${inside}${Buffer.byteLength(body)}\r\n\r\n${body}`);
    expect(answer.status).toBe(200);
  });
});

describe("a name of a container", () => {
  it("works in the query of every route with container_id", async () => {
    await user.ok("POST", "/api/containers/box/snapshot?execution=sync", {});
    for (const [path, field] of [
      ["/api/snapshots?container_id=", "snapshots"],
      ["/api/icc/messages?container_id=", "messages"],
      ["/api/icc/streams?container_id=", "streams"],
      ["/api/operations?container_id=", "operations"],
    ] as const) {
      const [byName, byId] = [await user.ok("GET", `${path}box`), await user.ok("GET", `${path}${ids.box}`)];
      expect([path, byName]).toEqual([path, byId]);
      expect([path, byId[field].length >= (field === "messages" ? 0 : 1)]).toEqual([path, true]);
    }
  });

  it("filters the stream of events", async () => {
    const reading = new AbortController();
    const response = await fetch(`${daemon.url}/api/events?container_id=box&last_event_id=0`, {
      headers: { "x-api-key": KEY },
      signal: reading.signal,
    });
    let text = "";
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    await eventually("an event of the container", async () => {
      text += (await reader?.read())?.value ?? "";
      return text.includes('"event_type":"started"');
    });
    reading.abort();
    expect(text).toContain(ids.box);
    expect(text).not.toContain(ids.other);
  });

  it("has not the form of an id or of another address, in whatever way it is given", async () => {
    const form = `ctr_${"0".repeat(16)}`;
    const wrong = [form, `fn_${"a1".repeat(8)}`, "queue:x", "topic:news", "state:x", "binding:x"];
    for (const name of wrong) {
      for (const [method, path, body] of [
        ["POST", "/api/containers", { name }],
        ["POST", "/api/containers?execution=async", { name }],
        ["POST", "/api/containers/batch", { items: [{ name: "fine" }, { name }] }],
        ["POST", "/api/containers/box/rename", { new_name: name }],
        ["POST", "/api/containers/box/rename", { name }],
        ["POST", "/api/dns/entries/box/rename", { new_name: name }],
        ["POST", "/api/containers/box/fork", { name }],
      ] as const) {
        expect([name, path, ...codeOf(await user.call(method, path, body))]).toEqual([name, path, ...BAD]);
      }
    }
    const patterned = { name: `ctr_${"0".repeat(15)}{n}`, count: 2 };
    expect(codeOf(await user.call("POST", "/api/containers/box/fork", patterned))).toEqual(BAD);
    const vol = { name: `vol_${"0".repeat(16)}` };
    for (const [path, body] of [
      ["/api/volumes", vol],
      ["/api/volumes/a/rename", { new_name: vol.name }],
      ["/api/functions", { name: `fn_${"0".repeat(16)}`, handler: "cat" }],
      ["/api/containers/box/snapshot", { name: `snp_${"0".repeat(16)}` }],
      ["/api/containers/box/services", { name: `svc_${"0".repeat(16)}`, target_port: 80 }],
      ["/api/tenants", { name: `ten_${"0".repeat(16)}` }],
      ["/api/api-keys", { name: `key_${"0".repeat(12)}` }],
    ] as const) {
      expect([path, ...codeOf(await user.call("POST", path, body))]).toEqual([path, ...BAD]);
    }
    for (const name of ["ctr_short", "my_0123456789abcdefg", "queue"]) {
      const { container_id } = await user.ok("POST", "/api/containers", { name });
      await user.ok("DELETE", `/api/containers/${container_id}`);
    }
  });
});

describe("a name of the form of an id from an earlier version", () => {
  it("stays usable by a container, a volume and a function, whose whole record may be sent back", async () => {
    const digits = "1".repeat(16);
    const [ctr, vol, fn] = [`ctr_${digits}`, `vol_${digits}`, `fn_${digits}`];
    await user.ok("POST", "/api/volumes", { name: "old" });
    const { container_id } = await user.ok("POST", "/api/containers", { name: "old", volumes: ["old:/old"] });
    const { id } = await user.ok("POST", "/api/functions", { name: "old", handler: "cat" });
    plant(
      daemon,
      { sql: "UPDATE containers SET name = ? WHERE name = 'old'", args: [ctr] },
      { sql: "UPDATE volumes SET name = ? WHERE name = 'old'", args: [vol] },
      { sql: "UPDATE functions SET name = ? WHERE name = 'old'", args: [fn] },
    );
    expect(await user.ok("GET", `/api/containers/${ctr}`)).toMatchObject({ container_id, name: ctr });
    expect(await user.ok("GET", `/api/containers/by-name/${ctr}`)).toMatchObject({ container_id, found: true });
    await user.ok("POST", `/api/volumes/${vol}/files`, { path: "x", content: "eA==" });
    const read = { command: ["cat", "/old/x"], targets: { container_ids: [ctr] } };
    expect((await user.ok("POST", "/api/icc/exec/broadcast", read)).results).toMatchObject([{ stdout: "x" }]);
    const named = { volume_mode: "include_named", volumes: [vol] };
    expect(await user.take(ctr, named)).toMatchObject({ volumes: [{ name: vol }], source_container_name: ctr });
    // A copy without a name of its own gets a new one.
    await user.fork(ctr);
    await user.ok("POST", "/api/icc/messages", { to: ctr, type: "t" });
    expect((await user.ok("GET", `/api/icc/inbox/${ctr}`)).messages).toHaveLength(1);
    const changed = await user.ok("PUT", `/api/functions/${id}`, { name: fn, handler: "cat; echo" });
    expect(changed).toMatchObject({ name: fn, handler: "cat; echo" });
    expect(codeOf(await user.call("PUT", `/api/functions/${id}`, { name: `${fn}1` }))).toEqual(BAD);
    await user.ok("POST", `/api/functions/${id}/deploy`);
    expect(await user.ok("POST", `/api/functions/invoke/${fn}`, {})).toMatchObject({ status: "success" });
    await user.ok("POST", `/api/containers/${ctr}/rename`, { new_name: "renamed" });
    await user.ok("DELETE", `/api/containers/renamed`);
    await user.ok("POST", `/api/volumes/${vol}/rename`, { new_name: "renamed" });
  });
});

describe("signals", () => {
  it("are names with or without SIG, or numbers", async () => {
    for (const signal of ["9", "SIGKILL", "kill"]) {
      const path = `/api/containers/${ids.box}/processes`;
      const { stdout } = await user.ok("POST", `/api/containers/${ids.box}/exec`, {
        command: ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"],
      });
      expect((await user.call("DELETE", `${path}/${stdout.trim()}?signal=${signal}`)).status).toBe(200);
      await eventually("the process has ended", async () => {
        const { processes } = await user.ok("GET", path);
        return !processes.some(({ pid, state }: Json) => String(pid) === stdout.trim() && state !== "Z");
      });
    }
    for (const signal of ["0", "65", "-9", "SIGNONE", "9.0", "1e1"]) {
      const answer = await user.call("DELETE", `/api/containers/${ids.box}/processes/12?signal=${signal}`);
      expect([signal, ...codeOf(answer)]).toEqual([signal, ...BAD]);
    }
    for (const signal of [9, "15"]) {
      const made = await user.ok("POST", "/api/containers", { name: `stop-${signal}`, stop_signal: signal });
      await user.ok("DELETE", `/api/containers/${made.container_id}`);
    }
  });

  it("of a kill are SIGKILL alone, and anything else kills nothing", async () => {
    for (const signal of ["TERM", "15", "x"]) {
      expect(codeOf(await user.call("POST", `/api/containers/other/kill?signal=${signal}`))).toEqual(BAD);
    }
    expect((await user.ok("GET", "/api/containers/other")).state).toBe("running");
    expect((await user.call("POST", "/api/containers/other/kill?signal=9")).body.state).toBe("exited");
    await user.ok("POST", "/api/containers/other/start?execution=sync");
  });

  it("of a terminal may be numbers too", async () => {
    const url = `${daemon.url}/ws/terminal/attach?container_id=box`;
    const tab = await TerminalTab.open(url, KEY);
    await tab.frame("ready");
    tab.say({ type: "signal", signal: 9 });
    expect((await tab.frame("error")).message).toContain("SIGHUP, SIGINT or SIGTERM");
    tab.type("trap 'echo got-$((40+2))' INT; echo set-$((1+1))\n");
    await tab.shows(/set-2/);
    tab.say({ type: "signal", signal: 2 });
    await tab.shows(/got-42/);
    tab.say({ type: "signal", signal: "1" });
    expect(await tab.frame("exit")).toMatchObject({ type: "exit" });
  });
});

describe("a refusal names its cause", () => {
  it("of a pid that is none, and of a listing of a file or below one", async () => {
    for (const pid of ["abc", "0", "-1", "99999999999"]) {
      const { status, body } = await user.call("DELETE", `/api/containers/box/processes/${pid}`);
      expect([status, body.error]).toEqual([400, expect.stringContaining(`pid invalid: '${pid}'`)]);
    }
    await user.ok("POST", `/api/containers/box/exec`, { command: ["sh", "-c", "echo x > /root/f; ln -s f /root/l"] });
    for (const base of ["/api/volumes/a/ls?path=kept/x", "/api/containers/box/ls?path=/root/f"]) {
      const [file, below] = [await user.call("GET", base), await user.call("GET", `${base}/y`)];
      expect([file.status, file.body.error]).toEqual([400, expect.stringMatching(/[xf]: is not a directory/)]);
      expect([below.status, below.body.error]).toEqual([400, expect.stringMatching(/y: a parent is not a directory/)]);
    }
  });
});

describe("requests of web pages", () => {
  const preflight = (path: string, origin: string) =>
    raw("OPTIONS", path, [`Origin: ${origin}`, "Access-Control-Request-Method: POST"]);

  it("are let in from the listed origins, with answers that only they may read", async () => {
    for (const origin of [ORIGIN, "http://localhost:5173"]) {
      const asked = await preflight("/api/containers", origin);
      expect(asked.status).toBe(204);
      expect(asked.headers).toMatch(new RegExp(`access-control-allow-origin: ${origin}\r`, "i"));
      expect(asked.headers).toMatch(/vary: origin\r/i);
      expect(asked.headers).toMatch(/access-control-allow-headers: [^\r]*X-Api-Key/i);
      for (const lines of [[`X-Api-Key: ${KEY}`], []]) {
        const { status, headers } = await raw("GET", "/api/containers", [`Origin: ${origin}`, ...lines]);
        expect(status).toBe(lines.length === 1 ? 200 : 401);
        expect(headers).toMatch(new RegExp(`access-control-allow-origin: ${origin}\r`, "i"));
        expect(headers).not.toMatch(/access-control-allow-credentials/i);
      }
    }
  });

  it("are not let in from other origins, nor to the console", async () => {
    const others = [
      "https://evil.example",
      "null",
      `${ORIGIN}.evil.example`,
      ORIGIN.toUpperCase(),
      "http://app.example.com",
      "*",
    ];
    for (const origin of others) {
      const asked = await preflight("/api/containers", origin);
      expect(asked.status).toBe(405);
      expect(asked.body.hint).toContain("HEARTH_CORS_ORIGINS");
      const got = await keyed("GET", "/api/containers", [`Origin: ${origin}`]);
      for (const { headers } of [asked, got]) {
        expect(headers).not.toMatch(/access-control-allow/i);
        expect(headers).toMatch(/vary: origin\r/i);
      }
    }
    for (const path of ["/", "/page/style.css", `/gui/${ids.box}/`]) {
      const { headers } = await raw("GET", path, [`Origin: ${ORIGIN}`]);
      expect([path, /access-control/i.test(headers)]).toEqual([path, false]);
    }
  });
});
