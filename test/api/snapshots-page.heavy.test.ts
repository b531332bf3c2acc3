/** Snapshots on the page in a real browser: what it shows is what the API says, and what it does is done. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { agree, button, card, cellOf, forgiveRaces, refusalsOf, rowOf, Tabs } from "../support/page.ts";
import { SnapshotUser } from "../support/snapshots.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const snapshots = new SnapshotUser(daemon);
const tabs = new Tabs(daemon);
const open: typeof tabs.open = (...args) => tabs.open(...args);
const HOSTILE = "<img src=x onerror=window.owned=1>";

/** Deletes all snapshots. */
async function clear(): Promise<void> {
  for (const { snapshot_id, pinned } of (await snapshots.ok("GET", "/api/snapshots")).snapshots) {
    if (pinned) await snapshots.ok("POST", `/api/snapshots/${snapshot_id}/unpin`);
    await snapshots.ok("DELETE", `/api/snapshots/${snapshot_id}`);
  }
}

const listed = async () => (await snapshots.ok("GET", "/api/snapshots")).snapshots;
const tree = (page: Page) => card(page, "Lineage").getByRole("listitem");
const leaf = (page: Page, name: string) => tree(page).filter({ has: page.getByRole("link", { name, exact: true }) });

beforeAll(() => daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" }));

afterEach(async () => {
  await tabs.close();
  await clear();
  await tabs.closeEmpty();
});
afterAll(() => tabs.end());

describe("a container's snapshots", () => {
  it("are taken with the dialog, pinned, unpinned, restored and deleted", async () => {
    const { container_id } = await user.create({ name: "box" });
    await user.shell("box", "echo one > /root/a");
    const tab = await open(`#/containers/${container_id}`);
    const { page, requests } = tab;
    const part = card(page, "Snapshots");
    await part.getByText("No snapshots.").waitFor();
    await button(part, "Take a snapshot").click();
    await page.getByLabel("Name").fill("first");
    await page.getByLabel("Expires").selectOption("after a day");
    await agree(page, "Take");
    const row = rowOf(page, "first");
    await row.getByText("ready").waitFor();
    const [taken] = await listed();
    expect(taken).toMatchObject({ name: "first", ttl_seconds: 86_400, volume_mode: "exclude", container_id });
    await button(row, "Pin first").click();
    await row.getByText("pinned").waitFor();
    expect(await button(row, "Delete first").isVisible()).toBe(false);
    await button(row, "Unpin first").click();
    await row.getByText("ready").waitFor();
    await user.shell("box", "echo two > /root/a");
    await button(row, "Restore first").click();
    await agree(page, "Restore");
    await page.getByText("box is restored to first").waitFor();
    expect(await user.shell("box", "cat /root/a")).toBe("one\n");
    await button(row, "Delete first").click();
    await agree(page, "Delete");
    await part.getByText("No snapshots.").waitFor();
    expect(await listed()).toEqual([]);
    expect(requests.filter((one) => one.includes(KEY))).toEqual([]);
    forgiveRaces(tab);
  });

  it("appear when they are taken elsewhere, and become containers with the dialog", async () => {
    const { container_id } = await user.create({ name: "box" });
    const tab = await open(`#/containers/${container_id}`);
    const { page } = tab;
    await card(page, "Snapshots").getByText("No snapshots.").waitFor();
    await snapshots.take("box", { name: "elsewhere" });
    const row = rowOf(page, "elsewhere");
    await button(row, "Clone elsewhere").click();
    await page.getByLabel("Name").fill("copy");
    await page.getByLabel("Start the container").uncheck();
    await agree(page, "Clone");
    await page.getByRole("heading", { name: "copy" }).waitFor();
    await page.locator(".title .badge").getByText("created").waitFor();
    await page.getByText(`${container_id} (clone)`).waitFor();
    forgiveRaces(tab);
  });

  it("say why one was refused", async () => {
    await user.create({ name: "box" });
    const tab = await open("#/containers/box");
    const { page } = tab;
    await page.route(/\/snapshot\?/, (route) =>
      route.fulfill({ status: 429, json: { error: "refused by the test", error_code: "QUOTA_EXCEEDED" } }),
    );
    await button(page, "Take a snapshot").click();
    await agree(page, "Take");
    await card(page, "Snapshots").getByRole("alert").getByText("refused by the test").waitFor();
    await refusalsOf(tab, 429);
  });
});

describe("the fork button", () => {
  it("copies a container as it is and opens the running copy", async () => {
    const { container_id } = await user.create({ name: "box" });
    await user.shell("box", "echo kept > /root/a");
    const tab = await open(`#/containers/${container_id}`);
    const { page } = tab;
    await button(page, "Fork").click();
    await page.getByText(`${container_id} (fork)`).waitFor();
    await page.locator(".title .badge").getByText("running").waitFor();
    const forked_id = decodeURIComponent(new URL(page.url()).hash.split("/").at(-1) ?? "");
    expect(forked_id).not.toBe(container_id);
    expect(await user.shell(forked_id, "cat /root/a")).toBe("kept\n");
    forgiveRaces(tab);
  });
});

describe("the lineage", () => {
  it("has each snapshot and container under its parent, with links for the keyboard", async () => {
    const { container_id } = await user.create({ name: "box" });
    const first = await snapshots.take("box", { name: "first" });
    await snapshots.take("box", { name: "second" });
    await snapshots.clone(first.snapshot_id, { name: "copy" });
    const tab = await open(`#/snapshots/${first.snapshot_id}`);
    const { page } = tab;
    await leaf(page, "copy").getByText("clone").waitFor();
    await leaf(page, "copy").getByText("created").waitFor();
    await leaf(page, "box").getByText("source").waitFor();
    const names = await card(page, "Lineage").getByRole("listitem").getByRole("link").allTextContents();
    expect(names).toEqual(["first", "copy", "second", "box"]);
    expect(await page.locator(".tree-picture circle").count()).toBe(2);
    expect(await page.locator(".tree-picture rect").count()).toBe(2);
    expect(await leaf(page, "first").getByRole("link").getAttribute("aria-current")).toBe("page");
    // The tree follows what happens.
    await snapshots.fork("box", { name: "fork", resume_policy: "immediate" });
    await leaf(page, "fork").getByText("running").waitFor();
    const { keyboard } = page;
    await leaf(page, "first").getByRole("link").focus();
    await keyboard.press("ArrowDown");
    await keyboard.press("ArrowDown");
    await keyboard.press("Enter");
    await page.getByRole("heading", { name: "second" }).waitFor();
    await leaf(page, "box").getByRole("link").click();
    await page.getByRole("heading", { name: "box" }).waitFor();
    expect(page.url()).toContain(container_id);
    forgiveRaces(tab);
  });

  it("draws 200 snapshots and opens at the selected one", async () => {
    await user.create({ name: "box" });
    const { snapshot_id } = await snapshots.take("box", { name: "real" });
    const nodes = Array.from({ length: 200 }, (_, i) => ({
      snapshot_id: i === 150 ? snapshot_id : `snp_${i}`,
      parent_snapshot_id: i === 0 ? null : i % 10 === 9 ? `snp_${i - 5}` : i === 151 ? snapshot_id : `snp_${i - 1}`,
      ...{ container_id: "ctr_a", name: i % 2 === 0 ? null : HOSTILE, created_at: 1_795_262_400 + i, depth: i },
    }));
    const containers = Array.from({ length: 50 }, (_, i) => ({
      ...{ container_id: `ctr_${i}`, name: HOSTILE, state: "running", snapshot_id: `snp_${i}`, kind: "clone" },
      parent_container_id: null,
    }));
    const { page } = await open("#/snapshots", { width: 360, height: 740 });
    await page.route(/\/lineage$/, (route) =>
      route.fulfill({ json: { snapshot_id, nodes, containers, is_truncated: true } }),
    );
    await page.goto(`${daemon.url}/#/snapshots/${snapshot_id}`);
    await page.getByText("The first 200 snapshots, 50 containers.").waitFor();
    expect(await tree(page).count()).toBe(250);
    await eventually("the tree is at the snapshot", () =>
      page.evaluate("document.querySelector('.tree-box').scrollTop > 1000"),
    );
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
  });
});

describe("the comparison", () => {
  it("lists what two snapshots differ in, by kind and by text", async () => {
    await user.create({ name: "box" });
    await user.shell("box", "mkdir /srv/d; echo 1 > /srv/d/altered; echo 1 > /srv/d/gone");
    await snapshots.take("box", { name: "first" });
    await user.shell("box", "echo 22 > /srv/d/altered; rm /srv/d/gone; echo 1 > /srv/d/new");
    const second = await snapshots.take("box", { name: "second" });
    const { page } = await open(`#/snapshots/${second.snapshot_id}`);
    const part = card(page, "Changes");
    await button(part, "Compare").click();
    await button(part, "1 added").waitFor();
    const rows = part.getByRole("table").getByRole("row");
    await rows.filter({ hasText: "/srv/d/new" }).getByText("added").waitFor();
    await rows.filter({ hasText: "/srv/d/altered" }).getByText("changed", { exact: true }).waitFor();
    await button(part, "1 deleted").click();
    await rows.filter({ hasText: "/srv/d/gone" }).getByText("deleted").waitFor();
    expect(await rows.count()).toBe(2);
    await page.getByRole("searchbox", { name: "Filter changes" }).fill("new");
    await part.getByText(/^0 of/).waitFor();
    await part.getByLabel("To").selectOption({ label: "box, now" });
    await user.shell("box", "echo 1 > /srv/d/later");
    await part.getByLabel("From").selectOption({ value: second.snapshot_id });
    await button(part, "Compare").click();
    await page.getByRole("searchbox", { name: "Filter changes" }).fill("later");
    await rows.filter({ hasText: "/srv/d/later" }).getByText("added").waitFor();
  });

  it("lists what a container has changed since its image, and shows paths as text", async () => {
    await user.create({ name: "box" });
    await user.shell("box", `mkdir '/srv/${HOSTILE.replace("/", "")}'; rm /etc/motd; true`);
    const { page } = await open("#/containers/box");
    await page.getByRole("link", { name: "Compare files" }).click();
    const part = card(page, "Files");
    await part.getByText(HOSTILE.replace("/", "")).first().waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "box" }).waitFor();
  });
});

