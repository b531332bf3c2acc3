/** The runtime `custom` in real instances: its examples, from attached code, without a way out. */
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { describeEngine } from "../../test/engine/contracts/booted-engine.ts";
import { standardClass } from "../../test/support/engine.ts";
import { bindHead, callHead, requestOf } from "../../test/support/resident-requests.ts";
import type { BindHead, CallHead } from "../envelope.ts";
import { CODE_INSIDE } from "../runtime.ts";
import { custom } from "./index.ts";

const EXAMPLES = {
  http: { folder: "example", id: "ca".repeat(32) },
  lambda: { folder: "example-lambda", id: "cb".repeat(32) },
};
const { serving } = custom;
const program = serving.kind === "resident" ? serving : null;

describeEngine("crun", ({ engine, config }) => {
  beforeAll(async () => {
    const launcher = execFileSync("pgrep", ["-f", `launcher ${config.run_dir}/`])
      .toString()
      .split("\n")[0];
    for (const { folder, id } of Object.values(EXAMPLES)) {
      const path = `/proc/${launcher}/root${await engine.storage.create("code", id, 16 * 1024 * 1024)}`;
      cpSync(join(import.meta.dirname, folder), path, { recursive: true });
      // No x bit: the #! line counts.
      if (folder === "example") chmodSync(join(path, "server.py"), 0o644);
    }
  });

  const serve = async (protocol: "http" | "lambda", handler: string, payload: string) => {
    const instance = await engine.instances.start(`custom-${protocol}`, standardClass(engine, { resident: program }));
    await engine.instances.attach(instance, { code: EXAMPLES[protocol].id, secrets: new Map(), egress: "off" });
    const environment = { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: "/tmp" };
    const bind = bindHead({ handler, protocol, working_directory: CODE_INSIDE, environment });
    const output: string[] = [];
    const ask = async (head: BindHead | CallHead, body = "") => {
      const limits = { timeout_ms: 20_000, result_bytes_max: LIMITS.result_bytes_max, log_bytes_max: 10_000 };
      const onLog = (_stream: string, chunk: Buffer) => void output.push(chunk.toString());
      const outcome = await instance.resident?.call({ payload: requestOf(head, body), ...limits }, { onLog });
      return { status: outcome?.status, result: outcome?.result.toString() };
    };
    expect(await ask(bind)).toEqual({ status: 0, result: "" });
    const answer = await ask(callHead(), payload);
    await engine.instances.remove(instance);
    return { ...answer, output: output.join("") };
  };

  describe("the runtime custom in an instance", () => {
    it("serves the example by HTTP", async () => {
      const answer = await serve("http", "server.py", '{"name": "Ada"}');
      expect(answer).toEqual({
        status: 0,
        result: '{"message": "Hello, Ada!"}',
        output: "greeting Ada in invocation inv_1\n",
      });
    });

    it("serves the bootstrap of the example", async () => {
      const answer = await serve("lambda", "function.handler", '{"name": "Ada"}');
      expect(answer).toEqual({ status: 0, result: '{"echo": {"name": "Ada"}}', output: 'got {"name": "Ada"}\n' });
    });
  });
});
