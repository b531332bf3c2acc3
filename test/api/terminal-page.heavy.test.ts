/** The terminal of the page in a real browser: xterm.js under the page's policy, on a real shell. */
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, openTab, signIn, type Tab } from "../support/browser.ts";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { SETTINGS } from "../support/terminals.ts";

const daemon = new Daemon();
let browser: Browser;
let container_id = "";
const tabs: Tab[] = [];

beforeAll(async () => {
  await daemon.start(SETTINGS);
  const made = await daemon.call("POST", "/api/containers", { name: "seen" });
  expect(made.status).toBe(201);
  container_id = made.body.container_id;
  browser = await openBrowser();
});

afterEach(async () => {
  for (const { page, errors, requests } of tabs.splice(0)) {
    await page.context().close();
    // What the policy forbids is an error on the console.
    expect(errors).toEqual([]);
    expect(requests.filter((request) => !request.includes(` ${daemon.url}/`))).toEqual([]);
  }
  for (const { id } of await sessions()) await daemon.call("DELETE", `/api/terminal/sessions/${id}`);
});

afterAll(async () => {
  await browser.close();
  await daemon.call("DELETE", `/api/containers/${container_id}`);
  await daemon.stop();
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const sessions = async () => (await daemon.call("GET", "/api/terminal/sessions")).body.sessions;
const shown = (page: Page): Promise<string> =>
  page.evaluate("[...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent).join('\\n')");

async function shows(page: Page, pattern: RegExp): Promise<void> {
  const last = { text: "" };
  await eventually(`${pattern} on the terminal`, async () => {
    last.text = await shown(page);
    return pattern.test(last.text);
  }).catch((error) => {
    throw new Error(`${error.message}: ${last.text}`);
  });
}

/** A tab with a terminal in the container, and the prompt of its shell shown. */
async function open(key = KEY): Promise<Page> {
  const tab = await openTab(browser, `${daemon.url}/#/containers/${container_id}/terminal`);
  tabs.push(tab);
  await signIn(tab, key);
  await shows(tab.page, /# /);
  return tab.page;
}

async function type(page: Page, line: string): Promise<void> {
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
}

describe("a terminal on the page", () => {
  it("takes the keys, Tab and Escape among them, and shows what the shell writes", async () => {
    const page = await open();
    await type(page, "echo typed-$((40 + 2))");
    await shows(page, /typed-42/);
    // Until the command runs, the shell itself reads the keys.
    await type(page, "echo cat-$((40 + 3)); cat -A");
    await shows(page, /cat-43/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Tab");
    await type(page, "x");
    await shows(page, /\^\[\^Ix\$/);
    await page.keyboard.press("Control+c");
    await type(page, "echo after-$((1 + 1))");
    await shows(page, /after-2/);
    await page.keyboard.press("Control+F6");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("End");
  });

  it("draws colours of the palette, and any other, under a policy without inline styles", async () => {
    const page = await open();
    await type(page, "clear; printf '\\033[31mpale%s\\033[0m \\033[38;2;1;2;3mtrue%s\\033[0m\\n' tte color");
    await shows(page, /palette truecolor/);
    const colour = (text: string) =>
      page.evaluate(
        `getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find((one) => one.textContent.includes('${text}'))).color`,
      );
    expect([await colour("palette"), await colour("truecolor")]).toEqual(["rgb(204, 0, 0)", "rgb(1, 2, 3)"]);
    const policy = (await fetch(`${daemon.url}/`)).headers.get("content-security-policy") ?? "";
    expect(policy).toContain("style-src 'self';");
    expect(policy).toContain("trusted-types 'none'");
  });

  it("is as large as its box", async () => {
    const page = await open();
    const size = async () => {
      const [{ cols, rows }] = await sessions();
      return { cols, rows };
    };
    const before = await size();
    await page.setViewportSize({ width: 800, height: 600 });
    const after = await eventually("it is smaller", async () => {
      const now = await size();
      return now.cols < before.cols && now.rows < before.rows ? now : null;
    });
    await type(page, "clear; stty size");
    await shows(page, new RegExp(`${after.rows} ${after.cols}`));
  });

  it("is the same shell after a reload", async () => {
    const page = await open();
    await type(page, "kept=$((20 + 1))");
    await page.reload();
    await page.getByText("/bin/bash in").waitFor();
    await type(page, "echo still-$kept");
    await shows(page, /still-21/);
    expect(await sessions()).toHaveLength(1);
    expect(await page.evaluate("Object.values(sessionStorage)")).toEqual([KEY]);
  });

  it("says how the shell ended, and starts another one", async () => {
    const page = await open();
    await type(page, "exit 3");
    await page.getByText("the shell exited with code 3").waitFor();
    await page.getByRole("button", { name: "New shell" }).click();
    await page.getByText("/bin/bash in").waitFor();
    await page.locator(".terminal-box").click();
    await type(page, "echo new-$((1 + 1))");
    await shows(page, /new-2/);
    await page.getByRole("button", { name: "End", exact: true }).click();
    await page.getByText("the shell exited with SIGHUP").waitFor();
    expect(await sessions()).toEqual([]);
  });

  it("says that it was opened elsewhere, and takes it back", async () => {
    const page = await open();
    const other = await openTab(browser, page.url());
    tabs.push(other);
    await signIn(other);
    await page.getByText("another client has attached to this terminal").waitFor();
    await page.getByRole("button", { name: "Attach here" }).click();
    await other.page.getByText("another client has attached to this terminal").waitFor();
    expect(await sessions()).toHaveLength(1);
  });

  it("is left with its view, and found again on the way back", async () => {
    const page = await open();
    await type(page, "kept=$((30 + 1))");
    await page.getByRole("link", { name: "Functions" }).click();
    await eventually("nobody is attached", async () => (await sessions())[0].state === "idle");
    expect(await page.evaluate("document.adoptedStyleSheets.length")).toBe(0);
    await page.goBack();
    await page.getByText("/bin/bash in").waitFor();
    await type(page, "echo back-$kept");
    await shows(page, /back-31/);
  });

  it("is the shell that was left, each time that Terminal is opened, until a new one is asked for", async () => {
    const page = await open();
    await type(page, "kept=$((40 + 1))");
    for (const round of [1, 2]) {
      await page.getByRole("link", { name: "seen" }).click();
      await eventually("nobody is attached", async () => (await sessions())[0].state === "idle");
      await page.getByRole("link", { name: "Terminal", exact: true }).click();
      await page.getByText("/bin/bash in").waitFor();
      await type(page, `echo round-${round}-$kept`);
      await shows(page, new RegExp(`round-${round}-41`));
    }
    expect(await sessions()).toHaveLength(1);
    await page.getByRole("link", { name: "New shell" }).click();
    await eventually("there are two", async () => (await sessions()).length === 2);
    await shows(page, /# \s*$/);
    const rows = page.getByRole("table", { name: "Terminals" }).getByRole("row");
    await rows.filter({ hasText: "idle" }).waitFor();
    await rows.filter({ hasText: "idle" }).getByRole("button").click();
    await eventually("one is left", async () => (await sessions()).length === 1);
    await rows.filter({ hasText: "idle" }).waitFor({ state: "detached" });
    expect((await sessions())[0].state).toBe("active");
  });

  it("leaves a session alone that runs a command, and one that another client has", async () => {
    const made = await daemon.call("POST", "/api/terminal/sessions", { container_id, command: ["sleep", "1000"] });
    expect(made.body).toMatchObject({ is_shell: false, shell: "sleep" });
    const first = await open();
    const second = await open();
    expect(new Set([first.url(), second.url()]).size).toBe(2);
    const open_ids = (await sessions()).map(({ id }: { id: string }) => id);
    expect(open_ids).toHaveLength(3);
    expect(second.url().endsWith(made.body.session_id)).toBe(false);
  });

  it("is drawn to the end of what is written faster than it can be", async () => {
    const page = await open();
    await type(page, "seq 1 3000000; echo end-$((1 + 1))");
    await shows(page, /end-2/);
  });

  it("is a new shell when the daemon has come back, to whom the old one is unknown", async () => {
    const page = await open();
    const [{ id }] = await sessions();
    await daemon.stop();
    await page.getByText("connection lost, reconnecting").waitFor();
    await daemon.start(SETTINGS);
    await page.getByText("/bin/bash in").waitFor();
    const [now] = await sessions();
    expect([now.id === id, page.url().endsWith(now.id)]).toEqual([false, true]);
    // The browser notes what it could not reach, and the session that is not there.
    tabs[0]?.errors.splice(0);
  });

  it("says why where there is none", async () => {
    const page = await open();
    await page.evaluate("location.hash = '#/containers/nobody/terminal'");
    await page.getByRole("alert").getByText("container 'nobody' not found").waitFor();
    expect(tabs[0]?.errors.splice(0)).toEqual([expect.stringContaining("404")]);
  });
});
