/** What a listener tells of the requests that it answers. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { AppError } from "../../src/base/errors.ts";
import { route } from "../../src/http/route.ts";
import { rawClient, serving } from "./test-server.ts";

describe("the observer", () => {
  const serve = serving();
  const noting = route({
    method: "GET",
    path: "/api/noted/:how",
    auth: "tenant",
    operation: "tested",
    summary: "Notes, and fails where it is asked to.",
    params: z.object({ how: z.string() }),
    handler: (request) => {
      request.note({ function: "f", version: 1 });
      request.note({ version: 2 });
      if (request.params.how === "refused") throw new AppError("QUEUE_FULL", "full");
      if (request.params.how === "broken") throw new TypeError("oops");
      return request.trace;
    },
  });

  it("hears of each request once, by its pattern, with its status, caller, trace and notes", async () => {
    const { call, fetch, told } = await serve([noting]);
    const trace = await (await call("GET", "/api/noted/well?secret=1")).json();
    await call("GET", "/api/noted/refused");
    await call("GET", "/api/noted/broken");
    await fetch("/api/noted/well");
    await call("POST", "/api/noted/well");
    await call("GET", "/elsewhere");
    const route = "/api/noted/:how";
    expect(told.map(({ method, route, status, error_code }) => [method, route, status, error_code])).toEqual([
      ["GET", route, 200, null],
      ["GET", route, 429, "QUEUE_FULL"],
      ["GET", route, 500, "INTERNAL"],
      ["GET", route, 401, "UNAUTHORIZED"],
      ["POST", null, 405, "METHOD_NOT_ALLOWED"],
      ["GET", null, 404, "NOT_FOUND"],
    ]);
    expect(told[0]).toMatchObject({ trace, notes: { function: "f", version: 2 }, caller: { key_id: "bootstrap" } });
    expect(told[1]).toMatchObject({ notes: { function: "f", version: 2 }, caller: { key_id: "bootstrap" } });
    expect(told[3]).toMatchObject({ notes: {}, caller: null });
    expect(told.every(({ begun_ms, ended_ms }) => ended_ms >= begun_ms)).toBe(true);
    expect(new Set(told.map((one) => one.trace.trace_id)).size).toBe(told.length);
  });

  it("hears of what no route and no URL can be made of", async () => {
    const { server, told } = await serve([noting]);
    const client = await rawClient(server.port);
    client.socket.write("GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
    await client.until(/INVALID_ARGUMENT/);
    expect(told).toMatchObject([{ method: "-", route: null, status: 400, error_code: "INVALID_ARGUMENT" }]);
  });
});
