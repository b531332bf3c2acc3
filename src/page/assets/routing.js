/** Which view an address means. Every view of the page is here, and nowhere else. */
import { activityView } from "./activity.js";
import { containerHash, decoded, volumeHash } from "./addresses.js";
import { containerChangesView } from "./changes.js";
import { containerView } from "./container.js";
import { containersView } from "./containers.js";
import { containerFilesView } from "./files.js";
import { functionView } from "./function.js";
import { functionsView } from "./functions.js";
import { imagesView, imageView, pullImageView } from "./images.js";
import { inboxView, messagesView } from "./messages.js";
import { networksView, networkView } from "./networks.js";
import { newContainerView } from "./new-container.js";
import { newFunctionView } from "./new-function.js";
import { operationsView, operationView } from "./operations.js";
import { profilesView, profileView } from "./profiles.js";
import { newSecretView, secretsView, secretView } from "./secrets.js";
import { servicesView, serviceView } from "./services.js";
import { snapshotView } from "./snapshot.js";
import { snapshotsView } from "./snapshots.js";
import { terminalView } from "./terminal.js";
import { terminalsView } from "./terminals.js";
import { volumeView } from "./volume.js";
import { newVolumeView, volumesView } from "./volumes.js";

/** @import { Context, View } from "./view.js" */
/** @import { Place } from "./files.js" */

/**
 * @typedef {object} Section
 * @property {string} title
 * @property {string} address of its list
 * @property {string | null} create address of the form that makes one
 * @property {(context: Context) => View} list
 */

/** @type {Section} */
const FUNCTIONS = { title: "Functions", address: "#/", create: "#/new", list: functionsView };
/** @type {Section} */
const CONTAINERS = {
  title: "Containers",
  address: "#/containers",
  create: "#/new-container",
  list: containersView,
};
/** @type {Section} */
const TERMINALS = { title: "Terminals", address: "#/terminals", create: null, list: terminalsView };
/** @type {Section} */
const IMAGES = { title: "Images", address: "#/images", create: "#/pull-image", list: imagesView };
/** @type {Section} */
const PROFILES = { title: "Profiles", address: "#/profiles", create: null, list: profilesView };
/** @type {Section} */
const VOLUMES = { title: "Volumes", address: "#/volumes", create: "#/new-volume", list: volumesView };
/** @type {Section} */
const SNAPSHOTS = { title: "Snapshots", address: "#/snapshots", create: null, list: snapshotsView };
/** @type {Section} */
const NETWORKS = { title: "Networks", address: "#/networks", create: null, list: networksView };
/** @type {Section} */
const SERVICES = { title: "Services", address: "#/services", create: null, list: servicesView };
/** @type {Section} */
const MESSAGES = { title: "Messages", address: "#/messages", create: null, list: messagesView };
/** @type {Section} */
const SECRETS = { title: "Secrets", address: "#/secrets", create: "#/new-secret", list: secretsView };
/** @type {Section} */
const OPERATIONS = { title: "Operations", address: "#/operations", create: null, list: operationsView };
/** @type {Section} */
const ACTIVITY = { title: "Activity", address: "#/activity", create: null, list: activityView };

/**
 * @typedef {object} Group
 * @property {string} title
 * @property {readonly Section[]} sections
 */

/**
 * The areas in the order of the navigation. The page shows what is listed here, and nothing else. The navigation scrolls:
 * it has room for more groups, such as one of clusters and nodes once there are any.
 * @type {readonly Group[]}
 */
export const GROUPS = [
  { title: "Compute", sections: [FUNCTIONS, CONTAINERS, TERMINALS] },
  { title: "Storage", sections: [IMAGES, PROFILES, VOLUMES, SNAPSHOTS, SECRETS] },
  { title: "Network", sections: [NETWORKS, SERVICES, MESSAGES] },
  { title: "Monitor", sections: [OPERATIONS, ACTIVITY] },
];

export const SECTIONS = GROUPS.flatMap(({ sections }) => sections);

/** @param {string} base @param {string} path as in the address @param {string} page @returns {Place} */
function filesPlace(base, path, page) {
  const parts = path.split("/").map(decoded);
  const plain = parts.filter((part) => part !== "" && part !== "." && part !== "..");
  return { base, path: `/${plain.join("/")}`, page: Math.max(1, Number(page)) };
}

/**
 * Patterns, their sections, and what makes the view of the parts that they find; the first part is what was opened.
 * @type {readonly (readonly [RegExp, Section, (context: Context, id: string, rest: string, more: string) => View])[]}
 */
const VIEWS = [
  [/^#\/new$/, FUNCTIONS, (context) => newFunctionView(context)],
  [/^#\/functions\/(.+)$/, FUNCTIONS, (context, id) => functionView(context, id)],
  [/^#\/new-container$/, CONTAINERS, (context) => newContainerView(context)],
  [/^#\/containers\/([^/]+)$/, CONTAINERS, (context, id) => containerView(context, id)],
  [
    /^#\/containers\/([^/]+)\/terminal(?:\/(\w+))?$/,
    CONTAINERS,
    (context, id, session) => terminalView(context, id, session),
  ],
  [
    /^#\/containers\/([^/]+)\/files(\/[^?]*)?(?:\?page=(\d{1,6}))?$/,
    CONTAINERS,
    (context, id, path, page) => containerFilesView(context, id, filesPlace(`${containerHash(id)}/files`, path, page)),
  ],
  [/^#\/containers\/([^/]+)\/changes$/, CONTAINERS, (context, id) => containerChangesView(context, id)],
  [/^#\/pull-image$/, IMAGES, (context) => pullImageView(context)],
  [/^#\/images\/(.+)$/, IMAGES, (context, reference) => imageView(context, reference)],
  [/^#\/profiles\/([^/]+)$/, PROFILES, (context, name) => profileView(context, name)],
  [/^#\/networks\/([^/]+)$/, NETWORKS, (context, name) => networkView(context, name)],
  [/^#\/services\/([^/]+)$/, SERVICES, (context, id) => serviceView(context, id)],
  [/^#\/operations\/([^/]+)$/, OPERATIONS, (context, id) => operationView(context, id)],
  [/^#\/snapshots\/([^/]+)$/, SNAPSHOTS, (context, id) => snapshotView(context, id)],
  [/^#\/messages\/([^/]+)$/, MESSAGES, (context, inbox) => inboxView(context, inbox)],
  [/^#\/new-volume$/, VOLUMES, (context) => newVolumeView(context)],
  [
    /^#\/volumes\/([^/?]+)(\/[^?]*)?(?:\?page=(\d{1,6}))?$/,
    VOLUMES,
    (context, name, path, page) => volumeView(context, name, filesPlace(volumeHash(name), path, page)),
  ],
  [/^#\/new-secret$/, SECRETS, (context) => newSecretView(context)],
  [/^#\/secrets\/([^/]+)$/, SECRETS, (context, name) => secretView(context, name)],
];

/**
 * @param {string} hash
 * @returns {{ section: Section, opened_id: string, make: ((context: Context) => View) | null }} without `make` it is
 *   the section's list
 */
export function placeOf(hash) {
  for (const [pattern, section, make] of VIEWS) {
    const found = pattern.exec(hash);
    if (found === null) continue;
    const [, id = "", rest = "", more = ""] = found;
    const opened_id = decoded(id);
    return { section, opened_id, make: (context) => make(context, opened_id, rest, more) };
  }
  const section = SECTIONS.find(({ address }) => address === hash) ?? FUNCTIONS;
  return { section, opened_id: "", make: null };
}
