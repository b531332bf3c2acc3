/** Every command of README and the guides runs as it is shown, against one daemon with the operator's key in its file. */
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Commands } from "../support/command.ts";
import { Daemon } from "../support/daemon.ts";
import { PASTED } from "../support/documents.ts";

/** The daemon of this test stands for them. */
const STARTS = new Set(["npm start\n", "npm test\n"]);

const daemon = new Daemon();
const commands = new Commands({});
const state = { port: 0 };

beforeAll(async () => {
  state.port = await freePort();
  await daemon.start({ HEARTH_CELLS: "2", HEARTH_BOOTSTRAP_KEY: "", HEARTH_HOST_PORTS: `${state.port}-${state.port}` });
});
afterAll(async () => {
  commands.dispose();
  await daemon.dispose();
});

/** A port below those of clients that nothing listens on. */
async function freePort(): Promise<number> {
  for (let port = 20_000 + (process.pid % 9_000); ; port++) {
    const isFree = await new Promise<boolean>((resolve) => {
      const server = createServer();
      server.once("error", () => resolve(false));
      server.listen(port, "0.0.0.0", () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

/** The defaults that documents show, as this daemon has them. */
const here = (script: string): string =>
  script
    .replaceAll("http://127.0.0.1:8700", daemon.url)
    .replaceAll("/var/lib/hearth/key", `${daemon.data_dir}/key`)
    .replaceAll("20080", String(state.port))
    .replaceAll("npx hearth", "hearth");

describe("the commands of", () => {
  const scripts = PASTED.map(({ path, blocks }) => {
    const shown = blocks.filter(({ language, text }) => language === "sh" && !STARTS.has(text));
    return [path, shown.map(({ text }) => text)] as const;
  }).filter(([, blocks]) => blocks.length > 0);

  it.each(scripts)("%s run one after the other", async (path, blocks) => {
    const env = { HEARTH_URL: daemon.url, HEARTH_DATA_DIR: daemon.data_dir };
    const { code, out, err } = await commands.bash(`set -euo pipefail\n${here(blocks.join("\n"))}`, { env });
    expect({ code, out, err }).toEqual({ code: 0, out: expect.any(String), err: expect.any(String) });
    if (path !== "README.md") return;
    for (const shown of ["hello, world\n", '"stdout":"hello, world\\n"', "hello from "]) expect(out).toContain(shown);
  });
});
