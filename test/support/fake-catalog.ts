/** Profiles whose recipes, releases and channels a test writes in memory, and builds that it plays. */
import { AppError } from "../../src/base/errors.ts";
import type { Catalog, Channel, ChannelName, Package, Recipe, Release } from "../../src/nightly/catalog.ts";

export class FakeCatalog implements Catalog {
  readonly #recipes = new Map<string, Recipe>();
  readonly #releases = new Map<string, Release[]>();
  readonly #channels = new Map<string, Channel>();

  add(name: string, from: string | null = null, user?: string): void {
    const about = {
      name,
      title: name,
      description: name,
      from,
      tools: ["sh"],
      ...(user === undefined ? {} : { user }),
    };
    this.#recipes.set(name, { profile: about, recipe_id: idOf(name) });
  }

  /** Adds a release and lets channels name it. */
  release(profile: string, suffix: string, channels: readonly ChannelName[], more: Partial<Release> = {}): Release {
    const version = `${idOf(profile)}-${suffix}`;
    const release: Release = {
      ...{
        profile,
        version,
        recipe_id: idOf(profile),
        suite: "bookworm",
        image_id: suffix,
        digest: `sha256:${suffix}`,
      },
      ...{ reference: `localhost/hearth/${profile}:${version}`, base_version: null, created_at: 1 },
      ...{ size_bytes: 1, own_bytes: 1, package_count: 1, tools: {} },
      ...more,
    };
    this.#releases.set(profile, [release, ...this.releases(profile)]);
    for (const channel of channels) {
      const before = this.channel(profile, channel);
      const history = before === null ? [] : [before.version, ...before.history];
      this.#channels.set(`${profile} ${channel}`, { version, history, changed_at: 1 });
    }
    return release;
  }

  /** Loses the image of a release. */
  lose({ profile, version }: Release): void {
    this.#releases.set(
      profile,
      this.releases(profile).filter((one) => one.version !== version),
    );
  }

  /** Moves a channel back, as set-up does. */
  move(profile: string, channel: ChannelName, version: string): void {
    const history = this.channel(profile, channel)?.history ?? [];
    this.#channels.set(`${profile} ${channel}`, {
      ...{ version, history: history.slice(history.indexOf(version) + 1), changed_at: 2 },
    });
  }

  names(): readonly string[] {
    return [...this.#recipes.keys()];
  }

  recipe(name: string): Recipe {
    const found = this.#recipes.get(name);
    if (found === undefined) throw new AppError("NOT_FOUND", `profile '${name}' not found`);
    return found;
  }

  releases(name: string): readonly Release[] {
    return this.#releases.get(name) ?? [];
  }

  packages(): readonly Package[] {
    return [];
  }

  channel(name: string, channel: ChannelName): Channel | null {
    return this.#channels.get(`${name} ${channel}`) ?? null;
  }
}

/** Twelve hex digits, as an id of a recipe has. */
const idOf = (name: string): string => Buffer.from(name.padEnd(6, "-")).toString("hex").slice(0, 12);
