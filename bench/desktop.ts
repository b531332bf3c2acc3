/**
 * Desktops: from the request for a container of prod-gui to the answer that says gui_ready, and from the address of its viewer to the
 * first frame on the canvas of a browser. The image is built before, and the first container of each daemon, which mounts it,
 * is not counted.
 */
import { execFileSync } from "node:child_process";
import { type Browser, chromium } from "playwright-core";
import { NODE_PATH, PROJECT_DIR } from "../src/installation/paths.js";
import { until } from "./clock.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { distribution, evidence, Samples, type Section, timeBar } from "./report.ts";

const READY_BAR_MS = 3_000;
const FRAME_BAR_MS = 1_500;
const CHROMIUM = "/usr/bin/chromium";
const FRAME_TIMEOUT_MS = 30_000;
/** True once the canvas shows more than one colour. */
const HAS_FRAME = `(() => {
  const canvas = document.querySelector("canvas");
  if (canvas === null || canvas.width === 0) return false;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  return pixels.some((pixel) => pixel !== pixels[0]);
})()`;

export interface DesktopPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
}

interface Made {
  readonly container_id: string;
  readonly gui_ready?: boolean;
}

/** Time from the request for the page to the first frame, in a fresh context without a cache. */
async function firstFrame(browser: Browser, address: string): Promise<number> {
  const context = await browser.newContext({ viewport: { width: 1_280, height: 800 } });
  try {
    const page = await context.newPage();
    const begun_ms = performance.now();
    await page.goto(address, { waitUntil: "commit" });
    // The policy of the page refuses `waitForFunction`, which evaluates text in it.
    const look = async () => (await page.evaluate(HAS_FRAME)) === true || null;
    await until(look, { poll_ms: 10, deadline_ms: FRAME_TIMEOUT_MS, what: () => "the first frame" });
    return performance.now() - begun_ms;
  } finally {
    await context.close();
  }
}

async function measureOne(daemon: Daemon, browser: Browser, name: string): Promise<{ ready: number; frame: number }> {
  const begun_ms = performance.now();
  const body = { name, image: "prod-gui", memory_limit_mb: 1_024 };
  const made = (await daemon.call("POST", "/api/containers", body)) as Made;
  const ready = performance.now() - begun_ms;
  if (made.gui_ready !== true) throw new Error(`${name} is not ready`);
  const path = `/api/containers/${made.container_id}`;
  const { gui_url } = (await daemon.call("GET", `${path}/gui-url`, null)) as { gui_url: string };
  const frame = await firstFrame(browser, `http://127.0.0.1:${daemon.port}${gui_url}`);
  await daemon.call("DELETE", path, null);
  return { ready, frame };
}

export async function benchDesktop(plan: DesktopPlan): Promise<Section> {
  execFileSync(NODE_PATH, ["src/setup/index.js", "profile", "build", "prod-gui"], {
    cwd: PROJECT_DIR,
    stdio: "ignore",
  });
  const ready = new Samples("create, until gui_ready");
  const frame = new Samples("viewer, until the first frame");
  const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: ["--no-sandbox"] });
  try {
    for (let round = 0; round < plan.rounds_count; round++) {
      const [starts, frames]: [number[], number[]] = [[], []];
      await withDaemon({ cells: 0 }, async (daemon) => {
        for (let i = -1; i < plan.samples_per_round; i++) {
          const one = await measureOne(daemon, browser, `desk${i + 1}`);
          if (i < 0) continue;
          starts.push(one.ready);
          frames.push(one.frame);
        }
        await daemon.deleteContainers();
      });
      ready.rounds.push(starts);
      frame.rounds.push(frames);
    }
  } finally {
    await browser.close();
  }
  return {
    title: "Desktops (ms): a container of prod-gui and its viewer in headless Chromium",
    method: "One after the other. The browser has no cache of the viewer; its canvas is read every 10 ms.",
    rows: [ready.row("image mounted"), frame.row("from the request for the page")],
    bars: [
      timeBar("desktop ready, p50", ready, "p50", READY_BAR_MS),
      timeBar("first frame in the browser, p50", frame, "p50", FRAME_BAR_MS),
    ],
    plots: [distribution("Desktops", [ready, frame])],
    ...evidence([ready, frame]),
  };
}
