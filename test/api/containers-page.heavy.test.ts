/** Containers on the page in a real browser: what it shows is what the API says, and what it does is done. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { agree, button, card, cellOf, forgiveRaces, refusalsOf, rowOf, saved, Tabs } from "../support/page.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const tabs = new Tabs(daemon);
const open: typeof tabs.open = (...args) => tabs.open(...args);
const HOSTILE = "<img src=x onerror=window.owned=1>";

const readKey = async (): Promise<string> =>
  (await daemon.call("POST", "/api/api-keys", { name: "looker", scopes: ["read"] })).body.key;

beforeAll(() => daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" }));

afterEach(() => tabs.closeEmpty());
afterAll(() => tabs.end());

describe("the list of containers", () => {
  it("shows state, uptime, use and ports as they change, and those of one state", async () => {
    const tab = await open("#/containers");
    const { page, requests } = tab;
    await page.getByText("No containers.").waitFor();
    await page.evaluate("window.loadedOnce = true");
    const { container_id, ports } = await user.create({ name: "seen", ports: [{ container_port: 80 }] });
    const row = rowOf(page, "seen");
    await row.getByText("running").waitFor();
    await cellOf(row, "Memory").getByText("of 512 MiB").waitFor();
    await cellOf(row, "CPU").getByText("%").waitFor();
    expect(await cellOf(row, "Ports").textContent()).toBe(`${ports[0].host_port}→80`);
    expect(await cellOf(row, "Uptime").textContent()).toMatch(/^\d+ s$/);
    await user.create({ name: "ended", command: ["sh", "-c", "exit 3"] });
    await rowOf(page, "ended").getByText("exited 3").waitFor();
    await button(page, "Running").click();
    await page.getByText("1 of 2 containers").waitFor();
    expect(await rowOf(page, "ended").count()).toBe(0);
    await daemon.call("POST", `/api/containers/${container_id}/kill`);
    await page.getByText("No containers match.").waitFor();
    await button(page, "Exited").click();
    await rowOf(page, "seen").getByText("exited 137").waitFor();
    expect(await page.evaluate("window.loadedOnce")).toBe(true);
    // It was told, and the key was in no address.
    expect(requests.filter((one) => one.includes("/api/events")).length).toBeGreaterThan(0);
    expect(requests.filter((one) => one.includes(KEY))).toEqual([]);
    forgiveRaces(tab);
  });

  it("is walked with the keyboard", async () => {
    await user.create({ name: "walk-a" });
    const { page } = await open("#/containers");
    await rowOf(page, "walk-a").waitFor();
    const { keyboard } = page;
    await keyboard.press("/");
    await keyboard.type("walk");
    await keyboard.press("ArrowDown");
    await keyboard.press("Enter");
    await page.getByRole("heading", { name: "walk-a" }).waitFor();
    await keyboard.press("Escape");
    await rowOf(page, "walk-a").waitFor();
    expect(await page.evaluate("document.activeElement.textContent")).toBe("walk-a");
    await keyboard.press("n");
    await page.getByRole("heading", { name: "New container" }).waitFor();
    await keyboard.press("Escape");
    await keyboard.press("Escape");
    await page.getByRole("heading", { name: "Containers" }).waitFor();
  });
});

describe("a tab that nobody looks at", () => {
  it("asks nothing and holds no connection, and knows all of it when it is seen again", async () => {
    const { container_id } = await user.create({ name: "left", command: ["sh", "-c", "echo said; sleep 1000"] });
    const { page, requests } = await open(`#/containers/${container_id}`);
    await page.locator(".log .line").waitFor();
    const streams = () => requests.filter((one) => /api\/events\?|\/logs\?/.test(one)).length;
    await eventually("events are followed", () => streams() === 2);
    const look = (isHidden: boolean) =>
      page.evaluate(
        `Object.defineProperty(document, "hidden", { value: ${isHidden}, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"))`,
      );
    await look(true);
    const asked = requests.length;
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await user.create({ name: "another" });
    // At most what was under way when it was left: a round has seven, and an eighth if the inbox has changed.
    expect(requests.length - asked).toBeLessThan(9);
    expect(streams()).toBe(2);
    await look(false);
    await page.locator(".title .badge").getByText("exited").waitFor();
    await eventually("both are followed again", () => streams() === 4);
    await page.getByRole("link", { name: "Activity" }).click();
    await card(page, "Events").getByRole("row").filter({ hasText: "container died" }).first().waitFor();
  });
});

describe("a container on the page", () => {
  it("is made with the form, and has what the form says", async () => {
    await daemon.call("POST", "/api/volumes", { name: "data" });
    const tab = await open("#/new-container");
    const { page } = tab;
    await page.getByLabel("Name").fill("made");
    await page.getByLabel("Memory").fill("300");
    await page.getByLabel("Command").fill("echo from $(hostname) > /data/said; sleep 1000");
    await page.getByLabel("Volumes").fill("data:/data");
    await page.getByLabel("Ports").fill("80, 53/udp, 0:0:0");
    await page.getByLabel("Outbound traffic").selectOption("these addresses");
    await page.getByLabel("Addresses and networks").fill("203.0.113.0/24:443/tcp\n198.51.100.7");
    await button(page, "Create").click();
    await page.getByRole("alert").getByText("invalid port: '0:0:0'").waitFor();
    await page.getByLabel("Ports").fill("80, 53/udp");
    await button(page, "Create").click();
    await page.getByRole("heading", { name: "made" }).waitFor();
    const [record] = (await daemon.call("GET", "/api/containers")).body.containers;
    expect(record).toMatchObject({
      name: "made",
      state: "running",
      memory_limit_mb: 300,
      egress: ["203.0.113.0/24:443/tcp", "198.51.100.7"],
      ports: [
        { container_port: 80, protocol: "tcp" },
        { container_port: 53, protocol: "udp" },
      ],
    });
    await eventually("the command wrote into the volume", async () => {
      const { body } = await daemon.call("GET", "/api/volumes/data/files/said");
      return String(body) === "from made\n";
    });
    await page.goto(`${daemon.url}/#/new-container`);
    await page.getByLabel("Name").fill("made");
    await button(page, "Create").click();
    await page.getByRole("alert").getByText("NAME_TAKEN").waitFor();
    await refusalsOf(tab, 409);
  });

  it("is stopped, started, restarted, killed, renamed and deleted; what destroys asks first", async () => {
    const { container_id } = await user.create({ name: "moved" });
    const tab = await open(`#/containers/${container_id}`);
    const { page } = tab;
    const state = page.locator(".title .badge");
    await state.getByText("running").waitFor();
    const begun = (await user.get(container_id)).started_at;
    await button(page, "Restart").click();
    await user.until(container_id, "it is restarted", (one) => one.state === "running" && one.started_at !== begun);
    await state.getByText("running").waitFor();
    await button(page, "Stop").click();
    await state.getByText("exited").waitFor();
    expect(await button(page, "Kill").isVisible()).toBe(false);
    expect(await card(page, "Run a command").isVisible()).toBe(false);
    await button(page, "Start").click();
    await state.getByText("running").waitFor();
    await button(page, "Kill").click();
    await agree(page, "Cancel");
    expect((await user.get(container_id)).state).toBe("running");
    await button(page, "Kill").click();
    await agree(page, "Kill");
    await state.getByText("exited 137").waitFor();
    await button(page, "Rename").click();
    await page.getByRole("dialog").getByLabel("Name").fill(HOSTILE.replaceAll("/", ""));
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: HOSTILE }).waitFor();
    expect((await user.get(container_id)).name).toBe(HOSTILE);
    await button(page, "Delete").click();
    await agree(page, "Delete");
    await page.getByText("No containers.").waitFor();
    expect((await daemon.call("GET", "/api/containers")).body.containers).toEqual([]);
    forgiveRaces(tab);
  });

  it("runs a command and shows both streams and the exit code, as text", async () => {
    const { container_id } = await user.create({ name: "runner" });
    const { page } = await open(`#/containers/${container_id}`);
    const run = card(page, "Run a command");
    await run.getByRole("textbox").fill(`echo '${HOSTILE}'; echo careful >&2; exit 7`);
    await run.getByRole("textbox").press("Control+Enter");
    await run.locator(".record").waitFor();
    expect(await run.getByLabel("Standard output").textContent()).toBe(`${HOSTILE}\n`);
    expect(await run.getByLabel("Standard error").textContent()).toBe("careful\n");
    expect(await run.locator(".facts").textContent()).toContain("Exit code7");
  });

  it("leads to its terminal", async () => {
    const { container_id } = await user.create({ name: "shelled" });
    const { page } = await open(`#/containers/${container_id}`);
    await page.getByRole("link", { name: "Terminal", exact: true }).click();
    await page.getByText("/bin/bash in").waitFor();
    await eventually("its name is the title's", async () => (await page.title()) === "shelled terminal · hearth");
    await page.getByRole("link", { name: "shelled", exact: true }).click();
    await page.getByRole("heading", { name: "shelled" }).waitFor();
  });

  it("shows its processes, which take signals, and what it uses now", async () => {
    const { container_id } = await user.create({ name: "busy", command: ["sleep", "1000"] });
    await user.shell(container_id, "sleep 2000 >/dev/null 2>&1 &");
    const { page } = await open(`#/containers/${container_id}`);
    const processes = card(page, "Processes");
    const row = processes.getByRole("row").filter({ hasText: "sleep 2000" });
    await row.waitFor();
    await row.getByRole("combobox").selectOption("KILL");
    await row.getByRole("button").click();
    await row.waitFor({ state: "detached" });
    const left = (await daemon.call("GET", `/api/containers/${container_id}/processes`)).body.processes;
    expect(left.map(({ command }: { command: string }) => command)).not.toContain("sleep 2000");
    await card(page, "Now").getByText("of a core").waitFor();
    const numbers = card(page, "Now").locator(".facts > div").filter({ hasText: "Processes" }).locator("dd");
    expect(await numbers.textContent()).toBe(String(left.length));
    expect(await processes.textContent()).not.toContain("/dev/init");
    // The first process has no signal of its own.
    expect(await processes.getByRole("button").count()).toBe(left.length - 1);
  });

  it("says that it is gone, and what is refused", async () => {
    const { container_id } = await user.create({ name: "gone" });
    const tab = await open(`#/containers/${container_id}`);
    const { page } = tab;
    await page.getByRole("heading", { name: "gone" }).waitFor();
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    await page.getByRole("alert").getByText("NOT_FOUND").waitFor();
    expect(await page.getByRole("heading", { name: "gone" }).isVisible()).toBe(false);
    for (const error of tab.errors.splice(0)) expect(error).toContain("404");
  });
});

describe("the log of a container", () => {
  const lines = (page: Page): Promise<string[]> =>
    page.evaluate("[...document.querySelectorAll('.log .line span')].map((line) => line.textContent)");

  it("is followed, as text, and stays where it is read", async () => {
    const command = `echo '${HOSTILE}'; echo bad >&2; while read line; do echo "$line"; done < /tmp/pipe`;
    const { container_id } = await user.create({
      name: "logged",
      command: ["sh", "-c", `mkfifo /tmp/pipe; ${command}`],
    });
    const { page } = await open(`#/containers/${container_id}`);
    await eventually("what was written before", async () => (await lines(page)).length >= 2);
    expect((await lines(page)).sort()).toEqual([HOSTILE, "bad"].sort());
    expect(await page.locator(".log .stderr").textContent()).toContain("bad");
    await user.shell(
      container_id,
      "exec 3>/tmp/pipe; for i in $(seq 60); do echo line $i >&3; done; sleep 1000 >&- 2>&- &",
    );
    await eventually("what came since", async () => (await lines(page)).includes("line 60"));
    const box = page.getByLabel("Log", { exact: true }).locator(".log");
    const place = () => box.evaluate((one) => [one.scrollTop, one.scrollHeight - one.clientHeight]);
    await eventually("it is at the end", async () => {
      const [at = 0, end = 0] = await place();
      return end > 0 && Math.abs(end - at) < 8;
    });
  });

  it("holds no more than a thousand lines, however many come, and the newest of them", async () => {
    const command = ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 1 30000; sleep 1000"];
    const { container_id } = await user.create({ name: "loud", command });
    const { page } = await open(`#/containers/${container_id}`);
    await eventually("the last line is there", async () => (await lines(page)).at(-1) === "30000");
    expect(await lines(page)).toEqual(Array.from({ length: 1000 }, (_, i) => String(29_001 + i)));
  });

  it("lays out the beginning of a very long line, and says how much there is", async () => {
    const command = ["sh", "-c", "head -c 10000 /dev/zero | tr '\\0' x; echo; echo next; sleep 1000"];
    const { container_id } = await user.create({ name: "wide", command });
    const { page } = await open(`#/containers/${container_id}`);
    await eventually("both are there", async () => (await lines(page)).at(-1) === "next");
    const [long = ""] = await lines(page);
    expect(long).toMatch(/^x{2000}… and [\d,]+ more characters$/);
  });

  it("goes on after a restart of the daemon, with nothing lost and nothing twice", async () => {
    const command = ["sh", "-c", "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"];
    const { container_id } = await user.create({ name: "kept", command });
    const tab = await open(`#/containers/${container_id}`);
    const { page } = tab;
    await eventually("it is followed", async () => (await lines(page)).length > 3);
    await daemon.stop("SIGKILL");
    await page.locator(".connection").getByText("reconnecting").waitFor();
    await daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" });
    const before = (await user.logs(container_id)).length;
    await page.evaluate("dispatchEvent(new Event('online'))");
    await eventually("it goes on", async () => (await lines(page)).length > before);
    const all = await lines(page);
    expect(all).toEqual(all.map((_, i) => String(i + 1)));
    for (const error of tab.errors.splice(0)) expect(error).toMatch(/Failed to load resource/);
  });

  it("stands still when it is not followed", async () => {
    const command = ["sh", "-c", "i=0; while true; do i=$((i+1)); echo $i; sleep 0.05; done"];
    const { container_id } = await user.create({ name: "still", command });
    const { page, requests } = await open(`#/containers/${container_id}`);
    await eventually("it is followed", async () => (await lines(page)).length > 3);
    await button(page, "Follow").click();
    const asked = () => requests.filter((one) => one.includes("/logs?")).length;
    const [before, rounds] = [asked(), requests.length];
    await eventually("two rounds later", () => requests.length > rounds + 10);
    const shown = await lines(page);
    expect([asked(), shown.length]).toEqual([before, (await lines(page)).length]);
    await button(page, "Follow").click();
    await eventually("it goes on", async () => (await lines(page)).length > shown.length);
    const all = await lines(page);
    expect(all).toEqual(all.map((_, i) => String(i + 1)));
  });
});

describe("a key that may only read", () => {
  it("sees all of it, and is offered nothing that would be refused", async () => {
    await daemon.call("POST", "/api/volumes", { name: "data" });
    await daemon.call("POST", "/api/volumes/data/files", { path: "a.txt", content: "AP9h" });
    const { container_id } = await user.create({ name: "looked-at", command: ["sh", "-c", "echo said; sleep 1000"] });
    const { page } = await open("#/containers", undefined, await readKey());
    await rowOf(page, "looked-at").waitFor();
    expect(await page.getByRole("link", { name: "New container" }).isVisible()).toBe(false);
    await page.getByRole("link", { name: "looked-at" }).click();
    await page.getByText("This key lacks the scope write").waitFor();
    await page.locator(".log").getByText("said").waitFor();
    await card(page, "Processes").getByText("sleep 1000").last().waitFor();
    for (const name of ["Start", "Stop", "Restart", "Kill", "Rename", "Delete", "Send", "Run"]) {
      expect([name, await button(page, name).isVisible()]).toEqual([name, false]);
    }
    expect(await page.getByRole("link", { name: "Terminal", exact: true }).isVisible()).toBe(false);
    await page.goto(`${daemon.url}/#/containers/${container_id}/files/root`);
    await button(page, ".bashrc").waitFor();
    expect(await button(page, "Upload files").isVisible()).toBe(false);
    await page.goto(`${daemon.url}/#/volumes/data`);
    const raw = await saved(page, () => button(page, "a.txt").click());
    expect([...raw.bytes]).toEqual([0, 255, 97]);
    for (const name of ["Rename", "Delete", "Upload files", "Unpack an archive", "Delete a.txt"]) {
      expect([name, await button(page, name).isVisible()]).toEqual([name, false]);
    }
  });
});

describe("every list", () => {
  const lists = [
    ["#/", "function"],
    ["#/containers", "container"],
    ["#/volumes", "volume"],
  ] as const;

  it("names the kind that is missing, and says when the filter matches none", async () => {
    await daemon.deploy({ name: "listed", handler: "true" });
    await user.create({ name: "listed" });
    await daemon.call("POST", "/api/volumes", { name: "listed" });
    const { page } = await open("#/");
    for (const [hash, noun] of lists) {
      await page.goto(`${daemon.url}/${hash}`);
      await rowOf(page, "listed").waitFor();
      await page.getByText(`1 ${noun}`, { exact: true }).waitFor();
      await page.getByRole("searchbox").fill("other");
      await page.getByText(`No ${noun}s match.`).waitFor();
      await page.getByText(`0 of 1 ${noun}`, { exact: true }).waitFor();
      expect(await page.getByRole("table").isVisible()).toBe(false);
    }
    for (const { id } of (await daemon.call("GET", "/api/functions")).body.functions) {
      await daemon.call("DELETE", `/api/functions/${id}`);
    }
    await page.goto(`${daemon.url}/#/`);
    await page.getByRole("heading", { name: "Create the first function" }).waitFor();
    expect(await page.getByRole("searchbox").isVisible()).toBe(false);
  });

  it("shows a refusal in place of its content, until a round succeeds", async () => {
    await daemon.call("POST", "/api/volumes", { name: "listed" });
    const { page, errors } = await open("#/activity");
    const lists_only = /\/api\/(functions|containers|volumes)\?limit=/;
    const json = { error: "refused by the test", error_code: "FORBIDDEN", request_id: "req_test" };
    await page.route(lists_only, (route) => route.fulfill({ status: 403, json }));
    for (const [hash] of lists) {
      await page.goto(`${daemon.url}/${hash}`);
      await page.getByRole("alert").getByText("refused by the test").waitFor();
      expect(await page.getByText("Loading…").isVisible()).toBe(false);
      expect(await page.getByRole("table").isVisible()).toBe(false);
    }
    await page.unroute(lists_only);
    await rowOf(page, "listed").waitFor();
    await page.getByRole("alert").waitFor({ state: "hidden" });
    expect(errors.splice(0).filter((error) => !error.includes("status of 403"))).toEqual([]);
  });
});

describe("a screen of 360 pixels", () => {
  it("has room for every view, in light and dark", async () => {
    const name = "a-name-that-is-quite-long-and-has-no-place-to-break".repeat(2);
    await daemon.call("POST", "/api/volumes", { name });
    await daemon.call("POST", `/api/volumes/${name}/files`, { path: `${name}/${"f".repeat(200)}`, content: "AP9h" });
    const { container_id } = await user.create({
      name,
      labels: { [name]: "y".repeat(200) },
      command: ["sh", "-c", `echo ${"x".repeat(400)}; sleep 1000`],
    });
    const { page } = await open("#/containers", { width: 360, height: 740 });
    const views: readonly (readonly [string, () => Promise<void>])[] = [
      ["#/containers", () => rowOf(page, name).waitFor()],
      [`#/containers/${container_id}`, () => page.locator(".log .line").waitFor()],
      [`#/containers/${container_id}/files/etc`, () => button(page, "passwd").waitFor()],
      ["#/new-container", () => page.getByRole("heading", { name: "New container" }).waitFor()],
      ["#/volumes", () => rowOf(page, name).waitFor()],
      [`#/volumes/${name}/${name}`, () => button(page, "f".repeat(200)).waitFor()],
      ["#/activity", () => card(page, "Events").getByText(name).first().waitFor()],
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
  });
});
