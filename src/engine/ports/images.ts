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
  /** The image that a reference stands for now. Rejects with NOT_FOUND. */
  find(reference: string): Promise<FoundImage>;
  /** True if an image is in the store, and where a release is given of that release. */
  isRelease(reference: string, release: string | null): Promise<boolean>;
}
