/** The guides of concerns: two forms of the same, and every script in them run through /bin/sh as it stands. */
import { execFile } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ERRORS } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { containersGuide } from "../../src/containers/guide.ts";
import type { GuideExample } from "../../src/docs/guide.ts";
import { functionsGuide } from "../../src/functions/guide.ts";
import { iccGuide } from "../../src/icc/guide.ts";
import { imagesGuide } from "../../src/oci/guide.ts";
import { type Alpine, startAlpine } from "../support/alpine.ts";
import { Daemon } from "../support/daemon.ts";
import { ROUTES } from "../support/routes.ts";

const daemon = new Daemon();
const state: { alpine: Alpine | null } = { alpine: null };
beforeAll(async () => {
  state.alpine = await startAlpine();
  await daemon.start({ HEARTH_CELLS: "4", ...state.alpine.settings });
});
afterAll(async () => {
  await daemon.dispose();
  state.alpine?.registry.close();
});

const GUIDES = ["help", "examples", "health"] as const;
/** Parts of paths below /api that a concern has beside its own name. */
const FOLDERS: Readonly<Record<string, readonly string[]>> = {
  containers: ["containers", "network", "monitors", "cleanup"],
  oci: ["oci", "build-contexts"],
};
const CONCERNS = [functionsGuide, containersGuide, imagesGuide, iccGuide] as const;

describe.each(CONCERNS.map((guide) => [guide.concern, guide] as const))("GET /api/%s/help", (concern, { machine }) => {
  it("lists every route of the concern, every state, limits as they are, and the errors of the routes", async () => {
    const { body } = await daemon.call("GET", `/api/${concern}/help`);
    const folders = FOLDERS[concern] ?? [concern];
    const own = ROUTES.filter(({ path }) => folders.includes(path.split("/")[2] ?? ""));
    expect(body.routes).toHaveLength(own.length);
    for (const { method, path, scope, summary } of own) {
      expect(body.routes).toContainEqual({ method, path: path.replace(/:(\w+)/g, "{$1}"), scope, summary });
    }
    for (const { state, about, transitions } of body.states) {
      expect(transitions).toEqual(machine.table[state]);
      expect(about).not.toBe("");
    }
    expect(body.states).toHaveLength(machine.states.length);
    expect(body.initial_state).toBe(machine.initial);
    for (const { name, value } of body.limits)
      expect([name, LIMITS[name as keyof typeof LIMITS]]).toEqual([name, value]);
    const codes = new Set(own.flatMap(({ errors }) => errors));
    for (const code of codes) {
      const { status, retryable, about } = ERRORS[code];
      expect(body.errors).toContainEqual({ error_code: code, status, retryable, about });
    }
    // Every path that a step names is one that is served.
    const named = (body.steps as string[]).flatMap((step) => step.match(/(GET|POST|PUT|DELETE) \/[\w/{}-]+/g) ?? []);
    const mounted = ROUTES.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, "{$1}")}`);
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter((name) => !mounted.includes(name))).toEqual([]);
  });
});

describe("the form of a guide", () => {
  const typeOf = async (path: string, accept?: string) => {
    const { headers } = await daemon.call("GET", path, undefined, accept === undefined ? {} : { accept });
    return headers.get("content-type");
  };

  it("is JSON unless Markdown is asked for, by query or by header, the query first", async () => {
    for (const guide of GUIDES) {
      const path = `/api/functions/${guide}`;
      const [json, markdown] = ["application/json", "text/markdown; charset=utf-8"];
      expect(await typeOf(path)).toBe(json);
      expect(await typeOf(path, "*/*")).toBe(json);
      expect(await typeOf(path, "text/markdown")).toBe(markdown);
      expect(await typeOf(path, "text/markdown;q=0.5, application/json;q=0.4")).toBe(markdown);
      expect(await typeOf(path, "text/markdown;q=0.5, application/json")).toBe(json);
      expect(await typeOf(`${path}?format=markdown`, "application/json")).toBe(markdown);
      expect(await typeOf(`${path}?format=json`, "text/markdown")).toBe(json);
      const other = await daemon.call("GET", `${path}?format=html`);
      expect([other.status, other.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
      expect((await daemon.call("GET", path)).headers.get("vary")).toBe("accept, origin");
    }
  });

  it("says the same in both forms", async () => {
    const { body: help } = await daemon.call("GET", "/api/functions/help");
    const text = (await daemon.call("GET", "/api/functions/help?format=markdown")).body as string;
    for (const { path } of help.routes) expect(text).toContain(`| \`${path}\` |`);
    for (const { error_code, status } of help.errors) expect(text).toContain(`| ${status} | \`${error_code}\` |`);
    for (const { name, value } of help.limits) expect(text).toContain(`| \`${name}\` | ${value} |`);
    const health = (await daemon.call("GET", "/api/functions/health?format=markdown")).body as string;
    expect(health).toContain("| `status` | ok |");
    expect(health).toMatch(/\| `pool\.total_count` \| \d+ \|/);
    // Every row of a table has as many cells as its head.
    for (const block of `${text}\n\n${health}`.split("\n\n").filter((one) => one.startsWith("|"))) {
      const counts = block
        .trim()
        .split("\n")
        .map((line) => line.match(/(?<!\\)\|/g)?.length);
      expect(new Set(counts).size).toBe(1);
    }
  });

  it("gives the scripts in Markdown as they stand in JSON", async () => {
    const { body } = await daemon.call("GET", "/api/functions/examples");
    const text = (await daemon.call("GET", "/api/functions/examples?format=markdown")).body as string;
    const scripts = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, script]) => script);
    expect(scripts).toEqual(body.examples.map(({ script }: GuideExample) => script));
  });
});

describe.each(CONCERNS.map((guide) => [guide.concern, guide.examples] as const))(
  "the examples of GET /api/%s/examples",
  (concern, examples) => {
    it("are those of the guide", async () => {
      const { body } = await daemon.call("GET", `/api/${concern}/examples`);
      expect(body.examples).toEqual(examples);
    });

    it.each(examples.map((example) => [example.title, example] as const))(
      "%s: prints what it says, with a key of the scopes that it says, and leaves nothing",
      async (_, { script, scopes, output }) => {
        const { body: key } = await daemon.call("POST", "/api/api-keys", { name: "example", scopes });
        const before = await owned();
        const { code, stdout, stderr } = await run(script, key.key);
        expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: output, stderr: "" });
        expect(await owned()).toEqual(before);
      },
    );

    it("fail where something is refused", async () => {
      for (const { script } of examples) {
        const { code } = await run(script, "no-key");
        expect(code).not.toBe(0);
      }
    });
  },
);

async function owned(): Promise<unknown> {
  const { body: keys } = await daemon.call("GET", "/api/api-keys");
  const { body: functions } = await daemon.call("GET", "/api/functions");
  const { body: containers } = await daemon.call("GET", "/api/containers");
  const { body: images } = await daemon.call("GET", "/api/oci/images");
  // Their last use is of the examples themselves.
  const unused = keys.api_keys.map(({ last_used_at: _, ...key }: { last_used_at: unknown }) => key);
  return { keys: unused, functions, containers, images };
}

/** Through /bin/sh, with nothing in the environment but what the guide says that it needs. */
function run(script: string, key: string): Promise<{ code: number; stdout: string; stderr: string }> {
  const env = { PATH: process.env.PATH, HEARTH_URL: daemon.url, HEARTH_KEY: key };
  return new Promise((resolve) => {
    const child = execFile("/bin/sh", { env, timeout: 30_000 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr }),
    );
    child.stdin?.end(script);
  });
}
