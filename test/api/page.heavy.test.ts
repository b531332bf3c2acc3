/** The page at `/` in a real browser: what it shows is what the API says, and what it does is done. */
import { execFileSync } from "node:child_process";
import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, openTab, signIn, type Tab } from "../support/browser.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { card, cellOf, refusalsOf } from "../support/page.ts";

const daemon = new Daemon();
const SETTINGS = { HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" };
let browser: Browser;
const tabs: Tab[] = [];

beforeAll(async () => {
  await daemon.start(SETTINGS);
  // Chromium fails connections that are made while addresses of the machine come and go.
  await eventually("the cell is ready", async () => (await totals()).cells === 1);
  browser = await openBrowser();
});

afterEach(async () => {
  for (const { page, errors, requests } of tabs.splice(0)) {
    await page.context().close();
    expect(errors).toEqual([]);
    expect(requests.filter((request) => !request.includes(` ${daemon.url}/`))).toEqual([]);
  }
});

afterAll(async () => {
  await browser.close();
  expect(browser.isConnected()).toBe(false);
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const totals = async () => (await daemon.call("GET", "/api/functions/pool/stats")).body;

/** A tab at an address of the page, signed in. */
async function open(hash = "#/", size?: { width: number; height: number }, key = KEY): Promise<Tab> {
  const tab = await openTab(browser, `${daemon.url}/${hash}`, size);
  tabs.push(tab);
  await signIn(tab, key);
  await tab.page.getByRole("button", { name: "Sign out" }).waitFor();
  return tab;
}

const openFunction = (id: string, size?: { width: number; height: number }) => open(`#/functions/${id}`, size);
const focusOf = (page: Page): Promise<string> => page.evaluate("document.activeElement.textContent");

describe("the files of the page", () => {
  const get = (path: string, headers: Record<string, string> = {}) => fetch(daemon.url + path, { headers });

  it("need no credential, and have a policy that lets in nothing from elsewhere and nothing inline", async () => {
    for (const path of ["/", "/page/main.js", "/page/base.css", "/page/icon.svg"]) {
      const { status, headers } = await get(path);
      expect([path, status]).toEqual([path, 200]);
      const policy = headers.get("content-security-policy") ?? "";
      const rules = Object.fromEntries(policy.split("; ").map((rule) => rule.split(/ (.*)/)));
      expect(rules).toMatchObject({
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self'",
        "frame-ancestors": "'none'",
        "form-action": "'none'",
        "base-uri": "'none'",
      });
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("referrer-policy")).toBe("no-referrer");
    }
  });

  it("are sent once, and again only when they have changed", async () => {
    const first = await get("/page/main.js");
    expect(first.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
    const etag = first.headers.get("etag") ?? "";
    expect(etag).toMatch(/^"[\w-]{22}"$/);
    const again = await get("/page/main.js", { "if-none-match": `"other", W/${etag}` });
    expect([again.status, await again.text(), again.headers.get("etag")]).toEqual([304, "", etag]);
    expect((await get("/page/main.js", { "if-none-match": '"other"' })).status).toBe(200);
  });

  it("are those of its folder and no others", async () => {
    for (const path of ["/page/routes.ts", "/page/%2e%2e/wire.ts", "/page/nothing.js"]) {
      expect([path, (await get(path)).status]).toEqual([path, 404]);
    }
    expect((await get("/page/..%2froutes.ts")).status).toBe(400);
  });
});

describe("signing in", () => {
  it("says that a key is wrong, takes the right one, and keeps it in the tab's session alone", async () => {
    const tab = await openTab(browser, daemon.url);
    tabs.push(tab);
    const { page } = tab;
    // The key lies in another place than by default.
    expect(await page.locator("form.sign-in").textContent()).not.toContain("/var/lib/hearth");
    await signIn(tab, "hk_wrong");
    await page.getByRole("alert").filter({ hasText: /./ }).waitFor();
    expect(await page.getByRole("alert").textContent()).toContain("invalid credential");
    await refusalsOf(tab, 401);
    await signIn(tab);
    await page.getByRole("heading", { name: "Create the first function" }).waitFor();
    expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([KEY]);
    expect(await page.evaluate("localStorage.length + document.cookie.length")).toBe(0);
    await page.reload();
    await page.getByRole("heading", { name: "Create the first function" }).waitFor();
  });

  it("is over after signing out: no key, no data, and none after a reload", async () => {
    const { id } = await daemon.deploy({ name: "left-behind", handler: "echo here" });
    const { page } = await openFunction(id);
    await page.getByRole("heading", { name: "left-behind" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API key").waitFor();
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
    expect(await page.locator("body").textContent()).not.toContain("left-behind");
    await page.reload();
    await page.getByLabel("API key").waitFor();
    await daemon.call("DELETE", `/api/functions/${id}`);
  });

  it("with a key that may only look shows what is refused where it was asked for, and ends with the key", async () => {
    const { id } = await daemon.deploy({ name: "looked-at", handler: "echo here" });
    const key = (await daemon.call("POST", "/api/api-keys", { name: "looker", scopes: ["read"] })).body;
    const tab = await open(`#/functions/${id}`, undefined, key.key);
    const { page } = tab;
    await page.getByRole("button", { name: "Invoke" }).click();
    await card(page, "Invoke").getByRole("alert").getByText("lacks the scope").waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator(".detail-head").getByRole("alert").getByText("lacks the scope").waitFor();
    expect((await daemon.call("GET", `/api/functions/${id}`)).body.state).toBe("active");
    await refusalsOf(tab, 403, 403);
    await daemon.call("DELETE", `/api/api-keys/${key.id}`);
    await page.getByRole("alert").getByText("no longer valid").waitFor();
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
    expect(await page.locator("body").textContent()).not.toContain("looked-at");
    await refusalsOf(tab, 401);
    await daemon.call("DELETE", `/api/functions/${id}`);
  });
});

describe("a function on the page", () => {
  it("is made and deployed with the form, called with the keyboard, and shows where the time went", async () => {
    const { page } = await open();
    await page.getByLabel("Name").fill("greeter");
    await page.getByLabel("Handler").fill('echo "hello, $(cat)"; echo careful >&2');
    await page.getByLabel("Handler").press("Control+Enter");
    await page.getByRole("heading", { name: "greeter" }).waitFor();
    await page.locator(".title").getByText("active").waitFor();
    await page.getByLabel("Payload").fill("world");
    await page.getByLabel("Payload").press("Control+Enter");
    const record = card(page, "Invoke").locator(".record");
    await record.waitFor();
    expect(await record.getByLabel("Standard output").textContent()).toBe("hello, world\n");
    expect(await record.getByLabel("Standard error").textContent()).toBe("careful\n");
    const { id } = (await daemon.call("GET", "/api/functions/by-name/greeter")).body;
    const [stored] = (await daemon.call("GET", `/api/functions/${id}/invocations`)).body.invocations;
    const wanted = {
      Status: "success",
      Start: "cold",
      "Exit code": "0",
      Version: "v1",
      Invocation: stored.invocation_id,
    };
    expect(await factsOf(record)).toMatchObject(wanted);
    expectTimeline(await lanesOf(record), stored.timings);
    await page.getByRole("button", { name: "Invoke" }).click();
    await card(page, "Invoke").getByText("warm").waitFor();
    expect((await factsOf(record)).Start).toBe("warm");
  });

  it("can be made with the command lines that the form shows, as they stand", async () => {
    const { page } = await open("#/new");
    await page.getByLabel("Name").fill("it's");
    await page.getByLabel("Handler").fill("printf '%s\\n' \"it's $(cat)\"");
    const lines = (await page.getByLabel("Command lines").textContent()) ?? "";
    const output = execFileSync("bash", ["-c", lines], { env: { ...process.env, HEARTH_KEY: KEY } }).toString();
    expect(JSON.parse(output.slice(output.lastIndexOf('{"invocation_id"')))).toMatchObject({
      function_name: "it's",
      status: "success",
      stdout: "it's world\n",
    });
    await page.getByLabel("Name").fill("it's short");
    const short = (await page.getByLabel("Commands of hearth").textContent()) ?? "";
    const hearth = `hearth() { '${process.execPath}' src/cli.ts "$@"; }\n`;
    const env = { ...process.env, HEARTH_URL: daemon.url, HEARTH_KEY: KEY };
    expect(execFileSync("bash", ["-c", hearth + short], { env }).toString()).toMatch(/is active.*\nit's world\n$/);
  });

  it("shows the starts of containers below the wait that they were part of", async () => {
    const { id } = await daemon.deploy({ name: "burst", handler: "sleep 0.4" });
    // One takes the cell, the others wait for containers of their own.
    const records = await Promise.all([1, 2, 3].map(() => daemon.invoke("burst")));
    const started = records.find(({ timings }) => timings.start !== undefined);
    const { page } = await openFunction(id);
    const rows = card(page, "Records").locator(".entry");
    await eventually("all three are shown", async () => (await rows.count()) === 3);
    for (let i = 0; i < 3; i++) await rows.nth(i).getByRole("button").click();
    const record = card(page, "Records").locator(".record").filter({ hasText: started.invocation_id });
    await record.waitFor();
    const lanes = await lanesOf(record);
    expectTimeline(lanes, started.timings);
    const { network, rootfs, start, queue, total } = started.timings;
    expect(lanes.lower.map(({ name }) => name)).toEqual(["network", "rootfs", "start"]);
    expect(lanes.lower.at(-1)?.to).toBeCloseTo((100 * queue) / total, 1);
    const shown = lanes.lower.reduce((sum, { from, to }) => sum + to - from, 0);
    expect(shown).toBeCloseTo((100 * Math.min(queue, network + rootfs + start)) / total, 1);
  });

  it("has its calls, cold and warm apart, in figures and marks, and new ones without a reload", async () => {
    const { id } = await daemon.deploy({
      name: "counted",
      handler: 'cat; test "$HEARTH_PAYLOAD" != bad',
    });
    for (const payload of ["first", "second", "bad"]) await daemon.invoke("counted", { payload });
    const { page } = await openFunction(id);
    await page.evaluate("window.loadedOnce = true");
    const latency = card(page, "Latency");
    const callsOf = async (kind: string) =>
      latency.getByRole("row", { name: kind }).getByRole("cell").first().textContent();
    await latency.getByRole("row", { name: "cold" }).waitFor();
    expect([await callsOf("cold"), await callsOf("warm")]).toEqual(["1", "2"]);
    expect(await latency.locator("path.mark.cold").count()).toBe(1);
    expect(await latency.locator("circle.mark.warm").count()).toBe(2);
    expect(await latency.locator(".mark.failed title").textContent()).toContain("failed");
    const payload = page.getByLabel("Payload");
    await payload.fill("what somebody writes");
    await payload.evaluate((element) => element.setSelectionRange(5, 13));
    await daemon.invoke("counted", { payload: "from elsewhere" });
    await card(page, "Records").getByText("from elsewhere").waitFor();
    await eventually("the plot has it too", async () => (await callsOf("warm")) === "3");
    await page.getByText("4 calls, 1 error").waitFor();
    expect(await page.evaluate("window.loadedOnce")).toBe(true);
    const selected =
      "document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)";
    expect(await page.evaluate(selected)).toBe("somebody");
    await page.getByRole("button", { name: "Failed" }).click();
    expect(await card(page, "Records").locator(".entry").count()).toBe(1);
    await card(page, "Records").locator(".entry").getByRole("button").click();
    expect(await card(page, "Records").getByLabel("Standard output").textContent()).toBe("bad");
  });

  it("keeps what is being read where it is, and offers what is new", async () => {
    const { id } = await daemon.deploy({ name: "read", handler: "cat" });
    await daemon.invoke("read", { payload: "one" });
    const { page } = await openFunction(id);
    const records = card(page, "Records");
    await records.locator(".entry").getByRole("button").click();
    await records.locator(".record").waitFor();
    await daemon.invoke("read", { payload: "two" });
    await records.getByRole("button", { name: "Show 1 new record" }).click();
    expect(await records.locator(".entry").count()).toBe(2);
    expect(await records.getByLabel("Standard output").textContent()).toBe("one");
  });

  it("gets a version with the form, and the one before back with one click", async () => {
    const { id } = await daemon.deploy({ name: "versioned", handler: "echo one", min_instances: 1 });
    const { page } = await openFunction(id);
    await card(page, "New version").getByLabel("Handler").fill("echo two");
    await page.getByRole("button", { name: "Create version 2" }).click();
    const versions = card(page, "Versions").getByRole("listitem");
    await versions.filter({ hasText: "v2" }).getByText("current").waitFor();
    expect(await daemon.invoke("versioned")).toMatchObject({ version: 2, stdout: "two\n" });
    await page.getByRole("button", { name: "Roll back to version 1" }).click();
    await versions.filter({ hasText: "v1" }).getByText("current").waitFor();
    expect(await daemon.invoke("versioned")).toMatchObject({ version: 1, stdout: "one\n", cold_start: false });
    await page.getByRole("heading", { name: "Current version: v1" }).waitFor();
    expect(await page.getByRole("button", { name: "Activate version 2" }).count()).toBe(1);
    // Numbers are not used again.
    await page.getByRole("button", { name: "Create version 3" }).waitFor();
  });

  it("is paused, resumed, and deleted after a question; a refusal is told where it happened", async () => {
    const { id } = await daemon.deploy({ name: "movable", handler: "echo here" });
    const tab = await openFunction(id);
    const { page } = tab;
    const state = page.locator(".title .badge");
    await page.getByRole("button", { name: "Pause" }).click();
    await state.getByText("paused").waitFor();
    await page.getByRole("button", { name: "Invoke" }).click();
    await card(page, "Invoke").getByRole("alert").getByText("paused").waitFor();
    await refusalsOf(tab, 409);
    await page.getByRole("button", { name: "Resume" }).click();
    await state.getByText("active").waitFor();
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    expect((await daemon.call("GET", `/api/functions/${id}`)).status).toBe(200);
    // The answer comes when the page has had a whole round since the function went: it asks for nothing that is gone.
    await page.route(`**/api/functions/${id}`, async (route) => {
      if (route.request().method() !== "DELETE") return route.continue();
      const response = await route.fetch();
      for (let i = 0; i < 2; i++) await page.waitForRequest("**/api/functions/pools");
      await route.fulfill({ response });
    });
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { name: "Functions" }).waitFor();
    expect((await daemon.call("GET", `/api/functions/${id}`)).status).toBe(404);
  });

  it("may have any name, handler and output: all of it is text", async () => {
    const hostile = "<img src=x onerror=window.owned=1>";
    const script = "<script>window.owned=1</script>";
    await daemon.deploy({
      name: hostile,
      description: script,
      handler: `echo '${script}${hostile}'; echo '${hostile}' >&2; exit 1 # ${script}`,
      environment: { SECRET: script },
    });
    await daemon.invoke(hostile);
    const { page } = await open();
    await page.getByRole("link", { name: hostile }).click();
    await page.getByRole("heading", { name: hostile }).waitFor();
    await card(page, "Records").locator(".entry").getByRole("button").click();
    expect(await card(page, "Records").getByLabel("Standard output").textContent()).toBe(`${script}${hostile}\n`);
    const description = card(page, "Current version");
    expect(await description.locator(".environment").textContent()).not.toContain(script);
    await page.getByRole("button", { name: "Show values" }).click();
    expect(await description.locator(".environment").textContent()).toContain(script);
    expect(await page.evaluate("document.querySelectorAll('main img, main script').length")).toBe(0);
    expect(await page.evaluate("window.owned")).toBeUndefined();
  });
});

describe("the list", () => {
  it("is walked with the keyboard: filter, rows, open, back, keys", async () => {
    for (const name of ["walk-a", "walk-b", "walk-c"]) await daemon.deploy({ name, handler: "true" });
    const { page } = await open();
    await page.getByRole("link", { name: "walk-a" }).waitFor();
    const { keyboard } = page;
    await keyboard.press("/");
    await keyboard.type("walk");
    await page.getByText(/^3 of /).waitFor();
    await keyboard.press("ArrowDown");
    expect(await focusOf(page)).toBe("walk-c");
    await keyboard.press("j");
    await keyboard.press("ArrowDown");
    await keyboard.press("k");
    expect(await focusOf(page)).toBe("walk-b");
    await keyboard.press("Enter");
    await page.getByRole("heading", { name: "walk-b" }).waitFor();
    expect(await page.title()).toContain("hearth");
    await keyboard.press("i");
    await keyboard.type("j/?");
    expect(await page.getByLabel("Payload").inputValue()).toBe("j/?");
    await keyboard.press("Escape");
    await keyboard.press("Escape");
    await page.getByRole("link", { name: "walk-b" }).waitFor();
    expect(await focusOf(page)).toBe("walk-b");
    await keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await keyboard.press("Escape");
    expect(await page.getByRole("dialog").count()).toBe(0);
    expect(await focusOf(page)).toBe("walk-b");
    await page.goBack();
    await page.getByRole("heading", { name: "walk-b" }).waitFor();
    await keyboard.press("n");
    await page.getByRole("heading", { name: "New function" }).waitFor();
  });

  it("shows state, version, instances, calls and errors as they change", async () => {
    const { id } = await daemon.deploy({ name: "watched", handler: "exit 1" });
    const { page } = await open();
    const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "watched" }) });
    await row.getByText("active").waitFor();
    await cellOf(row, "Instances").getByText("none").waitFor();
    await daemon.invoke("watched");
    await daemon.call("PUT", `/api/functions/${id}`, { handler: "true" });
    await cellOf(row, "Version").getByText("v2").waitFor();
    expect([await cellOf(row, "Calls").textContent(), await cellOf(row, "Errors").textContent()]).toEqual(["1", "1"]);
    await cellOf(row, "Instances").getByText("1 ready").waitFor();
    await daemon.call("POST", `/api/functions/${id}/pause`);
    await row.getByText("paused").waitFor();
    expect(await cellOf(row, "Instances").textContent()).toBe("none");
  });

  it("asks for the instances of all functions in one request a round, which the log shows at debug only", async () => {
    const names = Array.from({ length: 60 }, (_, i) => `many-${i}`);
    await Promise.all(
      names.map((name) => daemon.deploy({ name, handler: "true", min_instances: name === "many-59" ? 1 : 0 })),
    );
    const before = daemon.output.length;
    const { page, requests } = await open("#/", { width: 1280, height: 400 });
    const row = page.getByRole("row", { name: "many-59" });
    await cellOf(row, "Instances").getByText("1 ready").waitFor();
    await eventually(
      "two rounds are over",
      () => requests.filter((one) => one.endsWith("/api/functions/pools")).length > 2,
    );
    expect(requests.filter((one) => one.endsWith("/pool"))).toEqual([]);
    const lines = daemon.output.slice(before).split("\n");
    expect(lines.filter((line) => line.includes("/api/functions/pools"))).toEqual([]);
  });

  it("and all else fits a screen of 360 pixels", async () => {
    const name = "a-name-that-is-quite-long-and-has-no-place-to-break".repeat(2);
    const { id } = await daemon.deploy({
      name,
      handler: `echo ${"x".repeat(400)}`,
      environment: { LONG: "y".repeat(200) },
    });
    await daemon.invoke(name);
    const { page } = await openFunction(id, { width: 360, height: 740 });
    const widths = "[document.documentElement.scrollWidth, document.body.scrollWidth]";
    await card(page, "Records").locator(".entry").getByRole("button").click();
    await card(page, "Records").locator(".record").waitFor();
    expect(await page.evaluate(widths)).toEqual([360, 360]);
    await page.goto(`${daemon.url}/#/`);
    await page.getByRole("link", { name }).waitFor();
    expect(await page.evaluate(widths)).toEqual([360, 360]);
    await page.goto(`${daemon.url}/#/new`);
    await page.getByRole("heading", { name: "New function" }).waitFor();
    expect(await page.evaluate(widths)).toEqual([360, 360]);
  });
});

describe("a daemon that goes away", () => {
  it("is waited for", async () => {
    const tab = await open();
    const { page } = tab;
    const connection = page.locator(".connection");
    await connection.getByText("live").waitFor();
    await daemon.stop();
    await connection.getByText("reconnecting").waitFor();
    await daemon.start(SETTINGS);
    await page.evaluate("dispatchEvent(new Event('online'))");
    await connection.getByText("live").waitFor();
    for (const error of tab.errors.splice(0)) expect(error).toMatch(/Failed to load resource/);
  });
});

interface Part {
  readonly name: string;
  /** Percent of the whole. */
  readonly from: number;
  readonly to: number;
}

interface Lanes {
  readonly upper: readonly Part[];
  readonly lower: readonly Part[];
}

/** The facts of a record by their names. */
function factsOf(record: Locator): Promise<Record<string, string>> {
  return record
    .locator(".facts")
    .evaluate((list) =>
      Object.fromEntries(
        [...list.children].map((fact) => [fact.children[0].textContent, fact.children[1].textContent]),
      ),
    );
}

/** The bars of a record's timeline, as wide as they are drawn. */
function lanesOf(record: Locator): Promise<Lanes> {
  return record.locator(".lanes").evaluate((lanes) => {
    // biome-ignore lint/suspicious/noExplicitAny: an element; these tests have no types of the browser.
    const parts = (lane: any) =>
      [...(lane?.children ?? [])].map((part) => {
        const from = Number.parseFloat(part.style.left);
        return { name: part.className.replace("phase-", ""), from, to: from + Number.parseFloat(part.style.width) };
      });
    return { upper: parts(lanes.children[0]), lower: parts(lanes.children[1]) };
  });
}

/** The upper lane is the whole of the total without a gap, each phase as long as the record says, the rest `other`. */
function expectTimeline({ upper }: Lanes, timings: Readonly<Record<string, number>>): void {
  const { total = 0 } = timings;
  const names = ["queue", "cell", "load", "handler"].filter((name) => timings[name] !== undefined);
  expect(upper.map(({ name }) => name)).toEqual([...names, "other"]);
  let at = 0;
  for (const { name, from, to } of upper) {
    expect(from).toBeCloseTo(at, 1);
    if (name !== "other") expect(to - from).toBeCloseTo((100 * (timings[name] ?? 0)) / total, 1);
    at = to;
  }
  expect(at).toBeCloseTo(100, 1);
}
