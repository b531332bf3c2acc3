/** The areas of the page in a real browser: the navigation, their lists and records, and every view at every width. */
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { PICTURES, takePictures } from "../../bench/console-pictures.ts";
import { openBrowser } from "../support/browser.ts";
import { LONG, type Stock, stock } from "../support/console-stock.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { layoutFaults } from "../support/layout.ts";
import { agree, button, card, cellOf, forgiveRaces, refusalsOf, rowOf, Tabs } from "../support/page.ts";
import { brightness, Pixels } from "../support/pixels.ts";
import { readText } from "../support/project-files.ts";

const daemon = new Daemon();
const tabs = new Tabs(daemon);
/** CSS pixels. */
const WIDTHS = [360, 768, 1024, 1280, 1920];
/** In light alone: what WCAG 2.2 wants content to fit into (1.4.10), and where the menu becomes a bar. */
const MORE_WIDTHS = [320, 980];
const GROUPS = {
  Compute: ["Functions", "Containers", "Terminals"],
  Storage: ["Images", "Profiles", "Volumes", "Snapshots", "Secrets"],
  Network: ["Networks", "Services", "Messages"],
  Monitor: ["Operations", "Activity"],
};
/** Lists by their addresses, with what each says while it is empty and the request that it makes. */
const LISTS = [
  ["#/images", "No images.", "/api/oci/images?"],
  ["#/networks", "No networks. The first container that names a network makes it.", "/api/networks"],
  ["#/services", "No services. Publish a port on the page of a container.", "/api/services?"],
  ["#/terminals", "No sessions. Terminal on the page of a container opens one.", "/api/terminal/sessions?"],
  ["#/operations", "No operations.", "/api/operations?"],
  ["#/profiles", "", "/api/nightly/profiles"],
] as const;
/** Columns and rows in which pictures are compared, and how much may differ: brightness of a field, and such fields. */
const FIELDS = [32, 20] as const;
const FIELD_DIFFERENCE = 12;
const FIELDS_CHANGED_MAX = 48;
let made: Stock;
let other_key = "";

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "1", HEARTH_LOG_LEVEL: "warn" });
  made = await stock(daemon);
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "empty" })).body;
  other_key = (await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "empty" })).body.key;
});
afterEach(() => tabs.close());
afterAll(async () => {
  await tabs.closeEmpty();
  for (const { id } of (await daemon.call("GET", "/api/functions")).body.functions) {
    await daemon.call("DELETE", `/api/functions/${id}`);
  }
  await tabs.end();
});

const go = (page: Page, hash: string) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
const areas = (page: Page) => page.getByRole("navigation", { name: "Areas" });
const menu = (page: Page) => button(page, "Menu");
const focused = (page: Page): Promise<string> => page.evaluate("document.activeElement.textContent");

/** Goes to a view, and waits until it is complete. */
async function show(page: Page, [hash, text]: readonly [string, string]): Promise<void> {
  await go(page, hash);
  await page.locator("main").getByText(text).locator("visible=true").first().waitFor();
}

