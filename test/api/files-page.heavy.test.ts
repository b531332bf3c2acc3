/** Files, volumes and activity on the page in a real browser: what is brought is there, what is fetched is what was. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, KEY } from "../support/daemon.ts";
import { agree, button, card, cellOf, forgiveRaces, refusalsOf, rowOf, saved, Tabs } from "../support/page.ts";

const daemon = new Daemon();
const user = new ContainerUser(daemon);
const tabs = new Tabs(daemon);
const open: typeof tabs.open = (...args) => tabs.open(...args);
const HOSTILE = "<img src=x onerror=window.owned=1>";
const folder = mkdtempSync("/var/tmp/hearth-page-");

/** Names in a tar archive, and what one of them holds. */
const tarNames = (bytes: Buffer) => execFileSync("tar", ["t"], { input: bytes }).toString().trim().split("\n");
const tarFile = (bytes: Buffer, name: string) => execFileSync("tar", ["xO", name], { input: bytes }).toString();

beforeAll(() => daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" }));

afterEach(() => tabs.closeEmpty());
afterAll(async () => {
  await tabs.end();
  rmSync(folder, { recursive: true });
});

describe("the files of a container", () => {
  it("are browsed by address, with names that are text, and fetched as tar", async () => {
    const { container_id } = await user.create({ name: "box" });
    const odd = `${HOSTILE} 100%?#&ü`;
    await user.python(
      container_id,
      `import os\nos.makedirs("/root/sub/${odd}")\nopen("/root/sub/${odd}/in", "w").write("inside")\nopen("/root/sub/one", "w").write("1")`,
    );
    const { page } = await open(`#/containers/${container_id}`);
    await page.getByRole("link", { name: "Files", exact: true }).click();
    await page.getByRole("link", { name: "root", exact: true }).click();
    await page.getByRole("link", { name: "sub", exact: true }).click();
    await page.getByRole("link", { name: odd }).click();
    const inside = button(page, "in");
    await inside.waitFor();
    const one = await saved(page, () => inside.click());
    expect([one.name, tarFile(one.bytes, "in")]).toEqual(["in.tar", "inside"]);
    await page.goBack();
    await button(page, "one").waitFor();
    const all = await saved(page, () => button(page, "Download as tar").click());
    expect(all.name).toBe("sub.tar");
    expect(tarNames(all.bytes).some((name) => name.endsWith("/in"))).toBe(true);
    const nested = await saved(page, () => page.getByRole("button", { name: "as tar" }).last().click());
    expect(tarNames(nested.bytes).some((name) => name.endsWith("in"))).toBe(true);
    await page.getByRole("navigation", { name: "Directory" }).getByRole("link", { name: "box" }).click();
    await page.getByRole("link", { name: "etc", exact: true }).waitFor();
  });

  it("are brought there: files under any name, an archive unpacked, a broken one refused with its code", async () => {
    const { container_id } = await user.create({ name: "fed" });
    const tab = await open(`#/containers/${container_id}/files/root`);
    const { page } = tab;
    await button(page, ".bashrc").waitFor();
    const long = `${"ü".repeat(100)}.txt`;
    const large = Buffer.alloc(3_000_001, "x");
    await page.getByLabel("Files to upload").setInputFiles([
      { name: long, mimeType: "text/plain", buffer: Buffer.from("long") },
      { name: "empty", mimeType: "text/plain", buffer: Buffer.alloc(0) },
      { name: "large", mimeType: "text/plain", buffer: large },
    ]);
    await button(page, long).waitFor();
    expect(await user.shell(container_id, `cat /root/${long}; wc -c < /root/empty; sha256sum < /root/large`)).toBe(
      `long0\n${execFileSync("sha256sum", { input: large }).toString()}`,
    );
    mkdirSync(join(folder, "packed/deep"), { recursive: true });
    writeFileSync(join(folder, "packed/deep/file"), "unpacked");
    const archive = execFileSync("tar", ["cz", "-C", join(folder, "packed"), "."]);
    const unpack = page.getByLabel("Archive to unpack");
    await unpack.setInputFiles({ name: "a.tgz", mimeType: "application/gzip", buffer: archive });
    await page.getByRole("link", { name: "deep", exact: true }).waitFor();
    expect(await user.shell(container_id, "cat /root/deep/file")).toBe("unpacked");
    await unpack.setInputFiles({ name: "b.tar", mimeType: "application/x-tar", buffer: Buffer.alloc(5000, "no tar") });
    await page.getByRole("alert").getByText("INVALID_ARGUMENT").waitFor();
    await refusalsOf(tab, 400);
  });

  it("in a folder of ten thousand come page by page", async () => {
    const { container_id } = await user.create({ name: "many" });
    await user.shell(container_id, "mkdir /many && cd /many && seq -f f%05g 10000 | xargs touch");
    const { page } = await open(`#/containers/${container_id}/files/many`);
    await page.getByText("1 to 200 of 10,000").waitFor();
    expect(await page.locator(".files .rows .row").count()).toBe(200);
    await page.getByRole("link", { name: "Next" }).click();
    await page.getByText("201 to 400 of 10,000").waitFor();
    await button(page, "f00201").waitFor();
    await page.goBack();
    await button(page, "f00001").waitFor();
    await page.goto(`${daemon.url}/#/containers/${container_id}/files/many?page=50`);
    await page.getByText("9,801 to 10,000 of 10,000").waitFor();
    expect(await page.getByRole("link", { name: "Next" }).isVisible()).toBe(false);
  });
});

describe("volumes on the page", () => {
  it("are made with a quota, renamed, deleted; one that is used is refused with its code", async () => {
    const tab = await open("#/volumes");
    const { page } = tab;
    await page.getByText("No volumes.").waitFor();
    await page.getByRole("link", { name: "New volume" }).click();
    await page.getByLabel("Name").fill("shelf");
    await page.getByLabel("Quota").fill("64");
    await button(page, "Create").click();
    await page.getByRole("heading", { name: "shelf" }).waitFor();
    expect((await daemon.call("GET", "/api/volumes/shelf")).body.quota_mb).toBe(64);
    const { container_id } = await user.create({ name: "holder", volumes: ["shelf:/shelf"] });
    await page.getByRole("link", { name: container_id }).waitFor();
    await button(page, "Delete").click();
    await agree(page, "Delete");
    await page.getByRole("alert").getByText("IN_USE").waitFor();
    await refusalsOf(tab, 409);
    await button(page, "Rename").click();
    await page.getByRole("dialog").getByLabel("Name").fill("board");
    await agree(page, "Rename");
    await page.getByRole("heading", { name: "board" }).waitFor();
    await page.getByRole("link", { name: "Volumes" }).first().click();
    await cellOf(rowOf(page, "board"), "Quota").getByText("64.0 MiB").waitFor();
    await cellOf(rowOf(page, "board"), "Containers").getByText("1").waitFor();
    await daemon.call("DELETE", `/api/containers/${container_id}`);
    await page.getByRole("link", { name: "board", exact: true }).click();
    await button(page, "Delete").click();
    await agree(page, "Delete");
    await page.getByText("No volumes.").waitFor();
    expect((await daemon.call("GET", "/api/volumes")).body.volumes).toEqual([]);
    forgiveRaces(tab);
  });

  it("have files that are fetched as they are, brought, and removed after a question; what is full says so", async () => {
    await daemon.call("POST", "/api/volumes", { name: "small", quota_mb: 16 });
    await daemon.call("POST", "/api/volumes/small/files", { path: `notes/${HOSTILE}`, content: "AP9h" });
    const tab = await open("#/volumes/small/notes");
    const { page } = tab;
    const file = button(page, HOSTILE);
    await file.waitFor();
    const raw = await saved(page, () => file.click());
    expect([...raw.bytes]).toEqual([0, 255, 97]);
    await page
      .getByLabel("Files to upload")
      .setInputFiles([{ name: "brought", mimeType: "text/plain", buffer: Buffer.from("here") }]);
    await button(page, "brought").waitFor();
    await button(page, "Delete brought").click();
    await agree(page, "Cancel");
    await button(page, "Delete brought").click();
    await agree(page, "Delete");
    await button(page, "brought").waitFor({ state: "detached" });
    const { files } = (await daemon.call("GET", "/api/volumes/small/ls?path=notes")).body;
    expect(files.map(({ name }: { name: string }) => name)).toEqual([HOSTILE]);
    const large = join(folder, "large");
    writeFileSync(large, Buffer.alloc(40_000_000, Math.PI.toString()));
    await page.getByLabel("Files to upload").setInputFiles(large);
    await page.getByRole("progressbar").waitFor();
    await page.getByRole("alert").getByText("STORAGE_FULL").waitFor();
    await page.getByRole("progressbar").waitFor({ state: "hidden" });
    await refusalsOf(tab, 507);
  });
});

describe("activity on the page", () => {
  it("shows what has happened and what happens, and cancels what goes on", async () => {
    await daemon.call("POST", "/api/volumes", { name: HOSTILE.replaceAll(":", "") });
    const { page } = await open("#/activity");
    const events = card(page, "Events");
    await events.getByRole("row").filter({ hasText: "volume created" }).filter({ hasText: HOSTILE }).first().waitFor();
    await user.create({ name: "told" });
    await events.getByRole("row").filter({ hasText: "container started" }).filter({ hasText: "told" }).waitFor();
    await daemon.call("POST", "/api/volumes", { name: "slow" });
    // An archive whose end does not come: block after block, as long as somebody takes them.
    const headers = { "x-api-key": KEY, "content-type": "application/x-tar", "content-length": "1000000" };
    const sending = request(`${daemon.url}/api/volumes/slow/archive`, { method: "POST", headers });
    sending.on("error", () => {});
    const operations = card(page, "Operations");
    const send = (isThere: () => Promise<boolean>) => () => {
      sending.write(Buffer.alloc(512));
      return isThere();
    };
    try {
      const cancel = operations.getByRole("row").filter({ hasText: "running" }).getByRole("button", { name: "Cancel" });
      await eventually(
        "it can be cancelled",
        send(() => cancel.isVisible()),
      );
      await cancel.click();
      await eventually(
        "it is",
        send(() => operations.getByText("cancelled", { exact: true }).isVisible()),
      );
      const [operation] = (await daemon.call("GET", "/api/operations?limit=1")).body.operations;
      expect(operation).toMatchObject({ operation_type: "volume.archive", status: "cancelled" });
    } finally {
      sending.destroy();
    }
  });
});
