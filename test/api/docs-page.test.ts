/** The page of the API in a browser, with the headers that the daemon sends. */
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
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

async function look(width: number, colorScheme: "light" | "dark") {
  const page = await opened.browser?.newPage({ viewport: { width, height: 800 }, colorScheme });
  if (page === undefined) throw new Error("no browser");
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("requestfailed", (request) => complaints.push(request.url()));
  await page.goto(`${daemon.url}/api/docs#createFunction`);
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

describe("GET /api/docs", () => {
  it("is shown in its own style, light or dark, with nothing refused by the browser", async () => {
    const [light, dark] = [await look(1400, "light"), await look(1400, "dark")];
    expect(light).toMatchObject({ ground: "rgb(253, 252, 250)", columns: "grid", complaints: [] });
    expect(dark).toMatchObject({ ground: "rgb(24, 22, 19)", complaints: [] });
    const { body } = await daemon.call("GET", "/api/openapi.json");
    const methods = Object.values(body.paths as Record<string, object>).flatMap((item) => Object.keys(item));
    expect(light).toMatchObject({ operations: methods.filter((name) => name !== "parameters").length });
  });

  it("fits a telephone, and opens at the operation that a link names", async () => {
    const seen = await look(390, "light");
    expect(seen).toMatchObject({ width: 390, columns: "block" });
    expect(Number((seen as { top?: number }).top)).toBeLessThan(100);
  });
});
