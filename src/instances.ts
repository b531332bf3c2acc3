/** Composes the parts that run functions: the engine, and the pool of instances with their bindings to versions. */
import { availableParallelism } from "node:os";
import { Pool } from "../pool/index.ts";
import { RUNTIME_DEFAULT, RUNTIMES } from "../runtimes/index.ts";
import { type Clock, systemClock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import { errorText, invariant } from "./base/errors.ts";
import type { Ids } from "./base/ids.ts";
import { LIMITS } from "./base/limits.ts";
import type { Log } from "./base/log.ts";
import type { TransferTurns } from "./base/transfer-turns.ts";
import { LocalEngine } from "./engine/engine.ts";
import { Bindings, type HeldCode, type SecretValues } from "./functions/calls/bindings.ts";
import type { Call } from "./functions/calls/calling.ts";
import { FunctionLauncher } from "./functions/calls/launch.ts";
import type { Outcome } from "./functions/calls/outcome.ts";
import { InvocationTokens } from "./functions/calls/tokens.ts";
import { Classes } from "./functions/classes.ts";
import { buildahCommand, helperPath, imageStore, storageCommand } from "./installation/paths.js";
import { bytecodePath, profileImage } from "./installation/profiles.js";

interface Parts {
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
}

/** Returns the engine of this machine, before its boot. */
export function makeEngine({ config, clock, log, turns }: Parts & { readonly turns: TransferTurns }): LocalEngine {
  return new LocalEngine({
    config,
    clock,
    log,
    turns,
    minit: helperPath(config.data_dir),
    buildah: buildahCommand(config.image_dir),
    storage_command: storageCommand(config.image_dir),
    images_file: imageStore(config.image_dir).images_file,
    image: profileImage("prod").reference,
  });
}

interface InstanceParts extends Parts {
  readonly ids: Ids;
  readonly engine: LocalEngine;
  readonly secrets: SecretValues;
  readonly code: HeldCode;
  /** Number of this start of the daemon, which no other start has. */
  readonly start_number: number;
}

/** Returns the pool of function instances on an engine that has booted, and its parts. */
export function makeInstances({ config, clock, log, ids, engine, secrets, code, start_number }: InstanceParts) {
  const { instances, images } = engine;
  const tokens = new InvocationTokens(ids, clock);
  const classes = new Classes({
    runtimes: RUNTIMES,
    runtimes_directory: `${config.data_dir}/runtimes`,
    compiled: new Map([["python3", bytecodePath(config.image_dir)]]),
    imageOf: (profile) => {
      invariant(profile === "prod", `the image of profile ${profile} is mounted for function instances`);
      return images.pinned.id;
    },
    images,
    clock,
    log,
  });
  const bindings = new Bindings({ instances, clock, secrets, code });
  const launcher = new FunctionLauncher({ instances, classes, bindings, clock, log, tokens });
  const pool = new Pool<Call, Outcome>({
    settings: {
      instances_max: config.instances_max,
      starts_max: LIMITS.starts_max,
      start_attempts_max: LIMITS.start_attempts_max,
      instance_prefix: `i${start_number.toString(36)}-`,
      default_class: classes.of({ runtime: RUNTIME_DEFAULT }).key,
    },
    clock: systemClock,
    launcher,
    dispatch_running_max: availableParallelism() + 1,
    onFault: (fault, recent) =>
      log.error("pool fault", { error: errorText(fault), recent: JSON.stringify(recent.slice(-20)) }),
  });
  return { tokens, classes, bindings, launcher, pool };
}
