/** `hearth dev` against a real daemon: saves, keys, calls of others, and a daemon that goes away. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTree } from "../support/code.ts";
import { bare, operatorOf, type Running } from "../support/command.ts";
import { Daemon, eventually, freePort } from "../support/daemon.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, out, answer } = operator;

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "2" });
});
afterAll(async () => {
  operator.dispose();
  await daemon.dispose();
});

const file = (...path: string[]) => join(shell().home, ...path);
const toml = (name: string) => `function = "${name}"\nruntime = "nodejs"\nhandler = "index.mjs#handler"\n`;
const returns = (value: string) => `export const handler = (payload) => (${value});\n`;

const project = (name: string) =>
  writeTree(file(name), {
    "hearth.toml": toml(name),
    "index.mjs": returns("[payload, 1]"),
    "payload.json": '{ "a": 1 }\n',
  });

/** Runs until `work` is done, whatever becomes of it. */
async function withDev(name: string, work: (running: Running) => Promise<void>): Promise<void> {
  const running = shell().start("hearth", ["dev", name]);
  try {
    await running.shows(/version 1/);
    await work(running);
  } finally {
    running.child.kill();
    await running.ended;
  }
}

describe("hearth dev", () => {
  it("deploys on every save, calls the function on Enter, and ends on q", async () => {
    project("saves");
    await withDev("saves", async (running) => {
      expect(running.out).toMatch(/^\S+ \S+ {2}saves created, version 1, [\d.]+ m?s\n$/);
      running.child.stdin.write("\n");
      await running.shows(/success {2}v1 .*\n {2}= \[\{"a":1\},1\]\n/);
      writeFileSync(file("saves", "index.mjs"), returns("[payload, 2]"));
      await running.shows(/saves updated, version 2/);
      // As editors do: a new file takes the old one's name.
      writeFileSync(file("saves", ".index.mjs.swp"), "ignored");
      writeFileSync(file("saves", "index.mjs~"), returns("[payload, 3]"));
      renameSync(file("saves", "index.mjs~"), file("saves", "index.mjs"));
      await running.shows(/saves updated, version 3/);
      // Files of a folder that is new, and what .hearthignore then leaves out.
      mkdirSync(file("saves", "lib/deep"), { recursive: true });
      writeFileSync(file("saves", "lib/deep/x.mjs"), "export const x = 4;\n");
      writeFileSync(
        file("saves", "index.mjs"),
        'import { x } from "./lib/deep/x.mjs";\nexport const handler = () => x;\n',
      );
      await eventually("the new folder answers", async () => (await out("invoke", "saves")) === "4\n");
      writeFileSync(file("saves", "lib/deep/x.mjs"), "export const x = 5;\n");
      await eventually("the file below answers", async () => (await out("invoke", "saves")) === "5\n");
      writeFileSync(file("saves", "hearth.toml"), `${toml("saves")}timeout_seconds = 7\n`);
      await eventually("the setting is deployed", async () => (await answer("get", "saves")).timeout_seconds === 7);
      running.child.stdin.write("q");
      expect((await running.ended).code).toBe(0);
    });
  });

  it("prints what fails and continues, with the last of many saves", async () => {
    project("fails");
    await withDev("fails", async (running) => {
      writeFileSync(file("fails", "index.mjs"), 'throw new TypeError("typo");\n');
      await eventually("the error is shown", () => running.err.includes("TypeError: typo [HANDLER_FAILED]"));
      writeFileSync(file("fails", "hearth.toml"), "function = \n");
      await eventually("the error is shown", () => running.err.includes("hearth.toml:1: invalid TOML"));
      writeFileSync(file("fails", "hearth.toml"), toml("fails"));
      for (let i = 2; i < 50; i++) writeFileSync(file("fails", "index.mjs"), returns(String(i)));
      await eventually("the last save answers", async () => (await out("invoke", "fails")) === "49\n");
      expect((await answer("get", "fails")).version).toBeLessThan(10);
    });
  });

  it("prints calls of others, and deploys again when the daemon is back", async () => {
    project("others");
    await withDev("others", async (running) => {
      running.child.stdin.write("\n");
      await running.shows(/= \[\{"a":1\},1\]/);
      // The first look shows no earlier calls.
      await eventually("a call is shown", async () => {
        await out("invoke", "others", "other");
        return running.out.includes('= ["other",1]');
      });
      expect(running.out.match(/= \[\{"a":1\},1\]/g)).toHaveLength(1);
      await daemon.stop();
      writeFileSync(file("others", "index.mjs"), returns('"again"'));
      await eventually("the failure is shown", () => running.err.includes("no daemon answers"));
      await daemon.start({ HEARTH_CELLS: "2" });
      await running.shows(/others updated, version 2/);
      expect(await out("invoke", "others")).toBe('"again"\n');
    });
  });

  it("waits for a daemon that does not answer, and says so once", async () => {
    project("early");
    const env = { HEARTH_URL: `http://127.0.0.1:${await freePort()}` };
    const running = shell().start("hearth", ["dev", "early"], { env });
    await eventually("it retries", () =>
      running.err.includes("reading calls failed, hearth retries: no daemon answers"),
    );
    expect(running.err.match(/hearth: no daemon answers/g)).toHaveLength(1);
    running.child.kill("SIGINT");
    expect((await running.ended).code).toBe(0);
  });

  it("reads keys of a terminal, and leaves it as it was", async () => {
    project("keys");
    const running = shell().terminal("hearth dev keys; echo ended $?; stty -a | grep -o ' icanon'");
    await eventually("it waits for keys", () => bare(running.out).includes("q ends"));
    running.child.stdin.write("\r");
    await eventually("the call is shown", () => bare(running.out).includes('= [{"a":1},1]'));
    running.child.stdin.write("\x03");
    await eventually("it has ended", () => /ended 0\s+icanon/.test(bare(running.out)));
    await running.ended;
  });
});
