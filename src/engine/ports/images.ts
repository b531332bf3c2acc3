/** The engine's port: images in the store of this machine. */

export interface FoundImage {
  readonly reference: string;
  /** Digest of the image's configuration: the content's own name. */
  readonly id: string;
  readonly release: string;
}

export interface Images {
  /** The image that stays mounted for function instances, once the engine has booted. */
  readonly pinned: FoundImage;
  /** Returns the image that a reference currently names. Rejects with NOT_FOUND only if the store has none. */
  find(reference: string): Promise<FoundImage>;
  /** Keeps these images in the store, and no others: set-up removes earlier releases that no daemon keeps. */
  keep(ids: ReadonlySet<string>): Promise<void>;
  /** Returns a text that changes with the store's images: while it is equal, earlier results of `find` hold. */
  state(): string;
  /** True if an image is in the store, and where a release is given of that release. Rejects if the store does not answer. */
  isRelease(reference: string, release: string | null): Promise<boolean>;
}