describe("the navigation", () => {
  it("has every area in its group, says where the view is, and has the session in sight", async () => {
    const { page } = await tabs.open("#/", { width: 1280, height: 400 });
    for (const [group, names] of Object.entries(GROUPS)) {
      const links = areas(page).getByRole("list", { name: group }).getByRole("link");
      expect(await links.allTextContents()).toEqual(names);
    }
    for (const name of Object.values(GROUPS).flat()) {
      await areas(page).getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
      expect(await areas(page).locator("[aria-current=page]").allTextContents()).toEqual([name]);
    }
    // The areas scroll where the window is low; live, help and Sign out stay.
    for (const one of [page.locator(".connection"), button(page, "Keys"), button(page, "Sign out")]) {
      const box = await one.boundingBox();
      expect(box?.x).toBeGreaterThanOrEqual(0);
      expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(1280);
      expect((box?.y ?? 0) + (box?.height ?? 0)).toBeLessThanOrEqual(400);
    }
    await go(page, `#/services/${made.service_id}`);
    await page.getByRole("heading", { level: 1, name: "web" }).waitFor();
    expect(await areas(page).locator("[aria-current=page]").allTextContents()).toEqual(["Services"]);
    expect(await page.locator("header, main, nav").count()).toBe(4);
    // It has room for more than there are.
    const more = "areas.append(areas.lastElementChild.cloneNode(true))";
    await page.evaluate(`const areas = document.querySelector("nav"); ${more}; ${more}; ${more}`);
    expect(await layoutFaults(page)).toEqual([]);
    await areas(page).getByRole("link", { name: "Activity" }).last().click();
    await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
  });

  it("is a menu on narrow windows: it closes with Escape, with a choice and with a look elsewhere", async () => {
    const { page } = await tabs.open("#/containers", { width: 360, height: 740 });
    await rowOf(page, "web").waitFor();
    expect(await areas(page).isVisible()).toBe(false);
    await menu(page).click();
    expect(await menu(page).getAttribute("aria-expanded")).toBe("true");
    expect(await areas(page).getByRole("link", { name: "Activity" }).isVisible()).toBe(true);
    expect(await layoutFaults(page)).toEqual([]);
    await page.keyboard.press("Escape");
    expect(await areas(page).isVisible()).toBe(false);
    expect(await focused(page)).toBe("Menu");
    // Another Escape means what it means without the menu, and nothing else was done by the first.
    await page.getByRole("heading", { name: "Containers" }).waitFor();
    await page.keyboard.press("Enter");
    await areas(page).getByRole("link", { name: "Networks" }).click();
    await page.getByRole("heading", { name: "Networks" }).waitFor();
    expect(await areas(page).isVisible()).toBe(false);
    await menu(page).click();
    await areas(page).getByRole("link", { name: "Networks" }).click();
    expect(await areas(page).isVisible()).toBe(false);
    await menu(page).click();
    await page.getByRole("searchbox").focus();
    expect(await areas(page).isVisible()).toBe(false);
    for (const one of [button(page, "Keys"), button(page, "Sign out")]) expect(await one.isVisible()).toBe(true);
  });

  it("is skipped with the first link of the page", async () => {
    const { page } = await tabs.open("#/images");
    const first = page.locator("a, button, input").first();
    await first.focus();
    expect(await focused(page)).toBe("Skip to the content");
    expect((await first.boundingBox())?.x).toBeGreaterThanOrEqual(0);
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement.id")).toBe("main");
    expect(await page.evaluate("location.hash")).toBe("#/images");
  });

  it("has room for the word that says that hearth does not answer", async () => {
    const tab = await tabs.open("#/profiles", { width: 360, height: 740 });
    const { page } = tab;
    await page.route("**/api/**", (route) => route.abort());
    await page.locator(".connection").getByText("reconnecting").waitFor();
    expect(await layoutFaults(page)).toEqual([]);
    for (const error of tab.errors.splice(0)) expect(error).toContain("ERR_FAILED");
  });
});

