/** Files and directories that a request makes in containers with `strict`: nobody inside can change their owner. */
import { appendFileSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { MadeImages, pullLocal } from "../support/made-images.ts";

const name = `localhost/hearth-test-strict-${process.pid}`;
const OUTSIDE = `/var/tmp/hearth-outside-${process.pid}`;
const images = new MadeImages(name);
const daemon = new Daemon();
const user = new ContainerUser(daemon);

let sequence = 0;
const create = (fields: object = {}) => user.create({ name: `c${++sequence}`, image: name, oci: true, ...fields });
const owners = (id: string, ...paths: string[]) => user.shell(id, `stat -c '%n %U:%G' ${paths.join(" ")}`);
const stop = (id: string) => daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
const start = (id: string) => daemon.call("POST", `/api/containers/${id}/start?execution=sync`);

async function upload(id: string, path: string, ...entries: Parameters<typeof archive>): Promise<void> {
  const { status } = await fetch(`${daemon.url}/api/containers/${id}/archive?path=${path}&execution=sync`, {
    method: "POST",
    headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
    body: archive(...entries),
  });
  expect(status).toBe(200);
}

beforeAll(async () => {
  images.makeOf({
    base: "prod",
    edit: (root) => {
      appendFileSync(join(root, "etc/passwd"), "app:x:1500:1500::/home/app:/bin/sh\n");
      appendFileSync(join(root, "etc/group"), "app:x:1500:\nextra:x:1501:other,app\n");
      mkdirSync(join(root, "there"));
      symlinkSync("/there", join(root, "way"));
      symlinkSync(`../../../../../..${OUTSIDE}`, join(root, "out"));
      symlinkSync("../../../../../../var/tmp", join(root, "up"));
    },
    config: [["--user", "app", "--workingdir", "/work/inner"]],
  });
  await daemon.start({ HEARTH_CELLS: "0" });
  await pullLocal(daemon, name);
});

afterAll(async () => {
  await daemon.dispose();
  images.remove();
});

describe("a strict container of an image with a user", () => {
  it("has its working directory as the user's own, if it does not exist yet", async () => {
    const { container_id } = await create({ strict: true });
    expect(await user.shell(container_id, "touch made && pwd")).toBe("/work/inner\n");
    expect(await owners(container_id, "/work", "/work/inner")).toBe("/work app:app\n/work/inner app:app\n");
    await stop(container_id);
    await start(container_id);
    expect(await user.shell(container_id, "ls")).toBe("made\n");
    const inside = await create({ strict: true, working_directory: "/there", user: "1500:extra" });
    expect(await owners(inside.container_id, "/there")).toBe("/there root:root\n");
    const usual = await create();
    expect(await owners(usual.container_id, "/work/inner")).toBe("/work/inner root:root\n");
    await user.delete(container_id, inside.container_id, usual.container_id);
  });

  it("finds no way out of its root by links on the way to its working directory", async () => {
    const { container_id } = await create({ strict: true, working_directory: "/way/a/b", user: "app:extra" });
    expect(await owners(container_id, "/there", "/there/a", "/there/a/b")).toBe(
      "/there root:root\n/there/a app:extra\n/there/a/b app:extra\n",
    );
    await user.delete(container_id);
    const up = await create({ strict: true, working_directory: OUTSIDE.replace("/var/tmp", "/up") });
    expect(await owners(up.container_id, OUTSIDE, "/var/tmp")).toBe(`${OUTSIDE} app:app\n/var/tmp root:root\n`);
    await user.delete(up.container_id);
    for (const working_directory of ["/out", "/out/work", "/etc/passwd/work"]) {
      const fields = { name: "led", image: name, oci: true, strict: true, working_directory };
      const { status, body } = await daemon.call("POST", "/api/containers", fields);
      if (status === 201) await user.delete(body.container_id);
      expect([working_directory, existsSync(OUTSIDE)]).toEqual([working_directory, false]);
    }
    const fields = { name: "up", image: name, oci: true, strict: true, working_directory: "/way/../work" };
    expect((await daemon.call("POST", "/api/containers", fields)).status).toBe(400);
  });

  it("gets archives as the user's own, while it runs and after, and directories that are there keep their owner", async () => {
    const { container_id } = await create({ strict: true, restart: "no" });
    const entries: Parameters<typeof archive> = [
      { name: "there/", type: "directory", mode: 0o755 },
      { name: "there/sub/", type: "directory", mode: 0o750 },
      { name: "there/sub/file", content: "x" },
      { name: "there/implied/file", content: "x".repeat(100_000) },
      { name: "there/link", type: "symlink", link: "/etc/passwd" },
    ];
    const shown = ["there root:root", "there/sub app:app", "there/sub/file app:app", "there/implied app:app"];
    const all = [...shown, "there/implied/file app:app", "there/link app:app", "etc/passwd root:root"];
    const paths = all.map((line) => `/${line.split(" ")[0]}`);
    const expected = all.map((line) => `/${line}\n`).join("");
    await upload(container_id, "/", ...entries);
    expect(await owners(container_id, ...paths)).toBe(expected);
    await user.shell(container_id, "rm -r /there/sub /there/implied /there/link");
    await stop(container_id);
    await upload(container_id, "/", ...entries);
    await upload(container_id, "/there/deep/est", { name: "f" });
    await start(container_id);
    expect(await owners(container_id, ...paths)).toBe(expected);
    expect(await owners(container_id, "/there/deep/est", "/there/deep")).toMatch(/^(\S+ app:app\n){2}$/);
    await user.delete(container_id);
  });

  it("gets files of messages as the user's own, and one that is there keeps its owner", async () => {
    const { container_id } = await create({ strict: true });
    const patch = async (path: string) => {
      const payload = { path, content_type: "text/plain", patch: "x" };
      const message = { to: container_id, type: "file_patch", payload, timeout_ms: 30_000 };
      const { body } = await daemon.call("POST", "/api/icc/request", message);
      expect(body.reply.payload).toMatchObject({ status: "APPLIED" });
    };
    for (const path of ["/there/of/message", "/etc/message", "/way/link/f"]) await patch(path);
    await patch("/etc/shells");
    expect(await owners(container_id, "/there/of", "/there/of/message", "/etc/message", "/there/link/f")).toMatch(
      /^(\S+ app:app\n){4}$/,
    );
    expect(await owners(container_id, "/etc", "/etc/shells", "/there")).toMatch(/^(\S+ root:root\n){3}$/);
    await user.delete(container_id);
  });

  it("whose user is not found takes archives as root's, also the accounts that it lacks", async () => {
    const { container_id } = await create({ strict: true, user: "late", restart: "no" });
    const { error_message } = await user.until(container_id, "its end", ({ state }) => state === "exited");
    expect(error_message).toMatch(/^user 'late' not found in \/etc\/passwd/);
    await upload(container_id, "/etc", { name: "passwd", content: "late:x:1600:1601::/:/bin/sh\n" });
    await start(container_id);
    await upload(container_id, "/late", { name: "f" });
    expect(await user.shell(container_id, "stat -c '%n %u:%g' /etc/passwd /late /late/f")).toBe(
      "/etc/passwd 0:0\n/late 1600:1601\n/late/f 1600:1601\n",
    );
    await user.delete(container_id);
  });
});

it("leaves nothing", async () => {
  expect(await daemon.stop()).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
