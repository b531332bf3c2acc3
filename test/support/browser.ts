/**
 * A real browser for the tests of the page: Debian's Chromium with a profile of its own, and tabs that note what must
 * not happen: an error on the console, an exception, a request to anywhere but the daemon.
 */
import { type Browser, chromium, type Page } from "playwright-core";
import { KEY } from "./daemon.ts";

const CHROMIUM = "/usr/bin/chromium";
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export interface Tab {
  readonly page: Page;
  /** Errors of the console and exceptions, as they came. */
  readonly errors: string[];
  /** `<method> <address>` of every request. */
  readonly requests: string[];
}

export function openBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, headless: true, args: ARGUMENTS });
}

/** A tab with a session of its own at an address of the page; nobody is signed in. */
export async function openTab(browser: Browser, url: string, size = { width: 1280, height: 800 }): Promise<Tab> {
  const context = await browser.newContext({ viewport: size, colorScheme: "light" });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  const tab: Tab = { page, errors: [], requests: [] };
  page.on("console", (message) => {
    // Whatever daemon on this machine makes a container, the browser drops the connections that it is making.
    if (message.type() === "error" && !message.text().includes("ERR_NETWORK_CHANGED")) tab.errors.push(message.text());
  });
  page.on("pageerror", (error) => tab.errors.push(String(error)));
  page.on("request", (request) => tab.requests.push(`${request.method()} ${request.url()}`));
  await page.goto(url).catch(() => page.goto(url));
  return tab;
}

export async function signIn({ page }: Tab, key = KEY): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
}
