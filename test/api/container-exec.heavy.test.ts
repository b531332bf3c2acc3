/** Execs that take longer than a default deadline, through the real API. */
import { type IncomingMessage, request } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);

/** An exec whose headers and body are seen apart. */
class SlowExec {
  readonly headers: Promise<IncomingMessage>;
  /** All of the body. Rejects where the connection is cut. */
  readonly body: Promise<string>;
  readonly begun_ms = performance.now();

  constructor(id: string, command: readonly string[], timeout_ms: number) {
    const sent = request(`${daemon.url}/api/containers/${id}/exec`, { method: "POST", headers: { "x-api-key": KEY } });
    this.headers = new Promise((resolve, reject) => sent.once("response", resolve).once("error", reject));
    this.body = this.headers.then(async (response) => {
      const pieces: Buffer[] = [];
      for await (const piece of response) pieces.push(piece);
      return Buffer.concat(pieces).toString();
    });
    this.body.catch(() => {});
    sent.end(JSON.stringify({ command, timeout_ms }));
  }
}

/** Execs that take 15 s run beside the test of deadlines. */
const slow: { whole?: SlowExec; cut?: SlowExec } = {};

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  await containers.create({ name: "long" });
  await containers.create({ name: "doomed" });
  const line = "echo begun; while [ ! -e /go ]; do sleep 0.1; done; echo ended";
  slow.whole = new SlowExec("long", ["sh", "-c", line], 120_000);
  slow.cut = new SlowExec("doomed", ["sleep", "120"], 120_000);
});
afterAll(() => daemon.dispose());

describe("a long exec", () => {
  it("has its headers in time and its result when it ends", async () => {
    const { whole } = slow as { whole: SlowExec };
    const response = await whole.headers;
    const waited_ms = performance.now() - whole.begun_ms;
    expect(response.statusCode).toBe(200);
    expect(response.headers["content-type"]).toContain("application/json");
    expect(waited_ms).toBeGreaterThan(LIMITS.early_headers_ms - 1_000);
    // It runs on: nothing but headers came.
    expect((await containers.shell("long", "touch /go; echo went")).trim()).toBe("went");
    expect(JSON.parse(await whole.body)).toMatchObject({ exit_code: 0, stdout: "begun\nended\n", timed_out: false });
  });

  it("whose container loses its first process after the headers is cut, and answers nothing false", async () => {
    const { cut } = slow as { cut: SlowExec };
    expect((await cut.headers).statusCode).toBe(200);
    process.kill((await containers.get("doomed")).pid, "SIGKILL");
    await expect(cut.body).rejects.toThrow("aborted");
  });
});

it("a detached exec has no deadline unless it is given one", async () => {
  const { container_id } = await containers.create({ name: "box" });
  const begin = async (more: object) => {
    const body = { command: ["sleep", "300"], detach: true, ...more };
    return (await daemon.call("POST", `/api/containers/${container_id}/exec`, body)).body.job_id;
  };
  const job = async (id: string) => (await daemon.call("GET", `/api/containers/${container_id}/jobs/${id}`)).body;
  const free = await begin({});
  const bound = await begin({ timeout_ms: LIMITS.exec_timeout_ms_default });
  const deadline_ms = LIMITS.exec_timeout_ms_default + 30_000;
  await eventually("the deadline that was given", async () => (await job(bound)).timed_out, deadline_ms);
  // It began before the other one, so the default deadline would have ended it first.
  expect(await job(free)).toMatchObject({ status: "running", exit_code: null, timed_out: false });
});
