/** Between tenants, and between the keys of one: what code, secrets and instances of others are to a caller. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CodeUser } from "../support/code.ts";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
const owner = new CodeUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" }));
afterAll(() => daemon.dispose());

describe("a key with the scope invoke alone", () => {
  const VALUE = "value-that-no-caller-sees";
  const caller: { user: CodeUser } = { user: owner };

  beforeAll(async () => {
    const { status } = await owner.call("PUT", "/api/secrets/HIDDEN", { value: VALUE });
    expect(status).toBe(201);
    const made = await owner.call("POST", "/api/api-keys", { name: "calls", scopes: ["invoke"] });
    caller.user = new CodeUser(daemon, made.body.key);
    const code = { "main.sh": "#!/bin/bash\necho ran\n" };
    const fields = { runtime: "shell", handler: "./main.sh" };
    await owner.deploy("by-variable", code, { ...fields, environment: { TOKEN: { secret: "HIDDEN" } } });
    await owner.deploy("by-file", code, { ...fields, secrets: ["HIDDEN"] });
    await owner.deploy("without", code, fields);
  });

  const trap = { environment: { BASH_ENV: "/proc/self/environ", PATH: "/tmp" } };

  it.each(["by-variable", "by-file"])("cannot set variables of a call if the version has secrets: %s", async (name) => {
    const path = `/api/functions/invoke/${name}`;
    const answer = await caller.user.call("POST", path, trap);
    expect(answer).toMatchObject({
      status: 403,
      body: {
        error_code: "FORBIDDEN",
        error: `the key lacks the scope 'write', required to set variables of '${name}' because of its secrets`,
      },
    });
    expect((await owner.call("POST", path, trap)).status).toBe(200);
    expect(await caller.user.invoke(name)).toMatchObject({ stdout: "ran\n" });
  });

  it("may set them if it has none", async () => {
    expect(await caller.user.invoke("without", null, { environment: { A: "1" } })).toMatchObject({ stdout: "ran\n" });
  });
});
