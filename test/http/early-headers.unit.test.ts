/** Headers of answers that take long leave in time; the body follows, and a late refusal cuts the connection. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Answer } from "../../src/base/answer.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { route } from "../../src/http/route.ts";
import { HandClock, settled } from "../pool/hand-clock.ts";
import { eventually } from "../support/daemon.ts";
import { rawClient, serving } from "./test-server.ts";

const REQUEST = "POST /slow HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nContent-Length: 2\r\n\r\n{}";

describe("an answer that takes long", () => {
  const serve = serving();

  async function started(sent = REQUEST, more: object = {}) {
    const clock = new HandClock();
    const answer = Promise.withResolvers<unknown>();
    const seen = { isCalled: false };
    const slow = route({
      method: "POST",
      path: "/slow",
      auth: "public",
      operation: "tested",
      summary: "Answers when it is told to.",
      body: z.object({}),
      early_status: () => 200,
      ...more,
      handler: () => {
        seen.isCalled = true;
        return answer.promise;
      },
    });
    const { server, told, faults } = await serve([slow], undefined, { clock });
    const client = await rawClient(server.port);
    client.socket.write(sent);
    await eventually("the handler works", () => seen.isCalled);
    const pass = async (ms: number) => {
      await clock.pass(ms);
      await settled();
    };
    return { clock, answer, client, told, faults, pass };
  }

  it("has its headers after 15 s, then spaces, then one JSON document", async () => {
    const { answer, client, told, pass } = await started();
    await pass(LIMITS.early_headers_ms - 1);
    expect(client.text()).toBe("");
    await pass(1);
    const head = await client.until(/\r\n\r\n/);
    expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(head).toMatch(/content-type: application\/json\r\n/i);
    expect(head).toMatch(/x-request-id: mine\r\n/i);
    await pass(2 * LIMITS.early_headers_ms);
    await client.until(/\r\n\r\n(1\r\n \r\n){2}$/);
    expect(told).toEqual([]);
    answer.resolve({ exit_code: 7 });
    const whole = await client.until(/\r\n0\r\n\r\n$/);
    const pieces = whole.slice(whole.indexOf("\r\n\r\n") + 4).split("\r\n");
    expect(JSON.parse(pieces.filter((_, n) => n % 2 === 1).join(""))).toEqual({ exit_code: 7 });
    expect(told).toMatchObject([{ status: 200, error_code: null, request_id: "mine" }]);
    client.socket.destroy();
  });

  it("keeps its status and its refusal when it comes in time, and leaves no timer", async () => {
    for (const come of [new AppError("NOT_RUNNING", "it is exited"), null]) {
      const { clock, answer, client, pass } = await started();
      await pass(LIMITS.early_headers_ms - 1);
      if (come === null) answer.resolve(new Answer(201, { made: true }));
      else answer.reject(come);
      expect(await client.until(/\}$/)).toMatch(come === null ? /^HTTP\/1\.1 201 / : /^HTTP\/1\.1 409 /);
      expect(clock.timer_count).toBe(0);
      client.socket.destroy();
    }
  });

  it.each([
    ["a refusal", new AppError("NOT_RESPONDING", "gone"), "NOT_RESPONDING"],
    ["a fault", new Error("broken"), "INTERNAL"],
    ["an answer with another status", new Answer(202, { success: true }), "INTERNAL"],
  ])("is cut after its headers by %s", async (_, come, error_code) => {
    const { answer, client, told, faults, pass } = await started();
    await pass(LIMITS.early_headers_ms);
    await client.until(/\r\n\r\n/);
    if (come instanceof Error) answer.reject(come);
    else answer.resolve(come);
    const text = await client.closed();
    expect(text.slice(text.indexOf("\r\n\r\n") + 4)).toBe("");
    expect(told).toMatchObject([{ error_code, request_id: "mine" }]);
    expect(faults.length).toBe(error_code === "INTERNAL" ? 1 : 0);
  });

  it.each([
    ["a refusal", new AppError("NOT_RESPONDING", "it sleeps"), { failed: "it sleeps" }, "NOT_RESPONDING"],
    ["a fault, whose text stays inside", new Error("broken"), { failed: "internal error" }, "INTERNAL"],
  ])("tells of %s behind its headers, on a route with a body for that", async (_, come, body, error_code) => {
    const late_refusal = ({ error }: { readonly error: string }) => ({ failed: error });
    const { answer, client, told, pass } = await started(REQUEST, { late_refusal });
    await pass(LIMITS.early_headers_ms);
    await client.until(/\r\n\r\n/);
    answer.reject(come);
    const whole = await client.until(/\r\n0\r\n\r\n$/);
    expect(whole).toContain(JSON.stringify(body));
    expect(told).toMatchObject([{ status: 200, error_code, request_id: "mine" }]);
    client.socket.destroy();
  });

  it("has the status of its refusal in time, on a route with a body for late ones", async () => {
    const { answer, client } = await started(REQUEST, { late_refusal: () => ({ failed: "late" }) });
    answer.reject(new AppError("NOT_RUNNING", "it is exited"));
    expect(await client.until(/\}$/)).toMatch(/^HTTP\/1\.1 409 /);
    client.socket.destroy();
  });
});
