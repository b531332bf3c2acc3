/** People who sign in on the page with a password, in a real browser. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, openTab, signIn, type Tab } from "../support/browser.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { button, refusalsOf } from "../support/page.ts";
import { PASSWORD } from "../support/people.ts";

const daemon = new Daemon();
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn", HEARTH_USERS: "on" };
const browser = await openBrowser();
const tabs: Tab[] = [];

beforeAll(() => daemon.start(SETTINGS));
afterAll(async () => {
  for (const { page } of tabs) await page.context().close();
  await browser.close();
  await daemon.dispose();
});

async function open(): Promise<Tab> {
  const tab = await openTab(browser, `${daemon.url}/`);
  tabs.push(tab);
  return tab;
}

async function fill({ page }: Tab, fields: Readonly<Record<string, string>>, submit: string): Promise<void> {
  for (const [label, value] of Object.entries(fields)) await page.getByLabel(label, { exact: true }).fill(value);
  await button(page, submit).click();
}

const stored = ({ page }: Tab) => page.evaluate("({ ...sessionStorage })") as Promise<Record<string, string>>;
const signedIn = ({ page }: Tab) => button(page, "Sign out").waitFor();
const statusOf = async (key: string) =>
  (await fetch(`${daemon.url}/api/functions`, { headers: { "x-api-key": key } })).status;

describe("the page", () => {
  it("lets somebody register, keeps the tab signed in over a reload, and signs out", async () => {
    const tab = await open();
    await button(tab.page, "New account").click();
    await fill(tab, { Name: "Ada", "E-mail": "ada@example.com", Password: "short" }, "Create account");
    await tab.page.getByText("must have at least 8 characters").waitFor();
    await refusalsOf(tab, 400);
    await fill(tab, { Password: PASSWORD }, "Create account");
    await signedIn(tab);
    await tab.page.reload();
    await signedIn(tab);
    const { "hearth.key": token = "" } = await stored(tab);
    expect(await statusOf(token)).toBe(200);
    await button(tab.page, "Sign out").click();
    await tab.page.getByLabel("Password").waitFor();
    await eventually("the login has ended on the daemon", async () => (await statusOf(token)) === 401);
    expect(await stored(tab)).toEqual({});
    expect(tab.errors).toEqual([]);
  });

  it("signs in with a password, says when it is wrong, and renews the token before it ends", async () => {
    const tab = await open();
    await fill(tab, { "E-mail": "ADA@example.com", Password: "wrong horse battery" }, "Sign in");
    await tab.page.getByText("wrong e-mail address or password").waitFor();
    await refusalsOf(tab, 401);
    await fill(tab, { Password: PASSWORD }, "Sign in");
    await signedIn(tab);
    const before = await stored(tab);
    // The time of the next renewal, as if 55 minutes had passed.
    const due = JSON.stringify({ ...JSON.parse(before["hearth.login"] ?? "{}"), renew_at_ms: 1 });
    await tab.page.evaluate(`sessionStorage.setItem("hearth.login", ${JSON.stringify(due)})`);
    await tab.page.reload();
    await signedIn(tab);
    await eventually("another token", async () => (await stored(tab))["hearth.key"] !== before["hearth.key"]);
    const after = await stored(tab);
    expect(JSON.parse(after["hearth.login"] ?? "{}").refresh_token).not.toBe(JSON.parse(due).refresh_token);
    expect(await statusOf(after["hearth.key"] ?? "")).toBe(200);
    const renewals = tab.requests.filter((request) => request.endsWith("/api/auth/refresh"));
    expect([renewals.length, tab.errors]).toEqual([1, []]);
  });

  it("takes a key as well, and asks for nothing else where users are off", async () => {
    const tab = await open();
    await button(tab.page, "Use an API key").click();
    await signIn(tab);
    await signedIn(tab);
    await daemon.stop();
    await daemon.start({ ...SETTINGS, HEARTH_USERS: "off" });
    const other = await open();
    await signIn(other);
    await signedIn(other);
    expect(await other.page.getByLabel("Password").count()).toBe(0);
  });
});
