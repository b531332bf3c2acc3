/** Functions with code, their versions, and secrets, on the page in a real browser. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { RUNTIMES } from "../../runtimes/index.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { agree, button, card, cellOf, refusalsOf, rowOf, saved, Tabs } from "../support/page.ts";

const daemon = new Daemon();
const tabs = new Tabs(daemon);
const folder = mkdtempSync("/var/tmp/hearth-page-");
const HOSTILE = "<img src=x onerror=window.owned=1>";

beforeAll(() => daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" }));
afterEach(() => tabs.close());
afterAll(async () => {
  await tabs.end();
  rmSync(folder, { recursive: true });
});

/** Writes files below `name`, and returns the path of an archive of them. */
function archive(name: string, files: Readonly<Record<string, string>>, extension = ".tar.gz"): string {
  const root = join(folder, name);
  mkdirSync(root, { recursive: true });
  for (const [path, text] of Object.entries(files)) writeFileSync(join(root, path), text);
  const path = join(folder, name + extension);
  execFileSync("tar", ["-C", root, "-caf", path, "."]);
  return path;
}

const versionsOf = async (id: string) => (await daemon.call("GET", `/api/functions/${id}/versions`)).body.versions;

describe("a function with code on the page", () => {
  it("is made from an archive, shows its result and phases, and gives the code back", async () => {
    const { page } = await tabs.open("#/new");
    const runtime = page.getByLabel("Runtime");
    expect(await runtime.locator("option").evaluateAll((all) => all.map((one) => one.value))).toEqual([
      ...RUNTIMES.keys(),
    ]);
    await page.getByLabel("Name").fill("from-archive");
    await runtime.selectOption("nodejs");
    expect(await page.getByLabel("Handler").inputValue()).toBe("index.mjs#handler");
    expect(await page.getByLabel("Commands of hearth").textContent()).toContain("hearth init hello --runtime nodejs");
    // The runtime needs code: the browser refuses to send the form.
    await button(page, "Create and deploy").click();
    expect(await page.getByLabel("Code", { exact: true }).evaluate((field) => field.validity.valueMissing)).toBe(true);
    const code = {
      "index.mjs": "export const handler = (payload) => { console.log('seen'); return { got: payload }; };\n",
    };
    await page.getByLabel("Code", { exact: true }).setInputFiles(archive("first", code));
    await button(page, "Create and deploy").click();
    await page.getByRole("heading", { name: "from-archive" }).waitFor();
    await page.locator(".title").getByText("active").waitFor();
    await page.getByLabel("Payload", { exact: true }).fill('{"a": [1]}');
    await button(page, "Invoke").click();
    const record = card(page, "Invoke").locator(".record");
    await record.waitFor();
    expect(await record.getByLabel("Result").textContent()).toBe('{\n  "got": {\n    "a": [\n      1\n    ]\n  }\n}');
    expect(await record.getByLabel("Standard output").textContent()).toBe("seen\n");
    await card(page, "Records").getByText('{"got":{"a":[1]}}').waitFor();
    const { id, code_sha256 } = (await daemon.call("GET", "/api/functions/by-name/from-archive")).body;
    const about = card(page, "Current version");
    expect(await about.textContent()).toContain(`digest ${code_sha256.slice(0, 12)}`);
    const { name, bytes } = await saved(page, () => button(page, "Download the code").click());
    expect(name).toBe("from-archive-v1.tar.gz");
    expect(execFileSync("tar", ["xzO", "index.mjs"], { input: bytes }).toString()).toBe(code["index.mjs"]);
    expect(id).toMatch(/^fn_/);
  });

  it("shows the phases load and open of a start", async () => {
    const code_sha256 = await uploaded("slow", {
      "main.py": "import time\n\ndef handler(payload, context):\n    time.sleep(0.4)\n    return payload\n",
    });
    const fields = { name: "phases", runtime: "python3", handler: "main.py:handler", code_sha256, max_instances: 4 };
    const { body } = await daemon.call("POST", "/api/functions/deployments", { functions: [fields] });
    const { function_id } = body.functions[0];
    const calls = Array.from({ length: 4 }, (_, n) => daemon.invoke("phases", { payload: n }));
    const records = await Promise.all(calls);
    const cold = records.find(({ timings }) => timings.load !== undefined && timings.open !== undefined);
    expect(cold).toBeDefined();
    const { page } = await tabs.open(`#/functions/${function_id}`);
    const rows = card(page, "Records").locator(".entry");
    await eventually("all are shown", async () => (await rows.count()) === 4);
    for (let i = 0; i < 4; i++) await rows.nth(i).getByRole("button").click();
    const record = card(page, "Records").locator(".record").filter({ hasText: cold.invocation_id });
    await record.waitFor();
    expect(await record.locator(".lane:not(.lower) .phase-load").count()).toBe(1);
    expect(await record.locator(".lane.lower .phase-open").count()).toBe(1);
  });

  it("gets a version with other code, a note and a test call, and shows what two versions differ in", async () => {
    const code_sha256 = await uploaded("second", { "index.mjs": "export const handler = () => 1;\n" });
    const environment = { TOKEN: { secret: "PAGE_TOKEN" }, SHOWN: "value" };
    await daemon.call("PUT", "/api/secrets/PAGE_TOKEN", { value: "hidden" });
    const fields = { name: "changed", runtime: "nodejs", handler: "index.mjs#handler", code_sha256, environment };
    const made = { ...fields, egress: "off", secrets: ["PAGE_TOKEN"], instance_concurrency: 3, instance_calls_max: 9 };
    const { body } = await daemon.call("POST", "/api/functions/deployments", { functions: [made] });
    const { function_id } = body.functions[0];
    const tab = await tabs.open(`#/functions/${function_id}`);
    const { page } = tab;
    const about = card(page, "Current version");
    for (const shown of ["3 calls at a time", "9 calls", "/run/secrets/PAGE_TOKEN", "secret PAGE_TOKEN", "off"]) {
      await about.getByText(shown, { exact: true }).waitFor();
    }
    const form = card(page, "New version");
    const failing = { "index.mjs": "export const handler = () => { throw new RangeError('too far'); };\n" };
    await form.getByLabel("Code", { exact: true }).setInputFiles(archive("failing", failing, ".tar"));
    await form.getByLabel("Call the new version before it becomes active").check();
    await form.getByLabel("Input of the test call").fill("5");
    await button(page, "Create version 2").click();
    await form.getByRole("alert").getByText("expected success, got failed: RangeError: too far").waitFor();
    expect(await form.locator(".problem-output").textContent()).toContain("index.mjs");
    await refusalsOf(tab, 400);
    expect(await versionsOf(function_id)).toHaveLength(1);
    const next = { "index.mjs": "export const handler = (n) => n + 1;\n", [HOSTILE]: "more\n" };
    await form.getByLabel("Code", { exact: true }).setInputFiles(archive("next", next));
    await form.getByLabel("Note").fill(`adds one ${HOSTILE}`);
    await button(page, "Create version 2").click();
    const versions = card(page, "Versions");
    const item = versions.getByRole("listitem").filter({ hasText: "adds one" });
    await item.getByText("current").waitFor();
    expect(await item.textContent()).toContain("by bootstrap");
    expect(await daemon.invoke("changed", { payload: 5 })).toMatchObject({ version: 2, result: 6 });
    await versions.getByText("Compare versions").click();
    await button(page, "Compare").click();
    await versions.getByLabel("Files that differ").waitFor();
    expect(await versions.locator(".changed-files li").allTextContents()).toEqual([
      `added${HOSTILE}`,
      "changedindex.mjs",
    ]);
    expect(await page.evaluate("document.querySelectorAll('main img').length")).toBe(0);
    expect(await versions.locator(".changes dt").allTextContents()).toEqual(["code_sha256"]);
  });

  it("takes a zip whose files are inside of one folder", async () => {
    const root = join(folder, "zipped");
    mkdirSync(join(root, "project-main"), { recursive: true });
    writeFileSync(join(root, "project-main", "main.py"), "def handler(payload, context):\n    return 'zip'\n");
    execFileSync("python3", ["-m", "zipfile", "-c", join(folder, "a.zip"), join(root, "project-main")]);
    const { page } = await tabs.open("#/new");
    await page.getByLabel("Name").fill("zipped");
    await page.getByLabel("Runtime").selectOption("python3");
    await page.getByLabel("Code", { exact: true }).setInputFiles(join(folder, "a.zip"));
    await page.getByLabel("The files are inside of one folder of the archive").check();
    await button(page, "Create and deploy").click();
    await page.locator(".title").getByText("active").waitFor();
    expect(await daemon.invoke("zipped")).toMatchObject({ result: "zip" });
  });
});

