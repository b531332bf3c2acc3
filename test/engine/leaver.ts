/** A process that starts instances, says which, and waits to be killed: what it leaves is what the tests look at. */
import { systemClock } from "../../src/base/clock.ts";
import { readConfig } from "../../src/base/config.ts";
import { createLog } from "../../src/base/log.ts";
import type { ExecRequest } from "../../src/engine/engine.ts";
import { LocalEngine } from "../../src/engine/local-engine.ts";
import { buildahCommand, helperPath, imageStore, profileImage, readDirectories } from "../../src/setup/paths.js";

/** One instance, and what is done to it before the kill. */
export interface Step {
  readonly id: string;
  readonly mark?: string;
  readonly argv?: readonly string[];
  readonly timeout_ms?: number;
  /** Neither its start nor its command is waited for. */
  readonly isHalfDone?: boolean;
}

export interface Left {
  readonly id: string;
  readonly nonce: string;
  readonly address: string;
  readonly uid: number;
}

export function engineWith(flags: readonly string[]): LocalEngine {
  const { data_dir, image_dir } = readDirectories(process.env, []);
  const config = readConfig({}, [...flags, "--image-dir", image_dir]);
  return new LocalEngine({
    config,
    clock: systemClock,
    log: createLog("error", systemClock),
    minit: helperPath(data_dir),
    buildah: buildahCommand(image_dir),
    images_file: imageStore(image_dir).images_file,
    image: profileImage().reference,
  });
}

export function command(argv: readonly string[], timeout_ms = 10_000): ExecRequest {
  return {
    argv,
    environment: ["PATH=/usr/bin:/bin"],
    working_directory: "",
    timeout_ms,
    stdout_bytes_max: 65_536,
    stderr_bytes_max: 65_536,
    wipe: true,
    stdin: "",
  };
}

async function leave(flags: readonly string[], steps: readonly Step[]): Promise<void> {
  const engine = engineWith(flags);
  await engine.boot();
  for (const { id, mark, argv, timeout_ms, isHalfDone } of steps) {
    const starting = engine.start(id);
    if (isHalfDone === true && argv === undefined) continue;
    const instance = await starting;
    const { nonce, address, uid } = instance;
    if (mark !== undefined) engine.mark(instance, mark);
    engine.limit(instance, { memory_limit_mb: 256, cpu_limit_percent: null });
    if (argv !== undefined) {
      const running = instance.minit.execSole(command(argv, timeout_ms));
      if (isHalfDone !== true) await (await running).idle;
    }
    process.stdout.write(`${JSON.stringify({ id, nonce, address, uid } satisfies Left)}\n`);
  }
  process.stdout.write("done\n");
  setInterval(() => {}, 60_000);
}

const [, script = "", flags, steps] = process.argv;
if (import.meta.filename === script && flags !== undefined && steps !== undefined) {
  await leave(JSON.parse(flags), JSON.parse(steps));
}
