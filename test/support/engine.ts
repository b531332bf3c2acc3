/** An engine of its own in the test's process, as set-up installed its parts, and commands for its instances. */

import { systemClock } from "../../src/base/clock.ts";
import { type Config, readConfig } from "../../src/base/config.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { createLog } from "../../src/base/log.ts";
import { TransferTurns } from "../../src/base/transfer-turns.ts";
import { bareSpec } from "../../src/engine/bundles/container.ts";
import { LocalEngine } from "../../src/engine/engine.ts";
import type { ContainerSpec, Engine, ExecRequest, InstanceClass } from "../../src/engine/ports.ts";
import { buildahCommand, imageStore, readDirectories, storageCommand } from "../../src/installation/paths.js";
import { profileImage } from "../../src/installation/profiles.js";
import { engineHelper } from "./helper.ts";

/** The configuration by these flags, with the images that set-up installed. */
export function engineConfig(flags: readonly string[]): Config {
  const { image_dir } = readDirectories(process.env, []);
  return readConfig({}, [...flags, "--image-dir", image_dir]);
}

export function engineOf(config: Config, image = profileImage().reference, minit = engineHelper()): Engine {
  const { image_dir } = config;
  return new LocalEngine({
    config,
    clock: systemClock,
    turns: new TransferTurns(systemClock),
    log: createLog("error", systemClock),
    minit,
    buildah: buildahCommand(image_dir),
    storage_command: storageCommand(image_dir),
    images_file: imageStore(image_dir).images_file,
    image,
  });
}

/** The class of most instances: the image that the engine keeps mounted. */
export function standardClass(engine: Engine, more: Partial<InstanceClass> = {}): InstanceClass {
  const image = engine.images.pinned.id;
  return { key: "standard", image, scratch_mb: LIMITS.tmpfs_mb, runtime_directory: null, resident: null, ...more };
}

export function command(argv: readonly string[], more: Partial<ExecRequest> = {}): ExecRequest {
  return {
    argv,
    environment: ["PATH=/usr/bin:/bin"],
    working_directory: "",
    timeout_ms: 10_000,
    stdout_bytes_max: 65_536,
    stderr_bytes_max: 65_536,
    wipe: true,
    payload: "",
    ...more,
  };
}

/** A container of which minit alone runs, unless it is given a command. */
export function containerSpec(id: string, more: Partial<ContainerSpec> = {}): ContainerSpec {
  return { ...bareSpec(id), tenant_id: "default", image_id: profileImage().reference, memory_limit_mb: 64, ...more };
}
