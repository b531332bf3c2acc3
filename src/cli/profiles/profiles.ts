/** The verbs of profiles: listed, shown, built, promoted, rolled back, compared. */
import type { ResponseOf } from "../../client/client.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { commandLineHint } from "../hints.ts";
import { watched } from "../images/images.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import type { Format } from "../output/terminal.ts";
import { visible } from "../output/text.ts";
import { bytes, relative } from "../output/time.ts";
import { EXIT, Failure } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Profile = ResponseOf<"GET /api/nightly/profiles">["profiles"][number];
type Release = ResponseOf<"GET /api/nightly/profiles/:profile/releases">["releases"][number];
type Update = ResponseOf<"GET /api/nightly/profiles/:profile/updates">["updates"][number];
type Channel = "latest" | "stable";

const FORMATS: Readonly<Record<Profile["state"], Format>> = {
  absent: "dim",
  building: "yellow",
  ready: "green",
  failed: "red",
};

function stateText({ state, progress_pct }: Profile): string {
  return progress_pct === null ? state : `${state} ${Math.round(progress_pct)} %`;
}

/** The fields of a profile that need words of their own: channels, tools, what failed. */
function factsOf({ channels, tools, updates, last_failure, ...rest }: Profile, now: number): [string, string][] {
  const facts: [string, string][] = [
    ...entriesOf(rest, now),
    ["latest", channels.latest ?? "-"],
    ["stable", channels.stable ?? "-"],
    ["tools", tools.join(" ")],
    ["updates", updatesText({ updates }) ?? "-"],
  ];
  if (last_failure === null) return facts;
  const { error, hint, failed_at, failures_count } = last_failure;
  facts.push([
    "failed",
    `${relative(failed_at, now)}${failures_count > 1 ? `, ${failures_count} times in a row` : ""}`,
  ]);
  if (error !== null) facts.push(["cause", error]);
  if (hint !== null) facts.push(["remedy", commandLineHint(hint)]);
  return facts;
}

function updatesText({ updates }: Pick<Profile, "updates">): string | null {
  if (updates === null) return null;
  return updates.security_count === 0 ? String(updates.count) : `${updates.count} (${updates.security_count} security)`;
}

export async function listProfiles(session: Session): Promise<void> {
  const answer = await session.client().request("GET /api/nightly/profiles");
  const columns: Column<Profile>[] = [
    { title: "PROFILE", value: ({ profile }) => profile },
    { title: "STATE", value: stateText, format: ({ state }) => FORMATS[state] },
    { title: "LATEST", value: ({ channels }) => channels.latest },
    { title: "STABLE", value: ({ channels }) => channels.stable },
    { title: "SIZE", value: ({ size_bytes }) => (size_bytes === null ? null : bytes(size_bytes)), side: "right" },
    { title: "PACKAGES", value: ({ package_count }) => package_count?.toString() ?? null, side: "right" },
    { title: "UPDATES", value: updatesText },
    { title: "FROM", value: ({ from }) => from },
    { title: "TITLE", value: ({ title }) => title, isSpare: true },
  ];
  session.show(answer, () => session.table(columns, answer.profiles, "no profiles"));
}

export async function showProfile(session: Session, [profile = ""]: Words): Promise<void> {
  const client = session.client();
  const params = { profile };
  const [record, { releases }] = await Promise.all([
    client.request("GET /api/nightly/profiles/:profile", { params }),
    client.request("GET /api/nightly/profiles/:profile/releases", { params }),
  ]);
  const columns: Column<Release>[] = [
    { title: "VERSION", value: ({ version }) => version },
    { title: "CHANNELS", value: ({ channels }) => channels.join(" ") || null },
    { title: "BUILT", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "SIZE", value: ({ size_bytes }) => bytes(size_bytes), side: "right" },
    { title: "PACKAGES", value: ({ package_count }) => String(package_count), side: "right" },
    { title: "REFERENCE", value: ({ oci_reference }) => oci_reference, isLong: true },
  ];
  session.show({ ...record, releases }, () => {
    const fields = session.list(factsOf(record, session.now));
    const log = record.last_failure?.log ?? "";
    const table = session.table(columns, releases, "no releases yet: the first use builds one");
    return `${fields}\n${log === "" ? "" : `${log.trimEnd().split("\n").map(visible).join("\n")}\n\n`}${table}`;
  });
}

