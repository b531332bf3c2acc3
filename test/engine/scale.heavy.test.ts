/** More containers than a bridge has ports: each has its network, and keeps it. */
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { readConfig } from "../../src/base/config.ts";
import { createLog } from "../../src/base/log.ts";
import type { Instance } from "../../src/engine/engine.ts";
import { LocalEngine } from "../../src/engine/local-engine.ts";
import { buildahCommand, helperPath, imageStore, profileImage, readDirectories } from "../../src/setup/paths.js";

const COUNT = 1_500;
/** Of a bridge on Linux (BR_MAX_PORTS, 1,023): as many links again lie above it. */
const SAMPLE_STEP = 50;
const STARTS_AT_ONCE = 4;

const { data_dir: installed, image_dir } = readDirectories(process.env, []);
const data_dir = realpathSync(mkdtempSync("/var/tmp/hearth-scale-"));
const flags = ["--data-dir", data_dir, "--image-dir", image_dir, "--bridge", "htscale", "--subnet", "10.98.0.0/20"];
const config = readConfig({}, [...flags, "--instances-max", String(COUNT + 100), "--containers-max", "0"]);
const engine = new LocalEngine({
  config,
  clock: systemClock,
  log: createLog("error", systemClock),
  minit: helperPath(installed),
  buildah: buildahCommand(config.image_dir),
  images_file: imageStore(config.image_dir).images_file,
  image: profileImage().reference,
});
const instances: Instance[] = [];
let server: Server;

beforeAll(async () => {
  await engine.boot();
  await engine.containers.userNamespacesTried();
  const gateway = engine.info().gateway;
  server = createServer((socket) => socket.end(`${socket.remoteAddress}`));
  await new Promise<void>((resolve) => server.listen(0, gateway, resolve));
});

afterAll(async () => {
  server.close();
  await engine.shutdown();
  rmSync(data_dir, { recursive: true, force: true });
});

async function inLanes(count: number, lanes_count: number, work: (n: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async () => {
    for (let n = next++; n < count; n = next++) await work(n);
  };
  await Promise.all(Array.from({ length: lanes_count }, lane));
}

/** The address that the gateway's server sees. */
async function seenFrom({ minit }: Instance): Promise<string> {
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  const { stdout } = await minit.execSole({
    argv: ["bash", "-c", `exec 3<>/dev/tcp/${engine.info().gateway}/${port}; cat <&3`],
    environment: ["PATH=/usr/bin:/bin"],
    working_directory: "",
    timeout_ms: 10_000,
    stdout_bytes_max: 1_000,
    stderr_bytes_max: 1_000,
    wipe: true,
    stdin: "",
  });
  return stdout;
}

describe(`${COUNT} instances at the same time`, () => {
  it("start, and each of a sample reaches the gateway from its own address", { timeout: 600_000 }, async () => {
    const port = server.address();
    await engine.openPort(typeof port === "object" ? (port?.port ?? 0) : 0);
    await inLanes(COUNT, STARTS_AT_ONCE, async (n) => {
      instances.push(await engine.start(`many-${n}`));
    });
    expect(new Set(instances.map(({ address }) => address)).size).toBe(COUNT);
    for (let n = 0; n < COUNT; n += SAMPLE_STEP) {
      const instance = instances[n] as Instance;
      expect(await seenFrom(instance)).toBe(instance.address);
    }
    const last = instances[COUNT - 1] as Instance;
    expect(await seenFrom(last)).toBe(last.address);
  });

  it("are removed, and their networks with them", { timeout: 600_000 }, async () => {
    await inLanes(COUNT, STARTS_AT_ONCE * 2, async (n) => engine.remove(instances[n] as Instance));
    const next = await engine.start("afterwards");
    expect(await seenFrom(next)).toBe(next.address);
    expect(instances.some(({ address }) => address === next.address)).toBe(false);
    await engine.remove(next);
  });
});