describe("the list of each area", () => {
  it("says that there is nothing, and what makes something", async () => {
    const { page } = await tabs.open("#/images", undefined, other_key);
    for (const [hash, none] of LISTS) {
      await go(page, hash);
      if (none === "") await rowOf(page, "prod").waitFor();
      else await page.locator("main").getByText(none, { exact: true }).waitFor();
    }
  });

  it("says why it is not there, and comes when it can", async () => {
    const { page, errors } = await tabs.open("#/activity");
    const json = { error: "refused by the test", error_code: "FORBIDDEN", request_id: "req_test" };
    const isList = (url: URL) => LISTS.some(([, , path]) => (url.pathname + url.search).startsWith(path));
    await page.route(isList, (route) => route.fulfill({ status: 403, json }));
    for (const [hash] of LISTS) {
      await go(page, hash);
      await page.getByRole("alert").getByText("refused by the test").waitFor();
      expect(await page.getByText("Loading…").isVisible()).toBe(false);
      expect(await page.getByRole("table").isVisible()).toBe(false);
    }
    await page.unroute(isList);
    await rowOf(page, "prod").waitFor();
    await page.getByRole("alert").waitFor({ state: "hidden" });
    expect(errors.splice(0).filter((error) => !error.includes("status of 403"))).toEqual([]);
  });

  it("is filtered and walked with the keyboard, and leads to its records and back", async () => {
    const { page } = await tabs.open("#/networks");
    await rowOf(page, "shop").waitFor();
    const { keyboard } = page;
    await keyboard.press("/");
    await keyboard.type("shop");
    await page.getByText("1 of 2 networks").waitFor();
    await keyboard.press("ArrowDown");
    await keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "shop" }).waitFor();
    expect(await cellOf(rowOf(page, "web"), "DNS name").textContent()).toBe("web.shop.hearth.internal");
    await keyboard.press("Escape");
    await rowOf(page, "shop").waitFor();
    expect(await focused(page)).toBe("shop");
  });

  it("shows what the API says", async () => {
    const { page } = await tabs.open("#/terminals");
    await cellOf(rowOf(page, "/bin/bash"), "Container").getByText("web", { exact: true }).waitFor();
    await go(page, "#/services");
    const { hash } = new URL(await page.evaluate("location.href"));
    expect(hash).toBe("#/services");
    await cellOf(rowOf(page, LONG), "Status").getByText("pending").waitFor();
    const web = page.getByRole("row").filter({ has: page.locator(`[href="#/services/${made.service_id}"]`) });
    expect(await cellOf(web, "Container").textContent()).toBe("web");
    expect(await cellOf(web, "Port").textContent()).toBe("8080");
    // The token is in the link alone.
    expect(await page.locator("body").textContent()).not.toContain("hst_");
    await go(page, "#/images");
    await cellOf(rowOf(page, made.image), "Platform").getByText("linux/").waitFor();
    await go(page, "#/profiles");
    await cellOf(rowOf(page, "prod"), "State").getByText("ready").waitFor();
    await go(page, "#/operations");
    await page.getByRole("link", { name: "snapshot.create" }).click();
    await page.getByRole("heading", { level: 1, name: "snapshot.create" }).waitFor();
    await card(page, "Operation").getByRole("link", { name: made.container_id }).click();
    await page.getByRole("heading", { level: 1, name: "web" }).waitFor();
  });

  it("gives text that is cut its whole text as a title", async () => {
    const { page } = await tabs.open("#/volumes", { width: 768, height: 800 });
    const cell = cellOf(rowOf(page, LONG), "Name");
    await cell.hover();
    expect(await cell.getAttribute("title")).toBe(LONG);
    expect(await cellOf(rowOf(page, "data"), "Name").getAttribute("title")).toBeNull();
  });
});