describe("secrets on the page", () => {
  it("are set, replaced and deleted, and no value is in the page or an answer", async () => {
    const { page } = await tabs.open("#/secrets");
    await page.getByRole("link", { name: "New secret" }).click();
    await page.getByLabel("Name").fill("API_KEY");
    await page.getByLabel("Value", { exact: true }).fill("first-value");
    await button(page, "Set").click();
    const row = rowOf(page, "API_KEY");
    await row.waitFor();
    expect(await cellOf(row, "Size").textContent()).toBe("11 B");
    await page.getByRole("link", { name: "API_KEY" }).click();
    const file = join(folder, "value");
    writeFileSync(file, Buffer.from([0, 255, 10]));
    await page.getByLabel("Or a file").setInputFiles(file);
    await button(page, "Replace the value").click();
    await card(page, "Secret").getByText("3 B").waitFor();
    expect(await page.locator("body").textContent()).not.toContain("first-value");
    expect((await daemon.call("GET", "/api/secrets/API_KEY")).body.size_bytes).toBe(3);
    await button(page, "Delete").click();
    await agree(page, "Delete");
    await page.getByRole("heading", { name: "Secrets" }).waitFor();
    expect((await daemon.call("GET", "/api/secrets/API_KEY")).status).toBe(404);
  });

  it("and all else fits a screen of 360 pixels", async () => {
    const name = "N".repeat(64);
    await daemon.call("PUT", `/api/secrets/${name}`, { value: "v" });
    const { page } = await tabs.open("#/secrets", { width: 360, height: 740 });
    const widths = "[document.documentElement.scrollWidth, document.body.scrollWidth]";
    for (const hash of ["#/secrets", `#/secrets/${name}`, "#/new-secret", "#/new"]) {
      await page.goto(`${daemon.url}/${hash}`);
      await page.locator("main h1:visible, main h2:visible").first().waitFor();
      expect([hash, await page.evaluate(widths)]).toEqual([hash, [360, 360]]);
    }
  });
});

/** Uploads files as code; returns the digest. */
async function uploaded(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const response = await fetch(`${daemon.url}/api/functions/code`, {
    method: "POST",
    headers: { "x-api-key": KEY, "content-type": "application/gzip" },
    body: new Uint8Array(readFileSync(archive(name, files))),
  });
  return ((await response.json()) as { code_sha256: string }).code_sha256;
}
