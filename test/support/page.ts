/** The page in a test: its parts as people find them, and the tabs in which it is looked at. */
import { readFileSync } from "node:fs";
import type { Browser, Download, Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { openBrowser, openTab, signIn, type Tab } from "./browser.ts";
import { type Daemon, eventually, KEY, NOTHING_LEFT } from "./daemon.ts";

/** Waits for what the browser itself notes of answers with these statuses, and takes it off the tab's errors. */
export async function refusalsOf({ errors }: Tab, ...statuses: readonly number[]): Promise<void> {
  await eventually(`${statuses.join(", ")} on the console`, () => errors.length >= statuses.length);
  expect(errors.splice(0)).toEqual(statuses.map((status) => expect.stringContaining(`status of ${status}`)));
}

/** Of what ends while a round asks about it the page is told so, and the browser notes it. */
export function forgiveRaces({ errors }: Tab): void {
  errors.splice(0, errors.length, ...errors.filter((error) => !/status of 40[49]/.test(error)));
}

export const card = (page: Page, name: string): Locator => page.getByRole("region", { name, exact: true });
export const rowOf = (page: Page, name: string): Locator =>
  page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
export const cellOf = (row: Locator, column: string): Locator => row.locator(`[data-label="${column}"]`);
export const button = (where: Page | Locator, name: string): Locator =>
  where.getByRole("button", { name, exact: true });

/** What the dialog asks is answered with its own button. */
export async function agree(page: Page, action: string): Promise<void> {
  await button(page.getByRole("dialog"), action).click();
}

/** What the browser saves for what is done. */
export async function saved(page: Page, start: () => Promise<void>): Promise<{ name: string; bytes: Buffer }> {
  const [download]: readonly [Download, unknown] = await Promise.all([page.waitForEvent("download"), start()]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

/** The tabs of one test on one daemon. */
export class Tabs {
  readonly #daemon: Daemon;
  #browser: Browser | null = null;
  #open: Tab[] = [];

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
  }

  /** A tab at an address of the page, signed in. */
  async open(hash: string, size?: { width: number; height: number }, key = KEY): Promise<Tab> {
    this.#browser ??= await openBrowser();
    const tab = await openTab(this.#browser, `${this.#daemon.url}/${hash}`, size);
    this.#open.push(tab);
    await signIn(tab, key);
    await tab.page.getByRole("button", { name: "Sign out" }).waitFor();
    return tab;
  }

  /** Closes them, after a look at what must not have happened in them: none may have run what is text. */
  async close(): Promise<void> {
    for (const { page, errors, requests } of this.#open.splice(0)) {
      expect(await page.evaluate("window.owned")).toBeUndefined();
      await page.context().close();
      expect(errors).toEqual([]);
      const own = [` ${this.#daemon.url}/`, ` blob:${this.#daemon.url}/`];
      expect(requests.filter((one) => !own.some((address) => one.includes(address)))).toEqual([]);
    }
  }

  /** Closes them, and deletes the containers and volumes of the test. */
  async closeEmpty(): Promise<void> {
    await this.close();
    const daemon = this.#daemon;
    const { containers } = (await daemon.call("GET", "/api/containers")).body;
    for (const { container_id } of containers) await daemon.call("DELETE", `/api/containers/${container_id}`);
    for (const { name } of (await daemon.call("GET", "/api/volumes")).body.volumes) {
      await daemon.call("DELETE", `/api/volumes/${encodeURIComponent(name)}?execution=sync`);
    }
  }

  /** Ends browser and daemon, which leave nothing. */
  async end(): Promise<void> {
    await this.#browser?.close();
    expect(await this.#daemon.stop("SIGTERM")).toBe(0);
    expect(this.#daemon.leftovers()).toEqual(NOTHING_LEFT);
    await this.#daemon.dispose();
  }
}