describe("a record of an area", () => {
  it("is deleted after a question: a session, a service, an image", async () => {
    const create = { container_id: made.container_id, command: ["sleep", "1000"] };
    const { session_id } = (await daemon.call("POST", "/api/terminal/sessions", create)).body;
    const tab = await tabs.open("#/terminals");
    const { page } = tab;
    await button(rowOf(page, "sleep"), "End sleep in web").click();
    await rowOf(page, "sleep").waitFor({ state: "detached" });
    const { state } = (await daemon.call("GET", `/api/terminal/sessions/${session_id}`)).body;
    expect(state).toBe("terminated");
    const path = `/api/containers/${made.container_id}/services`;
    const { service_id } = (await daemon.call("POST", path, { name: "brief", target_port: 82 })).body;
    await go(page, `#/services/${service_id}`);
    await button(page, "Delete brief").click();
    await agree(page, "Delete");
    await page.getByRole("heading", { level: 1, name: "Services" }).waitFor();
    expect((await daemon.call("GET", `/api/services/${service_id}`)).status).toBe(404);
    const target = "localhost/again:1";
    await daemon.call("POST", "/api/oci/images/tag", { reference: made.image, target });
    await go(page, `#/images/${encodeURIComponent(target)}`);
    await button(page, "Delete").click();
    await agree(page, "Delete");
    await page.getByRole("heading", { level: 1, name: "Images" }).waitFor();
    await rowOf(page, made.image).waitFor();
    expect(await rowOf(page, target).count()).toBe(0);
    forgiveRaces(tab);
  });

  it("of a pull is its operation, which says why it failed", async () => {
    const { page } = await tabs.open("#/images");
    await page.getByRole("link", { name: "Pull image" }).click();
    await page.getByLabel("Reference").fill("127.0.0.1:1/none:1");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "oci.pull" }).waitFor();
    await page.locator(".title .badge").getByText("failed").waitFor();
    const id = decodeURIComponent(String(await page.evaluate("location.hash")).replace("#/operations/", ""));
    const { error } = (await daemon.call("GET", `/api/operations/${id}`)).body;
    await page.locator(".detail-head").getByText(error).waitFor();
  });

  it("that is not there says so", async () => {
    const tab = await tabs.open("#/");
    const { page } = tab;
    for (const hash of ["images/no%3A1", "networks/no", "services/no", "profiles/no", "operations/no"]) {
      await go(page, `#/${hash}`);
      await page.getByRole("alert").getByText("NOT_FOUND").waitFor();
      expect(await page.getByText("Loading…").isVisible()).toBe(false);
    }
    await refusalsOf(tab, 404, 404, 404, 404);
  });

  it("offers a reader nothing that would be refused", async () => {
    const key = (await daemon.call("POST", "/api/api-keys", { name: "reader", scopes: ["read"] })).body.key;
    const { page } = await tabs.open("#/images", undefined, key);
    await rowOf(page, made.image).waitFor();
    expect(await page.getByRole("link", { name: "Pull image" }).isVisible()).toBe(false);
    await show(page, [`#/images/${encodeURIComponent(made.image)}`, "Layers"]);
    expect(await button(page, "Delete").isVisible()).toBe(false);
    await show(page, [`#/services/${made.service_id}`, "Token rotated"]);
    for (const name of ["Rotate web", "Delete web"]) expect(await button(page, name).isVisible()).toBe(false);
    await show(page, ["#/terminals", "1 session"]);
    expect(await button(page, "End /bin/bash in web").isVisible()).toBe(false);
  });
});

describe("the pictures in README", () => {
  it("are those that are taken of the console, and show it as it is now", async () => {
    const names = [...readText("README.md").matchAll(/\]\(\.readme\/([\w-]+\.png)\)/g)].map(([, name]) => name);
    expect(names).toEqual(PICTURES);
    const browser = await openBrowser();
    try {
      for (const { name, png } of await takePictures(daemon, browser)) {
        const stored = new Pixels(readFileSync(new URL(`../../.readme/${name}`, import.meta.url)));
        const [then, now] = [stored, new Pixels(png)].map((pixels) => brightness(pixels, ...FIELDS));
        // Figures, times and points of a plot differ from run to run; where things are does not.
        const changed = now?.filter((value, i) => Math.abs(value - (then?.[i] ?? 0)) > FIELD_DIFFERENCE) ?? [];
        expect(changed.length, `${name} is of another console: npm run pictures`).toBeLessThan(FIELDS_CHANGED_MAX);
      }
    } finally {
      await browser.close();
    }
  });
});

describe("every view", () => {
  it("has all of it in sight at every width, light and dark", async () => {
    const tab = await tabs.open("#/");
    const { page } = tab;
    const faults: string[] = [];
    for (const view of made.views) {
      await show(page, view);
      for (const width of [...WIDTHS, ...MORE_WIDTHS]) {
        await page.setViewportSize({ width, height: 800 });
        for (const colorScheme of WIDTHS.includes(width) ? (["dark", "light"] as const) : (["light"] as const)) {
          await page.emulateMedia({ colorScheme });
          for (const fault of await layoutFaults(page)) faults.push(`${view[0]} at ${width} ${colorScheme}: ${fault}`);
        }
      }
    }
    expect(faults).toEqual([]);
    await eventually("it is still live", () => page.locator(".connection").getByText("live").isVisible());
    forgiveRaces(tab);
  });
});
