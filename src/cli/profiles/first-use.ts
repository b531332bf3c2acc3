/** The first use of a profile, whose release the node builds meanwhile: who waits for it, and what a person sees. */
import { setTimeout as pause } from "node:timers/promises";
import { LIMITS } from "../../base/limits.ts";
import { visible } from "../output/text.ts";
import { percentText } from "../session/meter.ts";
import type { Session } from "../session/session.ts";

/** Timeout of a request that may wait for a build. */
export const FIRST_USE_TIMEOUT_MS = LIMITS.profile_wait_ms + LIMITS.cli_request_timeout_ms;

interface Image {
  readonly image?: string | null | undefined;
  readonly oci?: boolean | null | undefined;
}

/** Returns the profiles among images that a node may have to build. Set-up has built prod. */
export function profilesOf(images: readonly Image[]): string[] {
  const names = images.flatMap(({ image, oci }) => (oci === true ? [] : [image?.split(/[:@]/)[0] ?? "prod"]));
  return [...new Set(names)].filter((name) => name !== "prod" && name !== "");
}

/** Shows the progress of the first builds of profiles until a request is answered. Without profiles: that the request runs. */
export async function withBuild<T>(
  session: Session,
  profiles: readonly string[],
  doing: string,
  work: Promise<T>,
): Promise<T> {
  if (profiles.length === 0) return session.terminal.progress(doing, work);
  const state = { isOver: false };
  const end = work.then(
    () => {},
    () => {},
  );
  void end.then(() => {
    state.isOver = true;
  });
  // A release that is there needs no meter.
  await Promise.race([end, pause(LIMITS.cli_pull_poll_ms)]);
  const meter = session.terminal.meter();
  try {
    while (!state.isOver) {
      meter.show((await progressOf(session, profiles)) ?? doing);
      await Promise.race([end, pause(LIMITS.cli_pull_poll_ms)]);
    }
  } finally {
    meter.end();
  }
  return work;
}

/** The progress of the first of the profiles that is being built; null: none is. */
async function progressOf(session: Session, profiles: readonly string[]): Promise<string | null> {
  for (const profile of profiles) {
    const asked = session.client().request("GET /api/nightly/profiles/:profile", { params: { profile } });
    const found = await asked.catch(() => null);
    if (found === null || found.progress_pct === null) continue;
    return `building ${visible(profile)}  ${percentText(found.progress_pct)}  ${visible(found.message ?? "")}`;
  }
  return null;
}
