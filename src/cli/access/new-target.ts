/** The daemon that a new profile is for, and what hides the profile once it is saved. */
import type { Session } from "../session/session.ts";
import { checkUrl, URL_OF_THIS_MACHINE } from "../session/target.ts";

export function urlOf(session: Session): string {
  const { flags, environment } = session;
  if (flags.url !== undefined) return checkUrl(flags.url, "--url");
  return environment.url === null ? URL_OF_THIS_MACHINE : checkUrl(environment.url, "HEARTH_URL");
}

/** A profile that is in use and yet goes unused is a surprise. */
export function noteEnvironment({ environment, flags, terminal }: Session, url: string): void {
  const names = environment.url === null || environment.url === url ? [] : ["HEARTH_URL"];
  if (environment.key !== null) names.push("HEARTH_KEY");
  if (names.length === 0 || flags.json === true) return;
  const [are, override] = names.length === 1 ? ["is", "overrides"] : ["are", "override"];
  terminal.note(`${names.join(" and ")} ${are} set and ${override} the profile: unset ${names.join(" ")}`);
}
