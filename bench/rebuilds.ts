/**
 * A second build of an unchanged file with ten steps, of a folder that is unchanged too. hearth gets the folder anew each time, as
 * `hearth build` sends it; buildah reads it from the disk. Each side builds once before, which fills its cache.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { machineMs } from "./clock.ts";
import { type Daemon, temporaryDirectory } from "./daemon.ts";
import type { BuildahPeer } from "./image-peer.ts";
import type { Samples } from "./report.ts";

const COPIES = 5;
const FILES_PER_COPY = 20;
const FILE_BYTES = 10_000;
const TARGET = "localhost/bench/rebuilt:1";

/** Ten steps after FROM. An empty image has no shell, so none of them is a RUN. */
function buildFile(): string {
  const copies = Array.from({ length: COPIES }, (_, i) => `COPY d${i} /app/d${i}/`);
  const settings = ["ENV A=1", "LABEL b=2", "WORKDIR /app", "USER 1000", 'CMD ["/app/run"]'];
  return ["FROM scratch", ...settings.slice(0, 3), ...copies, ...settings.slice(3), ""].join("\n");
}

function makeFolder(directory: string): void {
  writeFileSync(join(directory, "Dockerfile"), buildFile());
  for (let i = 0; i < COPIES; i++) {
    mkdirSync(join(directory, `d${i}`));
    for (let n = 0; n < FILES_PER_COPY; n++)
      writeFileSync(join(directory, `d${i}`, `f${n}`), `${i} ${n} `.repeat(FILE_BYTES / 4));
  }
}

async function buildOnce({ port, headers }: Daemon, folder: string): Promise<void> {
  const archive = execFileSync("tar", ["-C", folder, "-c", "."], { maxBuffer: 64 * 1024 * 1024 });
  const send = async (path: string, type: string, body: NonNullable<RequestInit["body"]>) => {
    const sent = { method: "POST", headers: { ...headers, "content-type": type }, body };
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, sent);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text.slice(0, 500)}`);
    return JSON.parse(text);
  };
  const { context_id } = await send("/api/build-contexts", "application/x-tar", new Uint8Array(archive));
  const body = JSON.stringify({ context_id, image_reference: TARGET });
  const { status, error } = await send("/api/oci/images/build?execution=sync", "application/json", body);
  if (status !== "succeeded") throw new Error(`build: ${status} ${error}`);
  await fetch(`http://127.0.0.1:${port}/api/build-contexts/${context_id}`, { method: "DELETE", headers });
}

export interface RebuildSubjects {
  readonly rebuilt: Samples;
  readonly buildah_rebuilt: Samples;
}

export async function measureRebuilds(
  daemon: Daemon,
  peer: BuildahPeer,
  plan: { readonly rounds_count: number },
  into: RebuildSubjects,
): Promise<void> {
  const folder = temporaryDirectory();
  try {
    makeFolder(folder);
    await buildOnce(daemon, folder);
    await peer.build(folder, TARGET);
    const own = async (): Promise<void> => {
      const begun_ms = machineMs();
      const failed = await buildOnce(daemon, folder).catch((error) => into.rebuilt.fail(String(error)) ?? true);
      into.rebuilt.rounds.push(failed === true ? [] : [machineMs() - begun_ms]);
    };
    const theirs = async (): Promise<void> => {
      const duration_ms = await peer.build(folder, TARGET).catch((error) => into.buildah_rebuilt.fail(String(error)));
      into.buildah_rebuilt.rounds.push(typeof duration_ms === "number" ? [duration_ms] : []);
    };
    for (let i = 0; i < plan.rounds_count; i++)
      for (const side of i % 2 === 0 ? [own, theirs] : [theirs, own]) await side();
    await peer.remove(TARGET);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
