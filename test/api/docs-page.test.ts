/** The documentation in a browser, with the headers that the daemon sends. */
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DOCS_PAGES } from "../../src/docs/pages.ts";
import { Daemon } from "../support/daemon.ts";

const daemon = new Daemon();
const opened: { browser: Browser | null } = { browser: null };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  const args = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
  opened.browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
});
afterAll(async () => {
  await opened.browser?.close();
  await daemon.dispose();
});

async function open(width: number, colorScheme: "light" | "dark", hash: string, javaScriptEnabled = true) {
  const page = await opened.browser?.newPage({ viewport: { width, height: 800 }, colorScheme, javaScriptEnabled });
  if (page === undefined) throw new Error("no browser");
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("requestfailed", (request) => complaints.push(request.url()));
  await page.goto(`${daemon.url}/api/docs${hash}`);
  return { page, complaints };
}

async function look(width: number, colorScheme: "light" | "dark") {
  const { page, complaints } = await open(width, colorScheme, "#createFunction");
  // An expression, for this side knows no browser's types.
  const seen = await page.evaluate(`({
    ground: getComputedStyle(document.body).backgroundColor,
    width: document.documentElement.scrollWidth,
    top: document.querySelector("#createFunction").getBoundingClientRect().top,
    operations: document.querySelectorAll("main article h3 .method").length,
    columns: getComputedStyle(document.body).display,
  })`);
  await page.close();
  return { ...(seen as Record<string, unknown>), complaints };
}

const shownPages = (page: Page) => page.locator("main > .page:visible").evaluateAll((all) => all.map(({ id }) => id));
const focused = (page: Page) =>
  page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.id");

describe("GET /api/docs", () => {
  it("is shown in its own style, light or dark, with nothing refused by the browser", async () => {
    const [light, dark] = [await look(1400, "light"), await look(1400, "dark")];
    expect(light).toMatchObject({ ground: "rgb(253, 252, 250)", columns: "grid", complaints: [] });
    expect(dark).toMatchObject({ ground: "rgb(24, 22, 19)", complaints: [] });
    const { body } = await daemon.call("GET", "/api/openapi.json");
    const methods = Object.values(body.paths as Record<string, object>).flatMap((item) => Object.keys(item));
    expect(light).toMatchObject({ operations: methods.filter((name) => name !== "parameters").length });
  });

  it("fits a telephone on every page, and opens at the operation that a link names", async () => {
    const seen = await look(360, "light");
    expect(seen).toMatchObject({ width: 360, columns: "block", complaints: [] });
    expect(Number((seen as { top?: number }).top)).toBeLessThan(100);
    const { page } = await open(360, "dark", "");
    for (const { id } of DOCS_PAGES) {
      await page.evaluate(`location.hash = "page-${id}"`);
      await page.locator(`#page-${id}`).waitFor();
      expect([id, await page.evaluate("document.documentElement.scrollWidth")]).toEqual([id, 360]);
    }
    await page.close();
  });

  it("shows one page at a time, and the operations of that page in the navigation", async () => {
    const { page, complaints } = await open(1400, "light", "");
    const nav = page.getByRole("navigation", { name: "Documentation" });
    expect(await shownPages(page)).toEqual(["page-overview"]);
    await nav.getByRole("link", { name: "Volumes", exact: true }).click();
    await page.locator("#page-volumes").waitFor();
    expect(await shownPages(page)).toEqual(["page-volumes"]);
    expect(await page.title()).toBe("Volumes · hearth documentation");
    expect(await nav.locator("a[aria-current=page]").allTextContents()).toEqual(["Volumes"]);
    expect(await nav.locator("a[href='#createVolume']:visible").count()).toBe(1);
    expect(await nav.locator("a[href='#createFunction']:visible").count()).toBe(0);
    await page.goBack();
    await page.locator("#page-overview").waitFor();
    expect(complaints).toEqual([]);
    await page.close();
  });

  it.each([360, 1400])("searches guides and operations with the keyboard alone, %i px wide", async (width) => {
    const { page, complaints } = await open(width, "light", "");
    await page.keyboard.press("/");
    expect(await focused(page)).toBe("search");
    await page.keyboard.type("rollback");
    await page
      .getByRole("status")
      .getByText(/results/)
      .waitFor();
    const found = await page.locator("#found a").evaluateAll((all) => all.map((link) => link.getAttribute("href")));
    expect(found).toContain("#page-versions");
    expect(found).toContain("#rollbackFunction");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    expect(await focused(page)).toBe(found[1]);
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("Enter");
    await page.locator("#found").waitFor({ state: "hidden" });
    expect(page.url().endsWith(found[0] ?? "none")).toBe(true);
    expect(await shownPages(page)).toHaveLength(1);
    await page.keyboard.press("/");
    await page.keyboard.type("no such words");
    await page.getByRole("status").getByText("0 results").waitFor();
    await page.keyboard.press("Escape");
    expect(await page.getByRole("searchbox").inputValue()).toBe("");
    expect(complaints).toEqual([]);
    await page.close();
  });

  it("shows all pages and no search without its script", async () => {
    const { page } = await open(1400, "light", "", false);
    expect(await page.locator("main > .page:visible").count()).toBe(DOCS_PAGES.length);
    expect(await page.getByRole("searchbox").count()).toBe(0);
    await page.close();
  });
});
