/** Desktops as they start: complete when they are ready, after restarts, as forks and clones, with strict isolation. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, KEY, NOTHING_LEFT } from "../support/daemon.ts";
import { buildDesktopImage, Desktop } from "../support/desktop.ts";
import { Pixels } from "../support/pixels.ts";
import { SnapshotUser } from "../support/snapshots.ts";
import { refusalOf } from "../support/socket.ts";

const daemon = new Daemon();
const snapshots = new SnapshotUser(daemon);
const PANEL_HEIGHT = 32;
const GROUND = 0x2b303b;
const PANEL = 0x1f232b;

beforeAll(async () => {
  buildDesktopImage();
  await daemon.start({ HEARTH_CELLS: "0" });
}, 600_000);
afterEach(() => snapshots.clear());
afterAll(async () => {
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

async function screenshot(id: string): Promise<Pixels> {
  const answer = await fetch(`${daemon.url}/api/containers/${id}/gui/screenshot`, {
    method: "POST",
    headers: { "x-api-key": KEY },
  });
  expect(answer.status).toBe(200);
  return new Pixels(Buffer.from(await answer.arrayBuffer()));
}

/** Expects the ground above, the panel with its icons and its clock below. */
async function expectWhole(id: string): Promise<void> {
  const pixels = await screenshot(id);
  const edge = pixels.height - PANEL_HEIGHT;
  const [above, below] = [pixels.colours(0, edge), pixels.colours(edge)];
  expect(above.get(GROUND) ?? 0).toBeGreaterThan(pixels.width * edge * 0.99);
  expect(below.get(PANEL) ?? 0).toBeGreaterThan(pixels.width * PANEL_HEIGHT * 0.9);
  expect(below.get(GROUND) ?? 0).toBe(0);
  expect(below.size).toBeGreaterThan(20);
}

const recordOf = async (id: string) => (await daemon.call("GET", `/api/containers/${id}`)).body;
const ready = (id: string) =>
  eventually(`the desktop of ${id} is ready`, async () => {
    const record = await recordOf(id);
    return record.gui_ready === true ? record : null;
  });
const windowManager = (desktop: Desktop) => desktop.run("xprop -root _NET_SUPPORTING_WM_CHECK");

describe("a desktop that is ready", () => {
  it("has its window manager, and its panel on a screenshot that is taken at once", async () => {
    for (const name of ["one", "two", "three"]) {
      const desktop = await Desktop.create(daemon, name);
      await expectWhole(desktop.id);
      expect(await windowManager(desktop)).toContain("window id");
      expect(await recordOf(desktop.id)).toMatchObject({ gui_ready: true });
    }
  });

  it("shows a window with a decoration at once", async () => {
    const desktop = await Desktop.create(daemon, "framed");
    const extents = await desktop.run(
      "xmessage -geometry 300x120+600+60 hello & xprop -id $(xdotool search --sync --onlyvisible --name xmessage | head -1) _NET_FRAME_EXTENTS; kill $!",
    );
    const [, , top = "0"] = extents.match(/\d+/g) ?? [];
    expect(Number(top)).toBeGreaterThan(10);
  });

  it("reads no font again: the caches of the image hold", async () => {
    const desktop = await Desktop.create(daemon, "fonts");
    expect(await desktop.run("ls /home/desktop/.cache/fontconfig 2>/dev/null | wc -l")).toBe("0\n");
    expect(await desktop.run("FC_DEBUG=16 fc-list 2>&1 | grep -c WriteDir || true")).toBe("0\n");
  });

  it("is whole again after a restart of the container, and after the end of the X server", async () => {
    const desktop = await Desktop.create(daemon, "again");
    await daemon.call("POST", `/api/containers/${desktop.id}/stop?execution=sync`, { timeout_ms: 0 });
    expect(await recordOf(desktop.id)).toMatchObject({ state: "exited", gui_ready: false });
    await daemon.call("POST", `/api/containers/${desktop.id}/start?execution=sync`);
    await ready(desktop.id);
    await expectWhole(desktop.id);
    const socket = () => desktop.run("stat -c %i /tmp/.hearth-desktop/rfb || true");
    const before = await socket();
    await desktop.run("pkill -KILL Xtigervnc");
    await eventually("another X server has the socket", async () => ![before, ""].includes(await socket()));
    await ready(desktop.id);
    await expectWhole(desktop.id);
  });

  it("is shown without a panel that cannot start", async () => {
    const desktop = await Desktop.create(daemon, "bare");
    await desktop.run("ln -sf /bin/false /usr/bin/tint2");
    await daemon.call("POST", `/api/containers/${desktop.id}/stop?execution=sync`, { timeout_ms: 0 });
    await daemon.call("POST", `/api/containers/${desktop.id}/start?execution=sync`);
    await ready(desktop.id);
    expect((await screenshot(desktop.id)).colours().get(GROUND) ?? 0).toBeGreaterThan(1_000_000);
  });
});

