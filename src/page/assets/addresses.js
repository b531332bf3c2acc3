/** Addresses of the page's views, and what is asked for at them. A view is reached by its address and by nothing else. */

/** @param {string} container its id or name */
export const containerHash = (container) => `#/containers/${encodeURIComponent(container)}`;

/** In the place of a session's id: a new one, whatever sessions there are. */
export const NEW_SESSION = "new";

/** Without a session: one that no client is attached to, or a new one. @param {string} container @param {string} [session] */
export const terminalHash = (container, session = "") =>
  `${containerHash(container)}/terminal${session === "" ? "" : `/${session}`}`;

/** Its changes since its image or a snapshot. @param {string} container */
export const changesHash = (container) => `${containerHash(container)}/changes`;

/** @param {string} snapshot its id */
export const snapshotHash = (snapshot) => `#/snapshots/${encodeURIComponent(snapshot)}`;

/** An inbox of a container, a queue or a topic. Others, as those of bindings, have none. @param {string} inbox */
export function inboxHash(inbox) {
  if (/^(queue|topic):/.test(inbox)) return `#/messages/${encodeURIComponent(inbox)}`;
  return inbox.includes(":") ? null : containerHash(inbox);
}

/** @param {string} image its reference or id */
export const imageHash = (image) => `#/images/${encodeURIComponent(image)}`;

/** @param {string} network */
export const networkHash = (network) => `#/networks/${encodeURIComponent(network)}`;

/** @param {string} service its id */
export const serviceHash = (service) => `#/services/${encodeURIComponent(service)}`;

/** @param {string} profile */
export const profileHash = (profile) => `#/profiles/${encodeURIComponent(profile)}`;

/** @param {string} operation its id */
export const operationHash = (operation) => `#/operations/${encodeURIComponent(operation)}`;

/** @param {string} volume */
export const volumeHash = (volume) => `#/volumes/${encodeURIComponent(volume)}`;

/** @param {string} name */
export const secretHash = (name) => `#/secrets/${encodeURIComponent(name)}`;

/** Of a path, each part by itself. @param {string} path */
export const encodedPath = (path) => path.split("/").map(encodeURIComponent).join("/");

/** @param {string} base of the tree's view @param {string} path in it, with a slash in front @param {number} [page] */
export const filesHash = (base, path, page = 1) => `${base}${encodedPath(path)}${page === 1 ? "" : `?page=${page}`}`;

/** @param {string} text of an address, which a person may have typed */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
