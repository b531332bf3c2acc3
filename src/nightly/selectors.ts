/**
 * Names of profiles in requests. A native selector is `<profile>`, `<profile>:<channel>`, `<profile>:<version>` or
 * `<profile>@<version>`. A reference has a host in front, which is reserved: no registry of that name is ever asked.
 */
import { PROFILE_REGISTRY } from "../base/profile-registry.ts";
import { CHANNELS, type ChannelName } from "./catalog.ts";

const SELECTOR = /^([a-z][a-z0-9-]*)(?:[:@]([A-Za-z0-9.-]+))?$/;
export const VERSION = /^[0-9a-f]{12}-[0-9a-f]{8}$/;

export interface Selector {
  readonly profile: string;
  /** A channel, or null for a version. */
  readonly channel: ChannelName | null;
  readonly version: string | null;
}

/** Returns null for a text that selects no profile. */
export function parseSelector(text: string): Selector | null {
  const [, profile, end = "latest"] = SELECTOR.exec(text) ?? [];
  if (profile === undefined) return null;
  const channel = CHANNELS.find((one) => one === end);
  if (channel !== undefined) return { profile, channel, version: null };
  return VERSION.test(end) ? { profile, channel: null, version: end } : null;
}

export function profileReference(profile: string, digest: string): string {
  return `${PROFILE_REGISTRY}/${profile}@${digest}`;
}
