/** The page in a real browser: published services and network of a container, GPUs of a function. */
import { execFileSync } from "node:child_process";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { CdiFiles } from "../support/cdi.ts";
import { ContainerUser } from "../support/containers.ts";
import { type Answer, Daemon, eventually, KEY } from "../support/daemon.ts";
import { agree, button, card, cellOf, forgiveRaces, refusalsOf, Tabs } from "../support/page.ts";
import { ask, tokenIn } from "../support/services.ts";

type Json = Answer["body"];

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const tabs = new Tabs(daemon);
const cdi = new CdiFiles();
const SETTINGS = { HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn", HEARTH_CDI_DIRS: cdi.setting };
const HOSTILE = "<img src=x onerror=window.owned=1>";
/** Shows where a page was opened from. */
const PAGE = `
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>inside</title>" + repr([self.path, self.headers.get("Referer")]).encode())
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
`;

beforeAll(() => daemon.start(SETTINGS));
afterEach(() => tabs.closeEmpty());
afterAll(async () => {
  await tabs.end();
  cdi.remove();
});

const serve = (name: string) => user.create({ name, command: ["python3", "-c", PAGE], memory_limit_mb: 256 });
const listed = async (id: string): Promise<Json[]> =>
  (await daemon.call("GET", `/api/containers/${id}/services`)).body.services;
const services = (page: Page) => card(page, "Published services");
const row = (page: Page, name: string) => services(page).getByRole("row").filter({ hasText: name });
const dialog = (page: Page) => page.getByRole("dialog");

async function publish(page: Page, name: string, port: number, life = "with its container"): Promise<void> {
  await button(services(page), "Publish a port").click();
  await dialog(page).getByLabel("Name").fill(name);
  await dialog(page).getByLabel("Port").fill(String(port));
  await dialog(page).getByLabel("Expires").selectOption(life);
  await button(dialog(page), "Publish").click();
}

describe("the published services of a container", () => {
  it("are published, opened without a way back, rotated and deleted; what ends a URL asks first", async () => {
    const { container_id } = await serve("site");
    const tab = await tabs.open(`#/containers/${container_id}`);
    const { page } = tab;
    const said: string[] = [];
    page.on("console", (message) => said.push(message.text()));
    await services(page).getByText("No published services.").waitFor();
    await publish(page, HOSTILE.replaceAll("/", ""), 8_080, "after an hour");
    const one = row(page, HOSTILE);
    await one.getByText("ready").waitFor();
    const [made] = await listed(container_id);
    expect(made).toMatchObject({ name: HOSTILE, target_port: 8_080, auth_mode: "service_token" });
    expect(made.expires_at - made.created_at).toBe(3_600);
    expect(await cellOf(one, "Port").textContent()).toBe("8080");
    expect(await cellOf(one, "Expires").textContent()).toMatch(/^in (1 h|\d\d min)$/);
    const link = one.getByRole("link");
    expect(await link.getAttribute("href")).toBe(made.public_url);
    expect(await link.getAttribute("rel")).toBe("noopener noreferrer");
    const [opened] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
    await opened.waitForLoadState();
    expect(await opened.title()).toBe("inside");
    expect(await opened.locator("body").textContent()).toContain("['/', None]");
    expect(await opened.evaluate("[window.opener, document.referrer]")).toEqual([null, ""]);
    await opened.close();

    await button(one, `Rotate ${HOSTILE}`).click();
    await agree(page, "Cancel");
    expect((await listed(container_id))[0].public_url).toBe(made.public_url);
    await button(one, `Rotate ${HOSTILE}`).click();
    await agree(page, "Rotate");
    await eventually("another URL", async () => (await link.getAttribute("href")) !== made.public_url);
    const [rotated] = await listed(container_id);
    expect(await link.getAttribute("href")).toBe(rotated.public_url);
    expect([(await ask(made.public_url)).status, (await ask(rotated.public_url)).status]).toEqual([401, 200]);

    await button(one, `Delete ${HOSTILE}`).click();
    await agree(page, "Delete");
    await services(page).getByText("No published services.").waitFor();
    expect(await listed(container_id)).toEqual([]);
    // The tokens were in links alone.
    const html = await page.content();
    for (const token of [made, rotated].map(({ public_url }) => tokenIn(public_url))) {
      expect(token).toMatch(/^hst_/);
      expect(JSON.stringify([said, tab.requests, page.url(), html])).not.toContain(token);
    }
    forgiveRaces(tab);
  });

  it("have a URL in the text of the page without its token, and the status of the moment", async () => {
    const { container_id } = await serve("seen");
    const tab = await tabs.open(`#/containers/${container_id}`);
    const { page } = tab;
    await publish(page, "late", 7_000);
    await row(page, "late").getByText("pending").waitFor();
    await publish(page, "web", 8_080);
    await row(page, "web").getByText("ready").waitFor();
    expect(await cellOf(row(page, "web"), "Expires").textContent()).toBe("with its container");
    const { host } = new URL((await listed(container_id))[0].public_url);
    expect(await cellOf(row(page, "web"), "URL").getByRole("link").textContent()).toBe(host);
    expect(await page.evaluate("document.body.innerText")).not.toContain("hst_");
    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await row(page, "web").getByText("unavailable").waitFor();
    const width = "document.documentElement.scrollWidth";
    await page.setViewportSize({ width: 360, height: 740 });
    expect(await page.evaluate(width)).toBe(360);
    forgiveRaces(tab);
  });

  it("show a refusal in the card, and offer a reader nothing that would be refused", async () => {
    const { container_id } = await serve("refused");
    const tab = await tabs.open(`#/containers/${container_id}`);
    const { page } = tab;
    await publish(page, "web", 8_080);
    await row(page, "web").getByText("ready").waitFor();
    await publish(page, "web", 80);
    await services(page).getByRole("alert").getByText("NAME_TAKEN").waitFor();
    await refusalsOf(tab, 409);
    const key = { name: "looker", scopes: ["read"] };
    const reader = (await daemon.call("POST", "/api/api-keys", key)).body.key;
    const { page: other } = await tabs.open(`#/containers/${container_id}`, undefined, reader);
    await row(other, "web").getByText("ready").waitFor();
    for (const name of ["Publish a port", "Rotate web", "Delete web"]) {
      expect([name, await button(services(other), name).isVisible()]).toEqual([name, false]);
    }
    expect(tab.requests.filter((one) => one.includes(KEY))).toEqual([]);
  });
});

describe("the network of a container", () => {
  const network = (page: Page) => card(page, "Network");
  const checkOf = (page: Page, name: string) => network(page).locator(".checks > div").filter({ hasText: name });

  it("is checked on request, says what failed, and is set up again", async () => {
    const { container_id, ip_address } = await user.create({ name: "linked", memory_limit_mb: 256 });
    const tab = await tabs.open(`#/containers/${container_id}`);
    const { page } = tab;
    await button(network(page), "Check the network").click();
    await checkOf(page, "link").getByText("success").waitFor();
    const { veth_host } = (await daemon.call("GET", `/api/containers/${container_id}/network`)).body;
    const text = await network(page).textContent();
    for (const shown of [ip_address, veth_host, "Gateway", "Name servers"]) expect(text).toContain(shown);

    execFileSync("ip", ["link", "set", veth_host, "down"]);
    await button(network(page), "Check the network").click();
    await checkOf(page, "link").getByText("failed").waitFor();
    await network(page)
      .getByText(/\d+ of 10 checks failed\./)
      .waitFor();
    await button(network(page), "Set it up again").click();
    await checkOf(page, "link").getByText("success").waitFor();
    await checkOf(page, "route").getByText("success").waitFor();
    const { checks } = (await daemon.call("GET", `/api/containers/${container_id}/network/diagnostics`)).body;
    expect(checks.filter(({ name, ok }: Json) => !ok && name !== "dns")).toEqual([]);

    await daemon.call("POST", `/api/containers/${container_id}/stop`, { timeout_ms: 0 });
    await network(page).waitFor({ state: "hidden" });
    forgiveRaces(tab);
  });

  it("is shown to a reader, who is offered no repair, and a refusal stands in the card", async () => {
    const { container_id } = await user.create({ name: "read", memory_limit_mb: 256 });
    const reader = (await daemon.call("POST", "/api/api-keys", { name: "reader", scopes: ["read"] })).body.key;
    const tab = await tabs.open(`#/containers/${container_id}`, undefined, reader);
    const { page } = tab;
    const { veth_host } = (await daemon.call("GET", `/api/containers/${container_id}/network`)).body;
    execFileSync("ip", ["link", "set", veth_host, "down"]);
    await button(network(page), "Check the network").click();
    await checkOf(page, "link").getByText("failed").waitFor();
    expect(await button(network(page), "Set it up again").isVisible()).toBe(false);
    await page.route("**/network/diagnostics", (route) => route.abort());
    await button(network(page), "Check the network").click();
    await network(page).getByRole("alert").getByText("no response from hearth").waitFor();
    for (const error of tab.errors.splice(0)) expect(error).toContain("ERR_FAILED");
  });
});

describe("the GPUs of a function", () => {
  const gpus = (page: Page) => page.getByLabel("GPUs", { exact: true });
  const nodeHas = (count: number) =>
    eventually(`the node has ${count} GPUs`, async () => {
      return (await daemon.call("GET", "/api/system/info")).body.gpu_count === count;
    });

  it("are no field of the form on a node without GPUs", async () => {
    await nodeHas(0);
    const { page, requests } = await tabs.open("#/new");
    await eventually("the page asked", () => requests.some((one) => one.endsWith("/api/system/info")));
    await page.getByLabel("Name").fill("plain");
    expect(await gpus(page).isVisible()).toBe(false);
    await button(page, "Create and deploy").click();
    await page.locator(".title").getByText("active").waitFor();
    expect(await card(page, "Current version").textContent()).toContain("GPUsnone");
    expect(await gpus(page).isVisible()).toBe(false);
    const { id, gpu_count } = (await daemon.call("GET", "/api/functions/by-name/plain")).body;
    expect(gpu_count).toBe(0);
    // It would ask for the function that is gone.
    await page.goto("about:blank");
    await daemon.call("DELETE", `/api/functions/${id}`);
  });

  it("are asked for in the form, shown, and changed by a new version, from the value of the current one", async () => {
    cdi.write("test.json", cdi.value());
    await nodeHas(2);
    const { page } = await tabs.open("#/new");
    await page.getByText("This node has 2 GPUs.").waitFor();
    await page.getByLabel("Name").fill("fast");
    await gpus(page).fill("1");
    expect(await page.getByLabel("Commands of hearth").textContent()).toContain("--gpu-count 1 --deploy");
    expect(await page.getByLabel("Command lines").textContent()).toContain('"gpu_count":1}');
    await button(page, "Create and deploy").click();
    await page.locator(".title").getByText("active").waitFor();
    const about = card(page, "Current version");
    await about.getByText("1 GPU", { exact: true }).waitFor();
    expect(await gpus(page).inputValue()).toBe("1");
    await gpus(page).fill("0");
    await button(page, "Create version 2").click();
    await page.getByText("Version 2 is current").waitFor();
    expect(await about.textContent()).toContain("GPUsnone");
    const { id, ...record } = (await daemon.call("GET", "/api/functions/by-name/fast")).body;
    expect([record.version, record.gpu_count]).toEqual([2, 0]);
    await page.goto("about:blank");
    await daemon.call("DELETE", `/api/functions/${id}`);
    cdi.unlink("test.json");
  });
});