describe("the list of all snapshots", () => {
  it("is filtered by container, label and kind, and is walked with the keyboard", async () => {
    await user.create({ name: "box" });
    await user.create({ name: "other" });
    await daemon.call("POST", "/api/volumes", { name: "data" });
    await snapshots.take("box", { name: "boxed", labels: { stage: "test" } });
    await snapshots.take("other", { name: HOSTILE, labels: { stage: "test" } });
    const tab = await open("#/volumes/data");
    const { page } = tab;
    await button(page, "Take a snapshot").click();
    await page.getByLabel("Name").fill("kept");
    await page.getByLabel("Expires").selectOption("after a day");
    await agree(page, "Take");
    await page.getByRole("heading", { name: "kept" }).waitFor();
    await page.getByRole("link", { name: "Snapshots", exact: true }).first().click();
    await page.getByText("3 snapshots").waitFor();
    expect(await cellOf(rowOf(page, "kept"), "Source").textContent()).toBe("volume data");
    expect(await cellOf(rowOf(page, "kept"), "Expires").textContent()).toMatch(/^in (1 day|23 h)$/);
    await page.getByRole("searchbox").fill("stage=test box");
    await page.getByText("1 of 3 snapshots").waitFor();
    await page.getByRole("searchbox").fill("");
    await button(page, "Volumes").click();
    await page.getByText("1 of 3 snapshots").waitFor();
    await page.getByRole("searchbox").focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByText("of data", { exact: true }).waitFor();
    expect(await button(page, "Restore kept").isVisible()).toBe(false);
    await button(page, "Delete kept").click();
    await agree(page, "Delete");
    await page.getByRole("heading", { name: "Snapshots" }).waitFor();
    await button(page, "All").click();
    await page.getByText("2 snapshots").waitFor();
    forgiveRaces(tab);
  });

  it("offers a key that may only read nothing that would be refused", async () => {
    await user.create({ name: "box" });
    const { snapshot_id } = await snapshots.take("box", { name: "first" });
    const key = (await daemon.call("POST", "/api/api-keys", { name: "looker", scopes: ["read"] })).body.key;
    const { page } = await open("#/containers/box", undefined, key);
    await rowOf(page, "first").waitFor();
    expect(await button(page, "Fork").isVisible()).toBe(false);
    expect(await button(page, "Take a snapshot").isVisible()).toBe(false);
    await page.goto(`${daemon.url}/#/snapshots/${snapshot_id}`);
    await leaf(page, "box").waitFor();
    for (const name of ["Clone", "Restore", "Pin", "Delete"])
      expect([name, await button(page, `${name} first`).isVisible()]).toEqual([name, false]);
    await button(page, "Compare").click();
    await page.getByText("No difference.").waitFor();
  });
});