export async function buildProfile(session: Session, [profile = ""]: Words, flags: Flags): Promise<void> {
  const body = { rebuild: flags.rebuild === true };
  const answer = await session
    .client()
    .request("POST /api/nightly/profiles/:profile/build", { params: { profile }, body });
  session.advice = { PROFILE_BUILD_FAILED: `hearth profiles show ${visible(profile)} shows the log` };
  const operation_id = accepted(answer);
  await watched(session, operation_id, `building ${visible(profile)}`);
  const operation = await succeeded(session, operation_id, `building ${profile}`);
  session.show(operation, () => `${visible(profile)} has release ${String(operation.result?.version)}\n`);
}

export async function promoteProfile(
  session: Session,
  [profile = "", channel = "", version = ""]: Words,
): Promise<void> {
  const body = { channel: channel as Channel, version };
  const moved = await session
    .client()
    .request("POST /api/nightly/profiles/:profile/promote", { params: { profile }, body });
  session.show(moved, () => `${visible(profile)}:${moved.channel} is ${moved.version}\n`);
}

export async function rollbackProfile(session: Session, [profile = "", channel = ""]: Words): Promise<void> {
  const body = { channel: channel as Channel };
  const moved = await session
    .client()
    .request("POST /api/nightly/profiles/:profile/rollback", { params: { profile }, body });
  session.show(moved, () => `${visible(profile)}:${moved.channel} is ${moved.version} again\n`);
}

/** Without versions: the newest release, compared with the one before it. */
export async function diffProfile(session: Session, [profile = "", one, two]: Words): Promise<void> {
  const client = session.client();
  const { releases } = await client.request("GET /api/nightly/profiles/:profile/releases", { params: { profile } });
  const version = one ?? releases[1]?.version;
  const other = two ?? releases[0]?.version;
  if (version === undefined || other === undefined) {
    throw new Failure(
      EXIT.refused,
      `${profile} has no two releases to compare`,
      `hearth profiles show ${profile} lists them`,
    );
  }
  const params = { profile, version, other };
  const diff = await client.request("GET /api/nightly/profiles/:profile/releases/:version/diff/:other", { params });
  session.show(diff, () => {
    const lines = [
      ...diff.added.map((one) => `+ ${one.name} ${one.version}`),
      ...diff.removed.map((one) => `- ${one.name} ${one.version}`),
      ...diff.changed.map(({ name, from, to }) => `~ ${name} ${from} → ${to}`),
    ];
    return lines.length === 0 ? "the packages are the same\n" : lines.map((line) => `${visible(line)}\n`).join("");
  });
}

export async function profileUpdates(session: Session, [profile = ""]: Words, flags: Flags): Promise<void> {
  const query = { refresh: flags.refresh === true ? ("true" as const) : undefined };
  const asked = session.client().request("GET /api/nightly/profiles/:profile/updates", { params: { profile }, query });
  const answer = await session.terminal.progress("asking the apt sources", asked);
  const columns: Column<Update>[] = [
    { title: "PACKAGE", value: ({ name }) => name },
    { title: "VERSION", value: ({ version }) => version },
    { title: "NEWER", value: ({ new_version }) => new_version },
    { title: "SECURITY", value: ({ is_security }) => (is_security ? "yes" : null), format: () => "red" },
    { title: "ORIGIN", value: ({ origin }) => origin, isSpare: true },
  ];
  session.show(answer, () => session.table(columns, answer.updates, "no updates"));
}
