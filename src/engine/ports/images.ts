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

export interface ImagePull {
  /**
   * For `docker` a complete reference, `<registry>/<repository>:<tag>` or `…@sha256:<digest>`. For `containers-storage` any
   * name or id that the store knows.
   */
  readonly reference: string;
  readonly transport: "docker" | "containers-storage";
  /** Of a reference to an index, which image of it. */
  readonly platform: { readonly os: string; readonly architecture: string; readonly variant: string | null };
  /** The only file that tells buildah how to reach registries; null: the machine's own. */
  readonly registries_conf: string | null;
  /** The policy by which buildah accepts signatures; null: the machine's own. */
  readonly policy_file: string | null;
  /** Digests of layers that the registry serves uncompressed. By them alone the layers of a failed pull are told from others. */
  readonly diff_ids: readonly string[];
  readonly timeout_ms: number;
  /** Ends the pull with the signal's reason. */
  readonly signal: AbortSignal;
}

export interface PulledImage {
  readonly id: string;
  /** Lets `keep` remove the image again unless it is among the ids given there. Harmless when repeated. */
  release(): void;
}

export interface ImageExport {
  readonly id: string;
  /** Uncompressed bytes of its layers. */
  readonly size_bytes: number;
  readonly timeout_ms: number;
  /** Ends the export with the signal's reason. */
  readonly signal: AbortSignal;
}

export interface ExportedLayer {
  /** Of the file. */
  readonly digest: string;
  readonly size_bytes: number;
  /** File with the layer as tar, compressed by gzip. */
  readonly path: string;
}

/** An image as files, until `release`. */
export interface ExportedImage {
  /** As stored: its digest is the image's id. */
  readonly config: Buffer;
  /** The lowest first; one may be in the image more than once. */
  readonly layers: readonly ExportedLayer[];
  /** Removes the files. Never rejects; harmless when repeated. */
  release(): Promise<void>;
}

export interface StoredLayer {
  /** Of the layer as the registry has it. */
  readonly digest: string;
  readonly size_bytes: number;
  /** Bytes of its tar; null: unknown. */
  readonly uncompressed_size: number | null;
  /** Digest of its tar, by its content; null: unknown. */
  readonly diff_id: string | null;
  readonly media_type: string;
}

export interface ImageDescription {
  readonly id: string;
  /** `sha256:` and 64 hex digits, of `manifest_json`. */
  readonly manifest_digest: string;
  /** As stored. */
  readonly manifest_json: string;
  readonly config_json: string;
  /** Uncompressed bytes of all layers. */
  readonly size_bytes: number;
  /** The lowest first. */
  readonly layers: readonly StoredLayer[];
}

export interface Images {
  /** The image that stays mounted for function instances, once the engine has booted. */
  readonly pinned: FoundImage;
  /** Returns the image that a reference currently names. Rejects with NOT_FOUND only if the store has none. */
  find(reference: string): Promise<FoundImage>;
  /** Returns the configuration of an image by its id. Rejects with INVALID_ARGUMENT if it is too large or malformed. */
  config(id: string): Promise<ImageConfig>;
  /**
   * Brings an image into the store. The store keeps it under a name of this daemon alone until `keep` says otherwise: names
   * that a pull gave it are taken away, names that it had before stay. Whatever ends a pull early, a crash included, the store
   * works and nothing of the pull stays longer than until the next boot, but for uncompressed layers that `diff_ids` does not
   * name: they stay for up to `orphan_layer_ms`. Rejects with NOT_FOUND (`containers-storage`), INVALID_ARGUMENT for no reference, FORBIDDEN if the policy
   * refuses the image, TIMEOUT, CAPACITY_FULL for a full disk or too many pulls, the signal's reason, and otherwise with INTERNAL
   * and buildah's last line.
   */
  pull(of: ImagePull): Promise<PulledImage>;
  /**
   * Keeps an image that the store has, under a name of this daemon, until the result is released, and after that as `keep` says.
   * Rejects with NOT_FOUND.
   */
  reserve(id: string): Promise<PulledImage>;
  /**
   * Writes the layers of an image into files of the data disk. The store keeps the image meanwhile. Whatever ends an export early, a
   * crash included, nothing of it stays longer than until the next boot. Rejects with NOT_FOUND, IMAGE_INVALID for a manifest of
   * an old format, TIMEOUT, CAPACITY_FULL for a full disk or too many exports, the signal's reason, and otherwise with INTERNAL.
   */
  export(of: ImageExport): Promise<ExportedImage>;
  /** Describes an image by its id. Rejects with NOT_FOUND. */
  describe(id: string): Promise<ImageDescription>;
  /**
   * Returns the path on this machine of a regular file of an image; null: the image has none there. Links are followed inside the
   * image. Rejects with NOT_FOUND for an unknown image.
   */
  fileIn(id: string, path: string): Promise<string | null>;
  /**
   * Removes the device nodes of an image from the store, but those that every container has and those that stand for deletions.
   * Resolves to their number. Rejects with NOT_FOUND.
   */
  removeDevices(id: string): Promise<number>;
  /**
   * Keeps the images that `read` resolves to, and of those that this daemon kept or pulled before no others: without another name
   * they are removed with the layers that no other image has. Images that containers use, and those whose pull or reservation was
   * unreleased when `read` began, stay until the next call: `onIdle` notifies when it can remove more. Set-up removes earlier
   * releases that no daemon keeps. Rejects as `read` does; then nothing is removed.
   */
  keep(read: () => Promise<ReadonlySet<string>>): Promise<void>;
  /**
   * Calls `listener` when the last container, pull or reservation of an image ends for which `keep` could not remove it, and of an
   * image that a reservation named. One listener.
   */
  onIdle(listener: () => void): void;
  /** Returns a text that changes with the store's images: while it is equal, earlier results of `find` hold. */
  state(): string;
  /** True if an image is in the store, and where a release is given of that release. Rejects if the store does not answer. */
  isRelease(reference: string, release: string | null): Promise<boolean>;
}
