/** Messages on the page in a real browser: what it shows is what the API says, and what it does is done. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { agree, button, card, cellOf, forgiveRaces, refusalsOf, Tabs } from "../support/page.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const tabs = new Tabs(daemon);
/** A slow round delays the next by nine times its time, so that news may come late. */
const open: typeof tabs.open = async (...args) => {
  const tab = await tabs.open(...args);
  tab.page.setDefaultTimeout(30_000);
  return tab;
};
const HOSTILE = "<img src=x onerror=window.owned=1>";
const RIGHT_TO_LEFT = "\u202e";

async function ok(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const answer = await daemon.call(method, path, body, headers);
  if (answer.status >= 300)
    throw new Error(`${method} ${path} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}
const send = (to: string, fields: object = {}) =>
  ok("POST", "/api/icc/messages", { to, type: "task.created", payload: { n: 42 }, ...fields });
const inboxOf = async (name: string) => (await ok("GET", `/api/icc/inbox/${name}?include_message=true`)).messages;
const nack = (inbox: string, msg_id: string, reason: string) =>
  ok("POST", `/api/icc/inbox/${inbox}/ack`, { msg_id, action: "nack", reason });

const messages = (page: Page) => card(page, "Messages");
const entry = (page: Page, seq: number, where = messages(page)) => where.locator(`[data-seq="${seq}"]`);
const letters = (page: Page) => card(page, "Dead letters");
const numbers = async (page: Page) => messages(page).locator(".entry .col-number").allTextContents();

let tenant_count = 0;
async function stranger() {
  tenant_count++;
  const { tenant_id } = await ok("POST", "/api/tenants", { name: `stranger-${tenant_count}` });
  const { key } = await ok("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" });
  return { tenant_id, key };
}

beforeAll(() => daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" }));

afterEach(async () => {
  await tabs.close();
  await tabs.closeEmpty();
});
afterAll(() => tabs.end());

describe("the inbox of a container", () => {
  it("shows messages as they are published and settled, and opens one on demand", async () => {
    const { container_id } = await user.create({ name: "worker" });
    const tab = await open(`#/containers/${container_id}`);
    const { page, requests } = tab;
    await messages(page).getByText("No messages.").waitFor();
    await send("worker", { msg_id: "first", correlation_id: "asked" });
    await send("worker", { type: "error", payload: { code: "TIMEOUT", message: "late" } });
    const first = entry(page, 1);
    await first.getByText("unread").waitFor();
    await messages(page).getByText("2 unread of 2 messages").waitFor();
    expect(await numbers(page)).toEqual(["2", "1"]);
    expect(await cellOf(first, "Type").textContent()).toBe("task.created");
    expect(await cellOf(first, "From").textContent()).toBe("api");
    expect(await cellOf(entry(page, 2), "Type").textContent()).toBe("error");
    expect(requests.filter((one) => one.includes("include_message"))).toEqual([]);
    await button(first, "Message 1").click();
    await first.getByText('"n": 42').waitFor();
    await first.getByText("asked", { exact: true }).waitFor();
    // Acked elsewhere, while the message is open.
    await ok("POST", "/api/icc/ack", { msg_id: "first" });
    await first.getByText("acked").waitFor();
    await messages(page).getByText("1 unread of 2 messages").waitFor();
    expect(await first.getByText('"n": 42').isVisible()).toBe(true);
    expect(requests.filter((one) => one.includes(KEY))).toEqual([]);
    forgiveRaces(tab);
  });

  it("acks, nacks and replays messages", async () => {
    await user.create({ name: "worker" });
    await send("worker", { payload: "one" });
    await send("worker", { payload: "two" });
    const tab = await open("#/containers/worker");
    const { page } = tab;
    await button(entry(page, 1), "Ack message 1").click();
    await agree(page, "Ack");
    await entry(page, 1).getByText("acked").waitFor();
    expect(await button(entry(page, 1), "Ack message 1").isVisible()).toBe(false);
    await button(entry(page, 2), "Nack message 2").click();
    await page.getByLabel("Reason").fill("no luck");
    await agree(page, "Nack");
    await entry(page, 2).getByText("failed").waitFor();
    await button(entry(page, 1), "Replay message 1").click();
    await agree(page, "Replay");
    await entry(page, 3).getByText("unread").waitFor();
    const [one, two, three] = await inboxOf("worker");
    expect([one.state, two.state, three.state]).toEqual(["acked", "failed", "unread"]);
    expect([three.message.payload, three.message.causation_id]).toEqual(["one", one.msg_id]);
    const dead = (await ok("GET", "/api/icc/dlq")).messages.at(-1);
    expect(dead).toMatchObject({ msg_id: two.msg_id, reason: "no luck" });
    forgiveRaces(tab);
  });

  it("shows what a sender chose as text, of bounded length, with unseen characters as escapes", async () => {
    await user.create({ name: "worker" });
    const from = `${HOSTILE}${RIGHT_TO_LEFT}ipa`;
    const payload = {
      html: HOSTILE,
      turned: `${RIGHT_TO_LEFT}gpj.exe`,
      long: "x".repeat(900_000),
      [HOSTILE]: "\u0007",
    };
    await send("worker", { from, msg_id: `${HOSTILE}${RIGHT_TO_LEFT}1`, payload });
    const tab = await open("#/containers/worker", { width: 360, height: 740 });
    const { page } = tab;
    const first = entry(page, 1);
    await button(first, "Message 1").click();
    const shown = first.getByLabel("Payload", { exact: true });
    await shown.waitFor();
    const text = (await shown.textContent()) ?? "";
    expect(text.length).toBe(20_000);
    expect(text).toContain(`"html": "${HOSTILE}"`);
    expect(text).toContain('"turned": "\\u202egpj.exe"');
    expect(await cellOf(first, "From").textContent()).toBe(`${HOSTILE}\\u202eipa`);
    await first.getByText(`${HOSTILE}\\u202e1`, { exact: true }).waitFor();
    expect(((await first.textContent()) ?? "").match(/\p{Cf}|\u2028/u)).toBeNull();
    expect(await page.locator("main img").count()).toBe(0);
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
    await first.getByRole("button", { name: /^Show all/ }).click();
    expect(((await shown.textContent()) ?? "").length).toBeGreaterThan(900_000);
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
    forgiveRaces(tab);
  });

  it("pages through many messages, and stays where a message is open", async () => {
    await user.create({ name: "worker" });
    for (let i = 0; i < 60; i++) await send("worker", { payload: i });
    const tab = await open("#/containers/worker");
    const { page, requests } = tab;
    await messages(page).getByText("36 to 60 of 60").waitFor();
    await button(messages(page), "Older messages").click();
    await messages(page).getByText("11 to 35 of 60").waitFor();
    await button(messages(page), "Older messages").click();
    await messages(page).getByText("1 to 10 of 60").waitFor();
    expect(await button(messages(page), "Older messages").isVisible()).toBe(false);
    expect(await numbers(page)).toEqual(Array.from({ length: 10 }, (_, i) => String(10 - i)));
    await button(messages(page), "Newer messages").click();
    await messages(page).getByText("11 to 35 of 60").waitFor();
    await button(messages(page), "Newer messages").click();
    await entry(page, 60).waitFor();
    await button(entry(page, 60), "Message 60").click();
    await entry(page, 60).getByText("59", { exact: true }).waitFor();
    await send("worker", { payload: "late" });
    await messages(page).getByText("36 to 60 of 61").waitFor();
    expect(await entry(page, 60).getByText("59", { exact: true }).isVisible()).toBe(true);
    await button(messages(page), "Newer messages").click();
    await entry(page, 61).waitFor();
    // An inbox in which nothing changes is asked for its counts alone.
    const lists = () => requests.filter((one) => one.includes("/api/icc/inbox/")).length;
    const facts = () => requests.filter((one) => one.endsWith("/icc")).length;
    const [listed, asked] = [lists(), facts()];
    await eventually("two rounds later", () => facts() >= asked + 2);
    expect(lists()).toBe(listed);
    forgiveRaces(tab);
  });

  it("has the newest where messages are as large as may be", async () => {
    await user.create({ name: "worker" });
    for (let i = 1; i <= 6; i++) await send("worker", { payload: "x".repeat(1_000_000) });
    const tab = await open("#/containers/worker");
    const { page } = tab;
    await entry(page, 6).waitFor();
    expect(await numbers(page)).toEqual(["6", "5", "4", "3"]);
    await button(messages(page), "Older messages").click();
    await entry(page, 1).waitFor();
    expect(await numbers(page)).toEqual(["2", "1"]);
    forgiveRaces(tab);
  });
});

