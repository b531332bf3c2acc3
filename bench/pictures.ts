/** `npm run pictures`: takes README's pictures of the console, from a daemon of its own, and writes them into .readme. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { PROJECT_DIR } from "../src/installation/paths.js";
import { openBrowser } from "../test/support/browser.ts";
import { Daemon } from "../test/support/daemon.ts";
import { takePictures } from "./console-pictures.ts";

const daemon = new Daemon();
try {
  await daemon.start({ HEARTH_LOG_LEVEL: "warn" });
  const browser = await openBrowser();
  try {
    for (const { name, png } of await takePictures(daemon, browser)) {
      const path = join(PROJECT_DIR, ".readme", name);
      writeFileSync(path, png);
      process.stdout.write(`${path} ${Math.round(png.length / 1024)} KiB\n`);
    }
  } finally {
    await browser.close();
  }
  const { containers } = (await daemon.call("GET", "/api/containers")).body;
  for (const { container_id } of containers) await daemon.call("DELETE", `/api/containers/${container_id}`);
} finally {
  await daemon.dispose();
}