describe("the desktop of a copy", () => {
  const opens = async (path: string) => (await fetch(`${daemon.url}${path}`)).status;
  const tokenOf = (url: string) => new URL(url).searchParams.get("gui_token") ?? "";

  it.each(["fork", "clone"])("that is a %s works, and no token opens the other's", async (kind) => {
    const source = await Desktop.create(daemon, `source-${kind}`);
    await source.run("echo kept > /home/desktop/note");
    const source_url = await source.url();
    const body = { name: `copy-${kind}`, resume_policy: "immediate" };
    const { result_container_id: copy_id } =
      kind === "fork"
        ? await snapshots.fork(source.id, body)
        : await snapshots.clone((await snapshots.take(source.id)).snapshot_id, body);
    expect(copy_id).not.toBe(source.id);
    const copy = new Desktop(daemon, copy_id);
    expect(await ready(copy_id)).toMatchObject({ state: "running", checks: { gui_backend_reachable: true } });
    await expectWhole(copy_id);
    expect(await copy.run("cat /home/desktop/note")).toBe("kept\n");
    const copy_url = await copy.url();
    const [own, other] = [tokenOf(copy_url), tokenOf(source_url)];
    expect(own).not.toBe(other);
    expect(await opens(`/gui/${copy_id}/?gui_token=${own}`)).toBe(200);
    expect(await opens(`/gui/${source.id}/?gui_token=${other}`)).toBe(200);
    for (const [id, token] of [
      [copy_id, other],
      [source.id, own],
    ]) {
      expect(await opens(`/gui/${id}/?gui_token=${token}`)).toBe(401);
      const address = `${daemon.url.replace("http", "ws")}/gui/${id}/websockify?gui_token=${token}`;
      expect((await refusalOf(address)).status).toBe(401);
    }
    // Input to one is not seen by the other.
    await copy.input({ type: "move", x: 33, y: 44 });
    expect(await copy.run("xdotool getmouselocation")).toContain("x:33 y:44");
    expect(await source.run("xdotool getmouselocation")).not.toContain("x:33 y:44");
    await daemon.call("DELETE", `/api/containers/${source.id}`);
    expect(await recordOf(copy_id)).toMatchObject({ gui_ready: true });
    expect(await opens(`/gui/${copy_id}/?gui_token=${own}`)).toBe(200);
  });
});

describe("a desktop with strict isolation", () => {
  it("runs as the user desktop without capabilities, takes input and opens a terminal", async () => {
    const desktop = await Desktop.create(daemon, "strict", { strict: true });
    expect(await recordOf(desktop.id)).toMatchObject({ strict: true, user: "desktop", gui_ready: true });
    await expectWhole(desktop.id);
    const status = await desktop.run("cat /proc/$(pgrep -o Xtigervnc)/status");
    expect(status).toMatch(/^Uid:\s+1000\s+1000\s+1000\s+1000$/m);
    expect(status).toMatch(/^CapEff:\s+0+$/m);
    expect(status).toMatch(/^NoNewPrivs:\s+1$/m);
    await desktop.run(
      "cd /; setsid xterm -geometry 80x24+50+50 >/dev/null 2>&1 & xdotool search --sync --class xterm windowactivate --sync; sleep 0.3",
    );
    const typed = await desktop.input(
      { type: "click", x: 200, y: 200 },
      { type: "type", text: "echo $((6*7)) > /tmp/typed\n" },
    );
    expect(typed.body).toMatchObject({ success: true });
    await eventually("the command ran", () =>
      desktop.run("cat /tmp/typed").then(
        (text) => text === "42\n",
        () => false,
      ),
    );
    expect((await fetch(await desktop.url())).status).toBe(200);
  });
});
