/**
 * README's pictures of the console: what is made for them, and how they are taken. A picture shows a daemon that runs, in a
 * real browser. `npm run pictures` takes them again; a test compares those in the project with the console of now.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { NODE_PATH, PROJECT_DIR } from "../src/installation/paths.js";
import { openTab, signIn } from "../test/support/browser.ts";
import { type Daemon, eventually, KEY } from "../test/support/daemon.ts";

/** Pixels of a picture, which README shows at about two thirds of that. */
const SIZE = { width: 1_440, height: 960 };
const CALL_COUNT = 60;
/** Counts its requests and has a log, as a service has. */
const SERVER = `
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, text, *args):
        print(text % args, flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler).serve_forever()
`;

export interface Picture {
  /** Of the file in .readme. */
  readonly name: string;
  readonly png: Buffer;
}

/** Files in .readme that are taken here. */
export const PICTURES = ["page.png", "container.png"] as const;

/** Takes all of them. The daemon serves nothing else of these names. */
export async function takePictures(daemon: Daemon, browser: Browser): Promise<Picture[]> {
  return [
    { name: "page.png", png: await functionPicture(daemon, browser) },
    { name: "container.png", png: await containerPicture(daemon, browser) },
  ];
}

/** A folder that becomes a function with two versions, and its calls. */
async function functionPicture(daemon: Daemon, browser: Browser): Promise<Buffer> {
  const folder = join(mkdtempSync("/var/tmp/hearth-pictures-"), "hello");
  const env = { ...process.env, HEARTH_URL: daemon.url, HEARTH_KEY: KEY };
  const hearth = (...words: string[]) =>
    execFileSync(NODE_PATH, ["src/cli.ts", ...words], { cwd: PROJECT_DIR, env, stdio: ["ignore", "ignore", "pipe"] });
  try {
    hearth("init", folder);
    hearth("deploy", folder);
    await call(daemon, CALL_COUNT / 2);
    const source = join(folder, "index.mjs");
    writeFileSync(source, readFileSync(source, "utf8").replace("Hello", "Good day"));
    hearth("deploy", folder, "--note", "politer");
    await call(daemon, CALL_COUNT / 2);
  } finally {
    rmSync(join(folder, ".."), { recursive: true, force: true });
  }
  const { id } = (await daemon.call("GET", "/api/functions/by-name/hello")).body;
  return shot(daemon, browser, `#/functions/${id}`, async (page) => {
    await page.getByLabel("Payload").fill('{"name": "world"}');
    await page.getByRole("button", { name: "Invoke" }).click();
    await page.getByRole("region", { name: "Invoke" }).locator(".record").waitFor();
    await page.getByText(`${CALL_COUNT + 1} calls`).waitFor();
  });
}

async function call(daemon: Daemon, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await daemon.invoke("hello", { payload: { name: "world" } });
}

/** A server that somebody looks into. */
async function containerPicture(daemon: Daemon, browser: Browser): Promise<Buffer> {
  const made = await daemon.call("POST", "/api/containers", {
    name: "thumbnail-server",
    command: ["python3", "-c", SERVER],
    working_directory: "/srv",
    labels: { stage: "production" },
    ports: [{ container_port: 80 }],
    restart: "on-failure",
  });
  if (made.status !== 201) throw new Error(`create answered ${made.status}: ${JSON.stringify(made.body)}`);
  const { container_id, ports } = made.body;
  const files = "for name in cat dog bird; do head -c 20000 /dev/urandom > /srv/$name.png; done";
  await daemon.call("POST", `/api/containers/${container_id}/exec`, { command: ["sh", "-c", files] });
  const url = `http://127.0.0.1:${ports[0].host_port}`;
  await eventually("the server answers", () =>
    fetch(url).then(
      ({ ok }) => ok,
      () => false,
    ),
  );
  for (let i = 0; i < 6; i++) {
    for (const name of ["cat", "dog", "bird", "cow"]) await (await fetch(`${url}/${name}.png`)).arrayBuffer();
  }
  return shot(daemon, browser, `#/containers/${container_id}`, async (page) => {
    const run = page.getByRole("region", { name: "Run a command" });
    await run.getByRole("textbox").fill("ls -l /srv && df -h /srv | tail -n 1");
    await run.getByRole("button", { name: "Run" }).click();
    await run.locator(".record").waitFor();
    await page.locator(".log .line").getByText("cow.png").first().waitFor();
    await page.getByText("of a core").waitFor();
  });
}

/** The window at an address, once `work` has been done there. */
async function shot(
  daemon: Daemon,
  browser: Browser,
  hash: string,
  work: (page: Page) => Promise<void>,
): Promise<Buffer> {
  const tab = await openTab(browser, `${daemon.url}/${hash}`, SIZE);
  const { page } = tab;
  try {
    await signIn(tab);
    await work(page);
    await page.locator(".connection").getByText("live").waitFor();
    await page.evaluate("document.activeElement.blur(); scrollTo(0, 0)");
    await page.mouse.move(SIZE.width - 1, SIZE.height - 1);
    // What was done is said for some seconds, above the view.
    await page.locator(".message").filter({ hasNotText: /./ }).waitFor({ state: "attached" });
    return await page.screenshot();
  } finally {
    await page.context().close();
  }
}
