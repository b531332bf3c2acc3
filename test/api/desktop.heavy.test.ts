/** A desktop in a real browser and through the API: what is done is seen, and what is shown is what is there. */
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, openTab, signIn } from "../support/browser.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { buildDesktopImage, Desktop, ViewerTab } from "../support/desktop.ts";
import { refusalOf } from "../support/socket.ts";

const daemon = new Daemon();
const state: { browser: Browser | null; desktop: Desktop | null } = { browser: null, desktop: null };
const browser = (): Browser => state.browser as Browser;
const desktop = (): Desktop => state.desktop as Desktop;

const LAUNCHER_X = 20;
const PANEL_HEIGHT = 32;
/** The ground of the desktop, and of the page that Chromium shows. */
const GROUND = 0x2b303b;
const MAGENTA = 0xff00aa;

beforeAll(async () => {
  buildDesktopImage();
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "debug" });
  state.desktop = await Desktop.create(daemon, "desk");
  // Chromium fails connections that are made while addresses of the machine come and go.
  state.browser = await openBrowser();
}, 600_000);

afterEach(async () => {
  for (const context of state.browser?.contexts() ?? []) await context.close();
});

afterAll(async () => {
  await state.browser?.close();
  for (const { container_id } of (await daemon.call("GET", "/api/containers")).body.containers) {
    await daemon.call("DELETE", `/api/containers/${container_id}`);
  }
  expect(await daemon.stop("SIGTERM")).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

describe("a container of prod-gui", () => {
  it("is ready with its desktop when the create responds, in the list, the detail and the readiness alike", async () => {
    const { id } = desktop();
    const { body: detail } = await daemon.call("GET", `/api/containers/${id}`);
    const { body: ready } = await daemon.call("GET", `/api/containers/${id}/ready`);
    const { body: list } = await daemon.call("GET", "/api/containers");
    for (const one of [detail, ready, list.containers[0]]) {
      expect(one).toMatchObject({ gui_ready: true, checks: { gui_backend_reachable: true } });
    }
  });

  it("listens on no port", async () => {
    const sockets = await desktop().run("cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6");
    expect(sockets.split("\n").filter((line) => /^\s*\d+:/.test(line))).toEqual([]);
  });

  it("runs its programs as an unprivileged user without capabilities", async () => {
    const status = await desktop().run("cat /proc/$(pgrep -o Xtigervnc)/status");
    expect(status).toMatch(/^Uid:\s+1000\s+1000\s+1000\s+1000$/m);
    expect(status).toMatch(/^CapEff:\s+0+$/m);
    expect(status).toMatch(/^CapBnd:\s+0+$/m);
  });
});

describe("the viewer in a browser", () => {
  it("shows a window that a terminal opens, and a click on its button closes it", async () => {
    const viewer = await ViewerTab.open(browser(), await desktop().url());
    const { page } = viewer;
    const window_height = page.viewportSize()?.height ?? 0;
    await eventually("the screen has the size of the window", async () => (await viewer.size()).height < window_height);
    const { height } = await viewer.size();
    const empty = await viewer.picture();
    expect(await viewer.count(GROUND)).toBeGreaterThan(500_000);
    await eventually("a terminal opens", async () => {
      await viewer.click(LAUNCHER_X, height - PANEL_HEIGHT / 2);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      return desktop()
        .run("xdotool search --class xterm")
        .then(Boolean, () => false);
    });
    await eventually("the terminal is on the canvas", async () => (await viewer.picture()) !== empty);
    await desktop().run("xdotool search --sync --class xterm windowactivate --sync; sleep 0.3");
    const terminal = await viewer.picture();
    await page.locator("canvas").focus();
    await page.keyboard.type("xmessage -geometry 300x120+600+60 -buttons done:0 'Hello from the terminal'\n");
    await eventually("a window opens", () =>
      desktop()
        .run("xdotool search --name xmessage")
        .then(Boolean, () => false),
    );
    await eventually("the window is on the canvas", async () => (await viewer.picture()) !== terminal);
    const [, x = "0", y = "0"] =
      /X=(-?\d+)\nY=(-?\d+)/.exec(
        await desktop().run("xdotool search --name xmessage getwindowgeometry --shell | head -5"),
      ) ?? [];
    await eventually("a click on the button closes the window", async () => {
      for (const down of [60, 70, 80, 90, 100]) await viewer.click(Number(x) + 30, Number(y) + down);
      return desktop()
        .run("! xdotool search --name xmessage")
        .then(
          () => true,
          () => false,
        );
    });
    await desktop().run("pkill xterm; sleep 0.2");
    expect(viewer.tab.errors).toEqual([]);
    expect(viewer.tab.requests.filter((one) => !one.includes(` ${daemon.url}/`))).toEqual([]);
    await viewer.close();
  });

  it("gives the desktop the size of its window", async () => {
    const viewer = await ViewerTab.open(browser(), await desktop().url(), { width: 1000, height: 700 });
    for (const size of [
      { width: 1_100, height: 650 },
      { width: 900, height: 600 },
    ]) {
      await viewer.page.setViewportSize(size);
      await eventually(`a screen of ${size.width} pixels`, async () => {
        const screen = await desktop().run("xdotool getdisplaygeometry");
        const shown = await viewer.size();
        return screen.trim() === `${shown.width} ${shown.height}` && shown.width === size.width;
      });
    }
    await viewer.close();
  });

  it("passes texts in both directions when somebody asks for it", async () => {
    const viewer = await ViewerTab.open(browser(), await desktop().url());
    const { page } = viewer;
    await page.getByRole("button", { name: "Clipboard" }).click();
    const field = page.getByLabel("Clipboard of the desktop");
    await field.fill("from outside: ü € 漢字");
    await page.getByRole("button", { name: "Send to the desktop" }).click();
    await eventually("the text is in the desktop", async () => {
      return (await desktop().run("timeout 2 xclip -o -selection clipboard || true")) === "from outside: ü € 漢字";
    });
    await desktop().run("echo -n 'from inside: ß' | xclip -i -selection clipboard");
    await eventually("the text is in the field", async () => (await field.inputValue()) === "from inside: ß");
    await viewer.close();
  });

  it("shows a page that Chromium loads in the desktop", async () => {
    const viewer = await ViewerTab.open(browser(), await desktop().url());
    await desktop().run(
      "mkdir -p /srv/www; echo '<body style=\"background:#ff00aa\">' > /srv/www/index.html; cd /srv/www; nohup python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &",
    );
    await desktop().run(
      "cd /; setsid setpriv --reuid=desktop --regid=desktop --init-groups env HOME=/home/desktop chromium http://127.0.0.1:8000/ >/dev/null 2>&1 &",
    );
    await eventually("the page is on the canvas", async () => (await viewer.count(MAGENTA)) > 100_000);
    const { body } = await daemon.call("POST", `/api/containers/${desktop().id}/gui/screenshot`, undefined, {
      accept: "application/json",
    });
    expect(body).toMatchObject({ content_type: "image/png", ...(await viewer.size()) });
    await desktop().run("pkill -f [h]ttp.server; pkill chromium; sleep 0.3; true");
    await viewer.close();
  });
});

describe("a button of the console", () => {
  it("opens the desktop of a container in a tab of its own", async () => {
    const tab = await openTab(browser(), `${daemon.url}/#/containers/${desktop().id}`);
    await signIn(tab);
    const opened = tab.page.context().waitForEvent("page");
    await tab.page.getByRole("button", { name: "Open desktop" }).click();
    const page = await opened;
    await page.getByText("Connected", { exact: true }).waitFor({ timeout: 40_000 });
    expect(page.url()).toContain(`/gui/${desktop().id}/?gui_token=gt_`);
  });
});

describe("code in the container that takes the place of the X server", () => {
  /** Plays the server with a program that gets one connection on its standard streams. */
  const replaced = async (name: string, program: string, isGreeting = true): Promise<Desktop> => {
    const hostile = await Desktop.create(daemon, name);
    await hostile.run(
      `pkill -STOP -x desktop; pkill Xtigervnc; while pgrep -r D,R,S -x Xtigervnc >/dev/null; do sleep 0.05; done; rm -f /tmp/.hearth-desktop/rfb; echo ${Buffer.from(program).toString("base64")} | base64 -d > /tmp/play; nohup socat UNIX-LISTEN:/tmp/.hearth-desktop/rfb,fork EXEC:'python3 /tmp/play' >/dev/null 2>&1 & until [ -S /tmp/.hearth-desktop/rfb ]; do sleep 0.05; done`,
    );
    await eventually("the daemon checks the program", async () => {
      const { body } = await daemon.call("GET", `/api/containers/${hostile.id}/ready`);
      return body.gui_ready === isGreeting;
    });
    return hostile;
  };
  const GREET = "import sys, time\nout = sys.stdout.buffer\nout.write(b'RFB 003.008\\n'); out.flush()\n";
  const SHAKE = `${GREET}sys.stdin.buffer.read(12)\nout.write(bytes([1, 1])); out.flush()\nsys.stdin.buffer.read(1)\nout.write(bytes(4)); out.flush()\nsys.stdin.buffer.read(1)\n`;

  it.each([
    ["hangs", "import time\ntime.sleep(600)", false],
    [
      "drips",
      "import sys, time\nfor one in b'RFB 003.008':\n  sys.stdout.write(chr(one)); sys.stdout.flush(); time.sleep(1)",
      false,
    ],
    ["floods", "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)", false],
    ["hangs in the handshake", `${GREET}time.sleep(600)`, true],
  ])("and %s gets no viewer, and the daemon waits no longer than its deadlines", async (name, program, isGreeting) => {
    const hostile = await replaced(`hostile-${name.replaceAll(" ", "-")}`, program, isGreeting);
    const begun_ms = performance.now();
    const { body: ready } = await daemon.call("GET", `/api/containers/${hostile.id}/ready`);
    expect(ready).toMatchObject({ exec_ready: true, gui_ready: isGreeting });
    const { status, body } = await daemon.call("GET", `/api/containers/${hostile.id}/gui-url`);
    if (isGreeting) {
      const address = `${daemon.url.replace("http", "ws")}${body.gui_url.replace("?", "websockify?")}`;
      expect((await refusalOf(address)).status).toBe(503);
    } else expect(status).toBe(503);
    expect(performance.now() - begun_ms).toBeLessThan(20_000);
    await daemon.call("DELETE", `/api/containers/${hostile.id}`);
  });

  it("and sends markup as name and text gets it shown as text, at most", async () => {
    const markup = "<img src=x onerror=alert(1)><script>alert(2)</script>";
    const program = `${SHAKE}import struct
name = ${JSON.stringify(markup)}.encode()
# ServerInit (RFC 6143, section 7.3.2): size, pixel format, three bytes of padding, length of the name.
out.write(struct.pack('>HHBBBBHHHBBBxxxI', 640, 480, 32, 24, 0, 1, 255, 255, 255, 16, 8, 0, len(name)) + name); out.flush()
# The viewer is connected once its first message is here.
sys.stdin.buffer.read(1)
out.write(b'\\x03\\0\\0\\0' + struct.pack('>I', len(name)) + name)
out.flush()
time.sleep(600)`;
    const hostile = await replaced("markup", program);
    const tab = await openTab(browser(), await hostile.url());
    await tab.page.getByText("Connected", { exact: true }).waitFor({ timeout: 40_000 });
    await eventually("the text arrives", async () => {
      return (await tab.page.evaluate("document.getElementById('text').value")) === markup;
    });
    expect(await tab.page.title()).toBe(`Desktop of ${hostile.id}`);
    expect(await tab.page.locator("img, script:not([src])").count()).toBe(0);
    expect(tab.errors).toEqual([]);
    await daemon.call("DELETE", `/api/containers/${hostile.id}`);
  });
});

describe("a daemon that is killed with a viewer open", () => {
  it("leaves no process of the viewer in the container, and its successor shows the same desktop", async () => {
    const before = (await desktop().run("pgrep -c socat || true")).trim();
    const viewer = await ViewerTab.open(browser(), await desktop().url());
    expect(Number((await desktop().run("pgrep -c socat")).trim())).toBe(Number(before) + 1);
    await daemon.stop("SIGKILL");
    await viewer.page.getByText("Disconnected").waitFor();
    await daemon.start({ HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "debug" });
    await eventually("the viewer's process is gone", async () => {
      return (await desktop().run("pgrep -c socat || true")).trim() === before;
    });
    expect((await fetch(viewer.page.url())).status).toBe(401);
    const again = await ViewerTab.open(browser(), await desktop().url());
    expect(await again.count(GROUND)).toBeGreaterThan(100_000);
  });
});

describe("input by the API", () => {
  it("clicks, types and presses keys in their order", async () => {
    const empty = (await desktop().run("maim -m 3 | md5sum")).trim();
    await desktop().run(
      "cd /; setsid setpriv --reuid=desktop --regid=desktop --init-groups env HOME=/home/desktop xterm -geometry 80x24+50+50 >/dev/null 2>&1 & xdotool search --sync --class xterm windowactivate --sync; sleep 0.3",
    );
    const answer = await desktop().input(
      { type: "click", x: 200, y: 200 },
      { type: "type", text: '-echo; echo "ü $((6*7))" > /tmp/typed' },
      { type: "key", keys: "ctrl+a" },
      { type: "key", keys: "delete" },
      { type: "key", keys: "End" },
      { type: "type", text: "\n" },
    );
    expect(answer.body).toMatchObject({ success: true, event_count: 6 });
    await eventually("the command ran", () =>
      desktop()
        .run("cat /tmp/typed")
        .then(
          (text) => text === "ü 42\n",
          () => false,
        ),
    );
    expect((await desktop().run("maim -m 3 | md5sum")).trim()).not.toBe(empty);
    await desktop().run("pkill xterm; true");
  });
});

describe("the token", () => {
  it("is in no line of the log", () => {
    expect(daemon.output).toContain("/gui/:container_id/websockify");
    expect(daemon.output).not.toContain("gt_");
  });
});
