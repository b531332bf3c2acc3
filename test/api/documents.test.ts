/** README and the guides: every command runs as it is shown, against one daemon; the backup that they describe restores. */
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Alpine, startAlpine } from "../support/alpine.ts";
import { Commands } from "../support/command.ts";
import { Daemon } from "../support/daemon.ts";
import { PASTED } from "../support/markdown-documents.ts";

/** Commands that the daemon of this test replaces. */
const STARTS = new Set(["npm start\n", "npm test\n"]);

const daemon = new Daemon();
const commands = new Commands({});
const state: { port: number; alpine: Alpine | null } = { port: 0, alpine: null };

beforeAll(async () => {
  state.port = await freePort();
  state.alpine = await startAlpine();
  const settings = { HEARTH_BOOTSTRAP_KEY: "", HEARTH_HOST_PORTS: `${state.port}-${state.port}` };
  await daemon.start({ HEARTH_CELLS: "2", HEARTH_USERS: "on", ...settings, ...state.alpine.settings });
});
afterAll(async () => {
  commands.dispose();
  await daemon.dispose();
  state.alpine?.registry.close();
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
    for (const shown of ['"message": "Hello, world!"', '"result":{"message":"Hello, world!"', "hello from "])
      expect(out).toContain(shown);
  });
});

describe("a backup as the operator's guide describes it", () => {
  it("restores functions, volumes and the files of containers", async () => {
    const node = new Daemon();
    const archive = `${commands.home}/backup.tar`;
    try {
      await node.start({ HEARTH_CELLS: "0" });
      await node.deploy({ name: "kept", handler: "echo kept" });
      await node.call("POST", "/api/volumes", { name: "data", quota_mb: 100 });
      const content = Buffer.from("in the volume").toString("base64");
      await node.call("POST", "/api/volumes/data/files", { path: "a.txt", content });
      await node.call("POST", "/api/containers", { name: "box" });
      await node.call("POST", "/api/containers/box/exec", { command: ["sh", "-c", "echo in the box > /root/file"] });
      await node.call("POST", "/api/containers/box/stop", {});
      await node.stop();
      const lines = [
        `tar --sparse -cf ${archive} -C ${node.data_dir} .`,
        `find ${node.data_dir} -mindepth 1 -delete`,
        `tar --sparse -xf ${archive} -C ${node.data_dir}`,
      ];
      expect(await commands.bash(`set -e\n${lines.join("\n")}`)).toEqual({ code: 0, out: "", err: "" });
      await node.start({ HEARTH_CELLS: "0" });
      expect(await node.invoke("kept")).toMatchObject({ stdout: "kept\n" });
      expect((await node.call("GET", "/api/volumes/data/files/a.txt")).body).toBe("in the volume");
      await node.call("POST", "/api/containers/box/start?execution=sync");
      const read = await node.call("POST", "/api/containers/box/exec", { command: ["cat", "/root/file"] });
      expect(read.body).toMatchObject({ stdout: "in the box\n" });
    } finally {
      await node.dispose();
    }
  });
});