describe("a screen of 360 pixels", () => {
  it("has room for every view of snapshots, in light and dark", async () => {
    const name = "a-name-that-is-quite-long-and-has-no-place-to-break".repeat(2);
    const { container_id } = await user.create({ name });
    await user.shell(name, `mkdir -p /srv/${name}; echo 1 > /srv/${name}/${"f".repeat(200)}`);
    const { snapshot_id } = await snapshots.take(name, { name, labels: { [name]: "y".repeat(200) } });
    const tab = await open("#/snapshots", { width: 360, height: 740 });
    const { page } = tab;
    const views: readonly (readonly [string, () => Promise<void>])[] = [
      ["#/snapshots", () => rowOf(page, name).waitFor()],
      [`#/snapshots/${snapshot_id}`, () => leaf(page, name).first().waitFor()],
      [`#/containers/${container_id}`, () => rowOf(page, name).waitFor()],
      [
        `#/containers/${container_id}/changes`,
        () =>
          page
            .getByText(/path|difference/)
            .first()
            .waitFor(),
      ],
    ];
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      for (const [hash, isThere] of views) {
        await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
        await isThere();
        const widths = await page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]");
        expect([hash, widths]).toEqual([hash, [360, 360]]);
      }
    }
    forgiveRaces(tab);
  });
});
