/** What a function is given, through the API: numbers, scripts with a first line, variables that a process reads when it starts. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CodeUser, NODEJS, PYTHON3 } from "../support/code.ts";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
let user: CodeUser;

beforeAll(async () => {
  await daemon.start();
  user = new CodeUser(daemon);
});
afterAll(() => daemon.dispose());

describe("numbers of any function", () => {
  const invoked = (name: string, body: string) => user.raw("POST", `/api/functions/invoke/${name}`, body);

  it("pass unchanged to a command and from one", async () => {
    await user.deployments([{ name: "cat", handler: "cat" }]);
    const numbers = "[9007199254740993,1.0,-0,1e2,0.10]";
    expect(JSON.parse(await invoked("cat", `{"payload":${numbers}}`)).stdout).toBe(numbers);
    expect(JSON.parse(await invoked("cat", '{"payload":1.0,"timeout_seconds":3.0}')).stdout).toBe("1.0");
    expect(JSON.parse(await invoked("cat", '{"payload":{"b": 1, "a": "\\u0041"}}')).stdout).toBe('{"b":1,"a":"A"}');
    const code = "export const handler = () => ({ id: JSON.rawJSON('9007199254740993'), price: JSON.rawJSON('1.0') });";
    await user.deploy("raw", { "index.mjs": code }, NODEJS);
    expect(await invoked("raw", "{}")).toContain('"result":{"id":9007199254740993,"price":1.0}');
    await user.deploy("float", { "main.py": "def handler(payload, context): return [payload, 1.0, 10**30]" }, PYTHON3);
    expect(await invoked("float", '{"payload":1.0}')).toContain(`"result":[1.0,1.0,${10n ** 30n}]`);
  });

  it("pass unchanged into the smoke call of a deployment", async () => {
    const code = await user.upload({ "main.py": "def handler(payload, context): assert payload == 2**53 + 1" });
    const body = `{"functions":[{"name":"smoked","code_sha256":"${code}","runtime":"python3","handler":"main.py:handler",
      "smoke":{"payload":9007199254740993}}]}`;
    expect(JSON.parse(await user.raw("POST", "/api/functions/deployments", body)).error ?? null).toBe(null);
  });

  it("are refused above the largest double", async () => {
    for (const body of ['{"payload":1e400}', '{"payload":[-1e309]}', `{"payload":1${"0".repeat(400)}}`]) {
      expect(JSON.parse(await invoked("cat", body))).toMatchObject({
        error_code: "INVALID_ARGUMENT",
        error: expect.stringMatching(/^the body has a number that is too large: /),
      });
    }
    const forged = "export const handler = () => JSON.rawJSON('1e400');";
    await user.deploy("forged", { "index.mjs": forged }, NODEJS);
    expect(JSON.parse(await invoked("forged", "{}"))).toMatchObject({
      status: "failed",
      result: null,
      error_message: expect.stringMatching(/^the result has a number that is too large: 1e400/),
    });
  });
});

describe("the first line of a script", () => {
  const CUSTOM = { runtime: "custom", handler: "run" };
  const SHELL = { runtime: "shell", handler: "./run" };
  const LAMBDA = { runtime: "custom", protocol: "lambda", handler: "app.handler" };

  it.each([
    ["custom", CUSTOM, "run", "#!/bin/sh\r\nexit\r\n", "ends with a carriage return: #!/bin/sh"],
    ["a shell command", SHELL, "run", "#!/bin/sh\r\nexit\r\n", "ends with a carriage return: #!/bin/sh"],
    ["a bootstrap", LAMBDA, "bootstrap", "#!/bin/sh\r\nexit\r\n", "ends with a carriage return: #!/bin/sh"],
    ["custom", CUSTOM, "run", "#!/usr/bin/nothing\n", "names an interpreter that does not exist: /usr/bin/nothing"],
    ["a shell command", SHELL, "run", "#!/usr/bin/env nothing\n", "names an interpreter that does not exist: nothing"],
    ["a bootstrap", LAMBDA, "bootstrap", "#!/etc/passwd\n", "names an interpreter that does not exist: /etc/passwd"],
    ["custom", CUSTOM, "run", "#!python3\n", "names no interpreter by absolute path: #!python3"],
    ["custom", CUSTOM, "run", "#!/usr/bin/env python3 -u\n", "names an interpreter that does not exist: python3 -u"],
  ])("of %s is refused at its deployment if wrong: %j", async (_name, fields, file, script, problem) => {
    const { status, body } = await user.tryDeploy("script", { [file]: script }, fields);
    expect([status, body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    expect(body.error).toBe(`function 'script': handler: the first line of '${file}' ${problem}`);
  });

  it("of a handler is refused if its interpreter does not exist", async () => {
    const answer = await user.deployments([{ name: "script", handler: "#!/usr/bin/env nothing\n1" }]);
    expect(answer.body.error).toBe(
      "function 'script': handler: the first line names an interpreter that does not exist: nothing",
    );
  });

  it.each([
    "#!/bin/sh\necho yes",
    "#! /usr/bin/env python3\nprint('yes')",
    "#!/usr/bin/env -S python3 -u\nprint('yes')",
    "#!/usr/bin/env A=1 true\n",
    "#!/bin/sh -e\n: \r\necho yes",
  ])("may be %j", async (script) => {
    await user.deploy("script", { run: script }, SHELL);
  });
});

describe("a variable that is read when a process starts", () => {
  it("has its effect in python3", async () => {
    const code = "import warnings\ndef handler(payload, context): warnings.warn(str(hash('a')))";
    const hashes = await Promise.all(
      ["one", "two"].map(async (name) => {
        const environment = { PYTHONHASHSEED: "7", PYTHONWARNINGS: "error" };
        await user.deploy(`hash-${name}`, { "main.py": code }, { ...PYTHON3, environment, min_instances: 1 });
        return (await user.invoke(`hash-${name}`)).error_message;
      }),
    );
    expect(hashes).toEqual([hashes[0], hashes[0]]);
    expect(hashes[0]).toMatch(/^UserWarning: -?\d+$/);
  });

  it("has its effect in nodejs, or its deployment is refused", async () => {
    const files = {
      "index.mjs": "export const handler = () => globalThis.early;",
      "early.mjs": "globalThis.early = 1;",
    };
    const fields = (NODE_OPTIONS: string) => ({ ...NODEJS, environment: { NODE_OPTIONS } });
    await user.deploy("options", files, fields("--import ./early.mjs"));
    expect(await user.invoke("options")).toMatchObject({ status: "success", result: 1 });
    const { status, body } = await user.tryDeploy("options", files, fields("--inspect"));
    expect([status, body.error_code]).toEqual([400, "HANDLER_FAILED"]);
    expect(body.error).toContain("VariableNotSupported: NODE_OPTIONS has a flag that cannot be set: --inspect");
  });
});
