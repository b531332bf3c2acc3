/** Answers that are long lists: the same JSON as of short ones, written in turns of the tenant, within the memory of requests. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { Answer, ListAnswer, ListPieces } from "../../src/base/answer.ts";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { type TransferTurn, UNBOUNDED_TURN } from "../../src/base/transfer-turns.ts";
import { jsonPieces, longListOf, streamedList } from "../../src/http/long-lists.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { route } from "../../src/http/route.ts";
import { eventually } from "../support/daemon.ts";
import { serving } from "./test-server.ts";

const nothing = () => {};
const items = Array.from({ length: 3 * LIMITS.turn_items + 7 }, (_, i) => ({
  name: `item "${i}" é\u2028`,
  i,
  none: undefined,
}));

async function* inPieces(...pieces: readonly (readonly unknown[])[]) {
  yield* pieces;
}

async function written(body: Readonly<Record<string, unknown>>): Promise<string> {
  return Buffer.concat(await jsonPieces(body, { turn: UNBOUNDED_TURN, hold: nothing })).toString();
}

describe("the JSON of a long list", () => {
  it.each([
    { list: items },
    { before: 1, list: items, after: { deep: [1, null] } },
    { left_out: undefined, list: items, 'a "key"': null, left_out_too: undefined },
    { list: items.map((_, i) => (i % 2 === 0 ? undefined : i)) },
    {},
    { left_out: undefined },
  ])("is that of JSON.stringify %#", async (body) => {
    expect(await written(body)).toBe(JSON.stringify(body));
  });

  it("is the same of pieces, empty ones among them, and of none", async () => {
    expect(await written({ id: "a", list: new ListPieces(inPieces([], [1, 2], [], [3])) })).toBe(
      '{"id":"a","list":[1,2,3]}',
    );
    expect(await written({ list: new ListPieces(inPieces()) })).toBe('{"list":[]}');
  });

  it("comes in small pieces, however large an item is, each of which passes in the tenant's turn", async () => {
    const passed: number[] = [];
    const turn: TransferTurn = {
      ...UNBOUNDED_TURN,
      take: () => Promise.reject(new Error("items are held while this waits")),
      pass: async (bytes) => {
        passed.push(bytes);
      },
    };
    const [item_bytes, piece_bytes_max] = [4_000, 16 * 1024 + 4_100];
    const body = { list: items.map((item) => ({ ...item, long: "x".repeat(item_bytes) })) };
    const pieces = await jsonPieces(body, { turn, hold: nothing });
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(piece_bytes_max);
    expect(passed).toEqual(pieces.map(({ length }) => length * LIMITS.turn_json_weight));
    expect(await jsonPieces({ list: new ListPieces(inPieces([1])) }, { turn, hold: nothing })).toHaveLength(1);
  });

  it("waits for its part of a second when it is written, before it is sent", async () => {
    const steps: string[] = [];
    const turn: TransferTurn = {
      ...UNBOUNDED_TURN,
      take: async (bytes) => {
        steps.push(`take ${bytes}`);
      },
      pass: async () => {
        steps.push("pass");
      },
    };
    await streamedList(new ListAnswer({ list: new ListPieces(inPieces([1], [2])) }), { turn, hold: nothing });
    expect(steps).toEqual(["pass", "take 0"]);
  });
});

it("an answer is a long list if a field of its body is one", () => {
  expect(longListOf({ list: items }, 201)).toMatchObject({ status: 201, body: { list: items } });
  expect(longListOf(new Answer(206, { list: items }, { a: "b" }), 200)).toMatchObject({
    status: 206,
    headers: { a: "b" },
  });
  expect(longListOf(new ListAnswer({ list: new ListPieces(inPieces()) }), 200)).toBeInstanceOf(ListAnswer);
  for (const other of [
    undefined,
    null,
    "text",
    items,
    { list: items.slice(0, LIMITS.turn_items) },
    { deep: { items } },
  ]) {
    expect(longListOf(other, 200)).toBeNull();
  }
});

describe("a listener", () => {
  const serve = serving();
  const listed = (handler: () => unknown) =>
    route({
      method: "GET",
      path: "/listed",
      auth: "tenant",
      operation: "tested",
      summary: "Lists.",
      response: z.object({ list: z.array(z.unknown()) }),
      handler: async () => handler() as { list: unknown[] },
    });

  it("tells the length of a long list, sends no body for HEAD, and holds nothing of either afterwards", async () => {
    const budget = new MemoryBudget();
    const { call } = await serve([listed(() => ({ list: items }))], {}, { budget });
    const text = JSON.stringify({ list: items });
    const length = String(Buffer.byteLength(text));
    for (const method of ["HEAD", "GET"]) {
      const answer = await call(method, "/listed");
      expect([answer.status, answer.headers.get("content-length")]).toEqual([200, length]);
      expect(answer.headers.get("content-type")).toBe("application/json");
      expect(await answer.text()).toBe(method === "HEAD" ? "" : text);
      await eventually("nothing is held", () => budget.bytes === 0);
    }
  });

  it("refuses a list that does not fit into the memory of requests while it is written, and ends its source", async () => {
    const seen = { count: 0, isEnded: false };
    async function* endless() {
      try {
        for (;;) {
          seen.count++;
          yield ["x".repeat(1024 * 1024)];
        }
      } finally {
        seen.isEnded = true;
      }
    }
    const budget = new MemoryBudget(16 * 1024 * 1024);
    const { call } = await serve([listed(() => new ListAnswer({ list: new ListPieces(endless()) }))], {}, { budget });
    const answer = await call("GET", "/listed");
    expect([answer.status, await answer.json()]).toMatchObject([503, { error_code: "CAPACITY_FULL" }]);
    expect(seen).toEqual({ count: 12, isEnded: true });
    expect(budget.bytes).toBe(0);
  });

  it("answers with the error of a source that fails", async () => {
    const failing = async function* () {
      yield [1];
      throw new AppError("NOT_FOUND", "the rest is gone");
    };
    const { call } = await serve([listed(() => new ListAnswer({ list: new ListPieces(failing()) }))]);
    const answer = await call("GET", "/listed");
    expect([answer.status, await answer.json()]).toMatchObject([404, { error_code: "NOT_FOUND" }]);
  });
});
