/** The engine's port: images in the store of this machine. */

export interface FoundImage {
  readonly reference: string;
  /** Digest of the image's configuration: the content's own name. */
  readonly id: string;
  readonly release: string;
}

/** Configuration that an image gives to its containers (OCI image specification, config.md). */
export interface ImageConfig {
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** The three below: as they are in the image; null where it has none. */
  readonly working_directory: string | null;
  readonly user: string | null;
  readonly stop_signal: string | null;
  /** Such as `80/tcp`. */
  readonly exposed_ports: readonly string[];
  /** Paths that the image declares as volumes. */
  readonly volumes: readonly string[];
  readonly health: ImageHealth | null;
}

/** The health check of an image; null: a parameter that it does not set. */
export interface ImageHealth {
  readonly command: readonly string[];
  readonly interval_ms: number | null;
  readonly timeout_ms: number | null;
  readonly start_period_ms: number | null;
  readonly retries: number | null;
}

export interface Images {
  /** The image that stays mounted for function instances, once the engine has booted. */
  readonly pinned: FoundImage;
  /** Returns the image that a reference currently names. Rejects with NOT_FOUND only if the store has none. */
  find(reference: string): Promise<FoundImage>;
  /** Returns the configuration of an image by its id. Rejects with INVALID_ARGUMENT if it is too large or malformed. */
  config(id: string): Promise<ImageConfig>;
  /** Keeps these images in the store, and no others: set-up removes earlier releases that no daemon keeps. */
  keep(ids: ReadonlySet<string>): Promise<void>;
  /** Returns a text that changes with the store's images: while it is equal, earlier results of `find` hold. */
  state(): string;
  /** True if an image is in the store, and where a release is given of that release. Rejects if the store does not answer. */
  isRelease(reference: string, release: string | null): Promise<boolean>;
}
