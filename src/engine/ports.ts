/**
 * The ports of the engine: everything that the rest of the program may ask of this machine, and what holds after each
 * call. Types alone, without an import of any implementation: the folders beside this file implement them, and engine.ts
 * puts the implementation for this machine together.
 */
import type { Containers } from "./ports/containers.ts";
import type { Files } from "./ports/files.ts";
import type { Gpus } from "./ports/gpus.ts";
import type { Images } from "./ports/images.ts";
import type { Adopted, Instances } from "./ports/instances.ts";
import type { EngineInfo } from "./ports/machine.ts";
import type { Networks } from "./ports/networks.ts";
import type { Storage } from "./ports/storage.ts";

export type * from "./ports/archives.ts";
export type * from "./ports/commands.ts";
export type * from "./ports/containers.ts";
export type * from "./ports/files.ts";
export type * from "./ports/gpus.ts";
export type * from "./ports/images.ts";
export type * from "./ports/instances.ts";
export type * from "./ports/machine.ts";
export type * from "./ports/networks.ts";
export type * from "./ports/residents.ts";
export type * from "./ports/storage.ts";

/** The engine of one machine: function instances, API containers, and what both share. */
export interface Engine {
  readonly instances: Instances;
  readonly containers: Containers;
  readonly networks: Networks;
  readonly images: Images;
  readonly files: Files;
  readonly gpus: Gpus;
  /** Available after `boot`. */
  readonly storage: Storage;
  /**
   * Brings up the resources that every container shares. Resolves to the instances of an earlier process with the same
   * data directory that live, are idle and are as this process would make them, as if started here (`remove` those that
   * are not wanted). Removes all others, in part after it has resolved. Called once, before all else. Rejects with the
   * reason if this machine cannot run containers. `reserved`: addresses that are kept for containers (`Networks.reserve`).
   */
  boot(reserved?: readonly string[]): Promise<readonly Adopted[]>;
  /**
   * Lets every live link, of instances and of API containers alike, reach a TCP port of this machine at the `gateway`
   * address; the listener there decides which clients it serves. Resolves once the port is reachable; nothing else of the
   * machine is.
   */
  openPort(port: number): Promise<void>;
  /**
   * Opens the name server of containers. Resolves once containers reach it. Call when the names of all running containers are
   * known: a container that an earlier process started has the name that it had then until `Containers.rename`.
   */
  openNames(): Promise<void>;
  /** Number of packets that the bounds on tracked connections dropped. */
  flowsRefused(): Promise<number>;
  info(): EngineInfo;
  /** Removes what `boot` made. All instances must be removed before. */
  shutdown(): Promise<void>;
}
