/** Profiles of the node, live: the images that it builds itself. The list, and one profile with its releases. */
import { profileHash } from "./addresses.js";
import { h, setAttribute, setText } from "./dom.js";
import { age, bytes, count, dateTime } from "./format.js";
import { listView } from "./list-view.js";
import { profilesOf } from "./platform-resources.js";
import { resourcePage } from "./resource-page.js";
import { followedList, table, tableRow } from "./table.js";
import { badge, card } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { ProfileRecord, ReleaseRecord } from "../wire.ts" */

const COLUMNS = ["Name", "State", "Purpose", "Size", "Packages", "Updates", "Release"];
const RELEASE_COLUMNS = ["Version", "Channels", "Size", "Packages", "Built"];

/** @param {number | null} value */
const counted = (value) => (value === null ? "" : count(value));
/** @param {ProfileRecord} profile */
const updatesText = ({ updates }) => (updates === null ? "not asked" : count(updates.count));
/** @param {ProfileRecord} profile */
const stateText = ({ state, progress_pct }) => (progress_pct === null ? state : `${state} ${progress_pct} %`);

/** @param {ProfileRecord} first */
function row(first) {
  const link = h("a", { class: "open", href: profileHash(first.profile), text: first.profile });
  const state = badge();
  const [title, size, packages, updates, release] = [h("span"), h("span"), h("span"), h("span"), h("code")];
  const cells = [link, state.element, title, size, packages, updates, release];
  return {
    element: tableRow(COLUMNS, cells, { "data-id": first.profile }),
    /** @param {ProfileRecord} next */
    update(next) {
      state.update(next.state, stateText(next));
      setText(title, next.title);
      setAttribute(title, "title", next.description);
      setText(size, next.size_bytes === null ? "" : bytes(next.size_bytes));
      setText(packages, counted(next.package_count));
      setText(updates, updatesText(next));
      setText(release, next.channels.latest ?? "");
    },
  };
}

/** @param {Context} context @returns {View} */
export function profilesView(context) {
  return listView(context, {
    noun: "profile",
    columns: COLUMNS,
    words: { title: "Profiles", filter: "Filter by name, purpose, tool" },
    idOf: (/** @type {ProfileRecord} */ { profile }) => profile,
    matches: ({ profile, title, description, tools }, wanted) =>
      [profile, title, description, ...tools].join("\n").toLowerCase().includes(wanted),
    row,
    ask: async () => ({ resources: (await profilesOf(context.api).list()).profiles, next_cursor: null }),
  }).view;
}

/** @typedef {ProfileRecord & { releases: readonly ReleaseRecord[] }} Shown */

/** @type {readonly [string, (shown: Shown) => string | { text: string, href: string }][]} */
const FACTS = [
  ["Built on", ({ from }) => (from === null ? "nothing" : { text: from, href: profileHash(from) })],
  ["Latest", ({ channels }) => channels.latest ?? "none"],
  ["Stable", ({ channels }) => channels.stable ?? "none"],
  ["Size", ({ size_bytes }) => (size_bytes === null ? "unknown" : bytes(size_bytes))],
  ["Own layers", ({ own_bytes }) => (own_bytes === null ? "unknown" : bytes(own_bytes))],
  ["Packages", ({ package_count }) => counted(package_count) || "unknown"],
  ["Updates", updatesText],
  ["Security updates", ({ updates }) => (updates === null ? "not asked" : count(updates.security_count))],
  ["Disk", ({ disk_bytes }) => bytes(disk_bytes)],
  ["Recipe", ({ recipe_id }) => recipe_id],
  ["Tools", ({ tools }) => tools.join(", ") || "none"],
];

/** @param {Context} context */
function content({ clock }) {
  const about = h("p", { class: "about" });
  const releases = followedList(
    table("Releases", "releases slim", RELEASE_COLUMNS),
    "No release yet: the first container of the profile builds it.",
    (/** @type {ReleaseRecord} */ { version }) => version,
    (release) => {
      const [channels, built] = [h("span"), h("time", { title: dateTime(release.created_at) })];
      const version = h("code", { text: release.version, title: release.oci_reference });
      const cells = [version, channels, bytes(release.size_bytes), count(release.package_count), built];
      return {
        element: tableRow(RELEASE_COLUMNS, cells, { "data-id": release.version }),
        /** @param {ReleaseRecord} next */
        update(next) {
          setText(channels, next.channels.join(", "));
          setText(built, age(next.created_at, clock.epochMs()));
        },
      };
    },
  );
  return {
    elements: [card("Purpose", about), card("Releases", ...releases.elements)],
    /** @param {Shown} shown */
    update(shown) {
      setText(about, shown.description);
      releases.update(shown.releases);
    },
  };
}

/** @param {Context} context @param {string} name @returns {View} */
export function profileView(context, name) {
  const profiles = profilesOf(context.api);
  return resourcePage(context, {
    title: "Profile",
    up: ["Profiles", "#/profiles"],
    facts: FACTS,
    nameOf: (/** @type {Shown} */ { profile }) => profile,
    stateOf: (shown) => [shown.state, stateText(shown)],
    hintOf: ({ title, message }) => message ?? title,
    failureOf: ({ state, last_failure }) =>
      state !== "failed" || last_failure === null
        ? null
        : `The last build failed ${dateTime(last_failure.failed_at)}. ${last_failure.error ?? ""}`.trim(),
    ask: async () => ({ ...(await profiles.get(name)), ...(await profiles.releases(name)) }),
    content: content(context),
  });
}