describe("a server of messages that is away", () => {
  it("is named where messages are, and everything else goes on", async () => {
    const { container_id } = await user.create({ name: "worker" });
    await send("worker");
    const tab = await open("#/messages");
    const { page, errors } = tab;
    await page.route(/\/api\/icc\/inbox\//, (route) =>
      route.fulfill({ status: 503, json: { error: "no answer, says the test", error_code: "SERVICE_UNAVAILABLE" } }),
    );
    await page.goto(`${daemon.url}/#/containers/${container_id}`);
    await messages(page).getByRole("alert").getByText("no answer, says the test").waitFor();
    await messages(page).getByText("1 unread of 1 message").waitFor();
    await ok("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await page.locator(".title .badge").getByText("exited").waitFor();
    await page.locator(".connection[data-state='live']").waitFor();
    await page.unroute(/\/api\/icc\/inbox\//);
    await entry(page, 1).waitFor();
    expect(await messages(page).getByRole("alert").isVisible()).toBe(false);
    for (const error of errors.splice(0)) expect(error).toContain("status of 503");
  });
});

describe("a container that floods", () => {
  it("fills its own inbox, and the page shows the newest messages of it", async () => {
    const { container_id } = await user.create({ name: "worker" });
    const tab = await open(`#/containers/${container_id}`);
    const { page } = tab;
    await messages(page).getByText("No messages.").waitFor();
    const flood = Array.from({ length: 20 }, async (_, i) => {
      for (let n = 0; n < 20; n++)
        await send("worker", { from: HOSTILE, payload: { i, n, filler: "x".repeat(200_000) } });
    });
    await Promise.all(flood);
    await entry(page, 400).waitFor();
    await messages(page).getByText("400 unread of 400 messages").waitFor();
    expect((await numbers(page)).length).toBeLessThanOrEqual(25);
    expect((await numbers(page))[0]).toBe("400");
    forgiveRaces(tab);
  });
});

describe("the messages of a tenant", () => {
  it("are its inboxes with their counts, and each queue and topic opens", async () => {
    const { container_id } = await user.create({ name: "worker" });
    await send("worker");
    await send("queue:jobs", { msg_id: "queued", payload: HOSTILE });
    const tab = await open("#/messages");
    const { page } = tab;
    const rows = card(page, "Inboxes").getByRole("row");
    const queue = rows.filter({ hasText: "queue:jobs" });
    await queue.waitFor();
    expect(await cellOf(queue, "Unread").textContent()).toBe("1");
    const own = rows.getByRole("link", { name: "worker", exact: true });
    expect(await own.getAttribute("href")).toBe(`#/containers/${container_id}`);
    expect(await own.getAttribute("title")).toBe(container_id);
    await queue.getByRole("link").click();
    await page.getByRole("heading", { name: "queue:jobs" }).waitFor();
    await button(entry(page, 1), "Message 1").click();
    await entry(page, 1).getByText(HOSTILE).waitFor();
    await ok("POST", "/api/icc/ack", { msg_id: "queued" });
    await entry(page, 1).getByText("acked").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Dead letters" }).waitFor();
    expect(await page.evaluate("document.activeElement.textContent")).toBe("queue:jobs");
    // A topic keeps its messages, and a container that is deleted has no inbox.
    await send("topic:news");
    await rows.filter({ hasText: "topic:news" }).waitFor();
    await ok("DELETE", `/api/containers/${container_id}`);
    await own.waitFor({ state: "detached" });
    forgiveRaces(tab);
  });

  it("have dead letters, which are replayed to their inbox or another", async () => {
    const before = (await ok("GET", "/api/icc/dlq")).last_seq;
    const { container_id } = await user.create({ name: "worker" });
    await user.create({ name: "other" });
    const tab = await open("#/messages");
    const { page } = tab;
    await letters(page).getByRole("heading").waitFor();
    await send("worker", { msg_id: "doomed", payload: { html: HOSTILE } });
    await nack("worker", "doomed", `${HOSTILE}${RIGHT_TO_LEFT}`);
    const seq = before + 1;
    const letter = entry(page, seq, letters(page));
    await letter.waitFor();
    expect(await cellOf(letter, "Inbox").textContent()).toBe("worker");
    expect(await cellOf(letter, "Reason").textContent()).toBe(`${HOSTILE}\\u202e`);
    expect(await cellOf(letter, "Replayed").textContent()).toBe("never");
    await button(letter, `Dead letter ${seq}`).click();
    await letter.getByText(`"html": "${HOSTILE}"`).waitFor();
    await button(letter, `Replay dead letter ${seq}`).click();
    expect(await page.getByRole("textbox", { name: "Inbox" }).inputValue()).toBe(container_id);
    await agree(page, "Replay");
    await page.getByText(`dead letter ${seq} is message 2 of ${container_id}`).waitFor();
    await cellOf(letter, "Replayed")
      .getByText(/now|ago/)
      .waitFor();
    expect((await inboxOf("worker")).map(({ state }: { state: string }) => state)).toEqual(["failed", "unread"]);
    await button(letter, `Replay dead letter ${seq}`).click();
    await page.getByRole("textbox", { name: "Inbox" }).fill("other");
    await agree(page, "Replay");
    await eventually("the other has it", async () => (await inboxOf("other")).length === 1);
    expect((await inboxOf("other"))[0].message).toMatchObject({ causation_id: "doomed", payload: { html: HOSTILE } });
    await button(letter, `Replay dead letter ${seq}`).click();
    await page.getByRole("textbox", { name: "Inbox" }).fill("unknown");
    await agree(page, "Replay");
    await letters(page).getByRole("alert").getByText("'unknown' not found").waitFor();
    await refusalsOf(tab, 404);
  });

  it("are nobody else's", async () => {
    const { container_id } = await user.create({ name: "worker" });
    await send("worker", { msg_id: "secret", type: "secret.kept" });
    await send("queue:jobs", { type: "secret.kept" });
    await nack("worker", "secret", "secret reason");
    const { tenant_id, key } = await stranger();
    const tab = await open("#/messages", undefined, key);
    const { page } = tab;
    await card(page, "Inboxes").getByText("No messages yet.").waitFor();
    await letters(page).getByText("No dead letters.").waitFor();
    await page.evaluate("location.hash = '#/messages/queue%3Ajobs'");
    await messages(page).getByText("No messages.").waitFor();
    expect(await page.locator("body").textContent()).not.toContain("secret");
    expect(tab.errors).toEqual([]);
    await page.evaluate(`location.hash = '#/containers/${container_id}'`);
    await page.getByRole("alert").getByText("not found").waitFor();
    expect(await page.locator("body").textContent()).not.toContain("secret");
    await tab.page.goto("about:blank");
    forgiveRaces(tab);
    await ok("DELETE", `/api/tenants/${tenant_id}?force=true`);
  });
});

describe("a key that may only read", () => {
  it("sees messages and dead letters, and is offered nothing that would be refused", async () => {
    await user.create({ name: "worker" });
    await send("worker", { msg_id: "doomed-too" });
    await send("worker");
    await nack("worker", "doomed-too", "no");
    const { key } = await ok("POST", "/api/api-keys", { name: "looker", scopes: ["read"] });
    const tab = await open("#/containers/worker", undefined, key);
    const { page } = tab;
    await entry(page, 2).waitFor();
    await button(entry(page, 2), "Message 2").click();
    await entry(page, 2).getByText('"n": 42').waitFor();
    for (const name of ["Ack message 2", "Nack message 2", "Replay message 1"])
      expect([name, await button(messages(page), name).isVisible()]).toEqual([name, false]);
    await page.goto(`${daemon.url}/#/messages`);
    await letters(page).locator(".entry").first().waitFor();
    expect(
      await letters(page)
        .getByRole("button", { name: /^Replay/ })
        .count(),
    ).toBe(0);
    forgiveRaces(tab);
  });
});

describe("a screen of 360 pixels", () => {
  it("has room for every view of messages, in light and dark", async () => {
    const long = "a-name-that-is-quite-long-and-has-no-place-to-break".repeat(2);
    const { container_id } = await user.create({ name: long });
    await send(long, { from: "f".repeat(200), type: "t".repeat(128), msg_id: "m".repeat(256) });
    await nack(long, "m".repeat(256), "r".repeat(1_000));
    await send(`queue:${"q".repeat(60)}`);
    const tab = await open("#/messages", { width: 360, height: 740 });
    const { page } = tab;
    const views: readonly (readonly [string, () => Promise<void>])[] = [
      ["#/messages", () => letters(page).locator(".entry").first().waitFor()],
      [`#/messages/queue%3A${"q".repeat(60)}`, () => entry(page, 1).waitFor()],
      [`#/containers/${container_id}`, () => entry(page, 1).waitFor()],
    ];
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      for (const [hash, isThere] of views) {
        await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
        await isThere();
        // The list of a section stays as it was left.
        const opener = page.locator(".entry .open").first();
        if ((await opener.getAttribute("aria-expanded")) === "false") await opener.click();
        await page.locator(".opened .record").first().waitFor();
        const widths = await page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]");
        expect([hash, widths]).toEqual([hash, [360, 360]]);
      }
    }
    forgiveRaces(tab);
  });
});
