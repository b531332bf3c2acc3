/** Operations through the real API: looked up, listed, cancelled. What makes them is tested with what makes them. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { Daemon, KEY } from "../support/daemon.ts";
import { plantOperation } from "../support/planted.ts";

const daemon = new Daemon();
beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(() => daemon.dispose());

describe("/api/operations", () => {
  it("answers an operation, lists it by what it is, and waits for none that has ended", async () => {
    const done = plantOperation(daemon, { tenant_id: "default" });
    const failed = plantOperation(daemon, { tenant_id: "default", status: "failed" });
    const { status, body } = await daemon.call("GET", `/api/operations/${done}?wait_seconds=60`);
    expect([status, body]).toMatchObject([
      200,
      {
        operation_id: done,
        status: "succeeded",
        operation_type: "container.start",
        result: { container_id: "ctr_planted" },
        status_url: `/api/operations/${done}`,
        error: null,
        warnings: [],
      },
    ]);
    const ids = async (query: string) =>
      (await daemon.call("GET", `/api/operations${query}`)).body.operations.map(
        ({ operation_id }: { operation_id: string }) => operation_id,
      );
    expect(await ids("")).toEqual([failed, done]);
    expect(await ids("?status=succeeded")).toEqual([done]);
    expect(await ids("?limit=1")).toEqual([failed]);
    expect(await ids("?container_id=ctr_planted&operation_type=container.start")).toEqual([failed, done]);
    expect(await ids("?target_resource_id=other")).toEqual([]);
  });

  it("refuses what is not there, what has ended, and what makes no sense", async () => {
    const done = plantOperation(daemon, { tenant_id: "default" });
    const refused = async (method: string, path: string) => {
      const { status, body } = await daemon.call(method, `/api/operations${path}`);
      return [status, body.error_code];
    };
    expect(await refused("GET", "/op_0000000000000000")).toEqual([404, "NOT_FOUND"]);
    expect(await refused("POST", "/op_0000000000000000/cancel")).toEqual([404, "NOT_FOUND"]);
    expect(await refused("POST", `/${done}/cancel`)).toEqual([409, "WRONG_STATE"]);
    expect(await refused("GET", `/${done}?wait_seconds=61`)).toEqual([400, "INVALID_ARGUMENT"]);
    expect(await refused("GET", "?status=canceled")).toEqual([400, "INVALID_ARGUMENT"]);
  });

  it("is 'hearth ops'", async () => {
    const commands = new Commands({ HEARTH_URL: daemon.url, HEARTH_KEY: KEY });
    try {
      const done = plantOperation(daemon, { tenant_id: "default", message: "all is well" });
      const failed = plantOperation(daemon, { tenant_id: "default", status: "failed", message: "it broke" });
      const hearth = (...args: string[]) => commands.run(["ops", ...args]);
      const list = await hearth("list", "--status", "failed", "--limit", "1");
      expect(list).toMatchObject({
        code: 0,
        out: expect.stringMatching(new RegExp(`^ID .*\n${failed} .*it broke\n$`)),
      });
      expect(await hearth("get", done)).toMatchObject({ code: 0, out: expect.stringMatching(/^status +succeeded$/m) });
      expect(await hearth("wait", done)).toEqual({
        code: 0,
        out: `container.start ${done} has succeeded: all is well\n`,
        err: "",
      });
      expect(await hearth("wait", failed)).toMatchObject({
        code: 1,
        out: `container.start ${failed} has failed: it broke\n`,
      });
      expect(await hearth("cancel", done)).toMatchObject({ code: 1, err: expect.stringContaining("[WRONG_STATE]") });
    } finally {
      commands.dispose();
    }
  });
});
