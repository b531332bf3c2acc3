/** Profiles of this node as the files say: recipes, their releases and channels. src/profiles.ts reads them. */

export const CHANNELS = ["latest", "stable"] as const;
export type ChannelName = (typeof CHANNELS)[number];

export interface Recipe {
  readonly profile: {
    readonly name: string;
    readonly title: string;
    readonly description: string;
    /** The profile below. */
    readonly from: string | null;
    readonly tools: readonly string[];
    readonly user?: string;
  };
  readonly recipe_id: string;
}

export interface Release {
  readonly profile: string;
  readonly version: string;
  readonly recipe_id: string;
  readonly suite: string;
  readonly image_id: string;
  /** Of the manifest: `sha256:` and 64 hex digits. */
  readonly digest: string;
  /** In the image store. */
  readonly reference: string;
  readonly base_version: string | null;
  /** Epoch seconds. */
  readonly created_at: number;
  readonly size_bytes: number;
  readonly own_bytes: number;
  readonly package_count: number;
  /** Path in the image of each program that the profile promises. */
  readonly tools: Readonly<Record<string, string>>;
}

export interface Package {
  readonly name: string;
  readonly version: string;
  readonly architecture: string;
  readonly source: string;
  readonly licences: readonly string[];
  readonly size_kb: number;
  readonly kind: "deb" | "npm";
}

export interface Channel {
  readonly version: string;
  /** Earlier versions, the newest first. */
  readonly history: readonly string[];
  readonly changed_at: number;
}

/** Synchronous: the files are small, and repeated reads are answered from memory while nothing changed. */
export interface Catalog {
  names(): readonly string[];
  /** Throws NOT_FOUND for an unknown profile. */
  recipe(name: string): Recipe;
  /** Releases whose image is in the store, the newest first. */
  releases(name: string): readonly Release[];
  packages(name: string, version: string): readonly Package[];
  /** Null: no release was given to the channel yet, or its image is gone. */
  channel(name: string, channel: ChannelName): Channel | null;
}
