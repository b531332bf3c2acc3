/** Containers with a desktop, and their viewer in a browser. */
import { execFileSync } from "node:child_process";
import type { Browser } from "playwright-core";
import { NODE_PATH, PROJECT_DIR } from "../../src/installation/paths.js";
import { openTab, type Tab } from "./browser.ts";
import type { Daemon } from "./daemon.ts";
import { eventually } from "./daemon.ts";

/** Makes the image of desktops if the store lacks it: some two minutes. */
export function buildDesktopImage(): void {
  execFileSync(NODE_PATH, ["src/setup/index.js", "profile", "build", "prod-gui"], {
    cwd: PROJECT_DIR,
    stdio: "ignore",
  });
}

export class Desktop {
  readonly daemon: Daemon;
  readonly id: string;

  constructor(daemon: Daemon, id: string) {
    this.daemon = daemon;
    this.id = id;
  }

  static async create(daemon: Daemon, name: string, more: object = {}): Promise<Desktop> {
    const body = { name, image: "prod-gui", memory_limit_mb: 2_048, ...more };
    const { status, body: made } = await daemon.call("POST", "/api/containers", body);
    if (status !== 201) throw new Error(JSON.stringify(made));
    return new Desktop(daemon, made.container_id);
  }

  /** Runs a script in the container, as root, with the display. */
  async run(script: string): Promise<string> {
    const command = ["bash", "-c", `export DISPLAY=:0 LANG=C.UTF-8; ${script}`];
    const { body } = await this.daemon.call("POST", `/api/containers/${this.id}/exec`, { command });
    if (body.exit_code !== 0) throw new Error(`${script}: ${JSON.stringify(body)}`);
    return body.stdout;
  }

  async url(): Promise<string> {
    const { status, body } = await this.daemon.call("GET", `/api/containers/${this.id}/gui-url`);
    if (status !== 200) throw new Error(JSON.stringify(body));
    return this.daemon.url + body.gui_url;
  }

  /** Events as `POST …/gui/input` takes them. */
  input(...events: object[]) {
    return this.daemon.call("POST", `/api/containers/${this.id}/gui/input`, { events });
  }
}

/** A viewer in a browser, connected. */
export class ViewerTab {
  readonly tab: Tab;

  private constructor(tab: Tab) {
    this.tab = tab;
  }

  static async open(browser: Browser, url: string, size?: { width: number; height: number }): Promise<ViewerTab> {
    const viewer = new ViewerTab(await openTab(browser, url, size));
    await viewer.tab.page.getByText("Connected", { exact: true }).waitFor({ timeout: 40_000 });
    await eventually("the first frame", async () => (await viewer.colours()) > 1);
    return viewer;
  }

  get page() {
    return this.tab.page;
  }

  /** Size of the canvas in pixels. */
  size(): Promise<{ width: number; height: number }> {
    return this.page.evaluate(
      "(({ width, height }) => ({ width, height }))(document.querySelector('canvas'))",
    ) as Promise<{ width: number; height: number }>;
  }

  /** Number of different colours on the canvas. */
  async colours(): Promise<number> {
    return (await this.#pixels("new Set(pixels).size")) as number;
  }

  /** Number of pixels of one colour, as 0xRRGGBB. */
  async count(colour: number): Promise<number> {
    return (await this.#pixels(`pixels.reduce((sum, one) => sum + (one === ${colour} ? 1 : 0), 0)`)) as number;
  }

  /** A digest of all pixels but those of the panel below, whose clock moves. */
  async picture(): Promise<number> {
    const rows = "pixels.subarray(0, canvas.width * (canvas.height - 32))";
    return (await this.#pixels(`${rows}.reduce((sum, one) => (Math.imul(sum, 31) + one) | 0, 7)`)) as number;
  }

  /** A click of the mouse on the desktop, at pixels of the canvas. */
  async click(x: number, y: number): Promise<void> {
    const box = await this.page.locator("canvas").boundingBox();
    if (box === null) throw new Error("no canvas");
    await this.page.mouse.click(box.x + x, box.y + y);
  }

  close(): Promise<void> {
    return this.page.context().close();
  }

  #pixels(expression: string): Promise<unknown> {
    return this.page.evaluate(`(() => {
      const canvas = document.querySelector("canvas");
      if (canvas === null || canvas.width === 0) return 0;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const pixels = new Uint32Array(canvas.width * canvas.height);
      for (let i = 0; i < pixels.length; i++) pixels[i] = (data[4 * i] << 16) | (data[4 * i + 1] << 8) | data[4 * i + 2];
      return ${expression};
    })()`);
  }
}
