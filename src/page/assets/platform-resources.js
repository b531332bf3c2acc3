/** Requests of the page for images, private networks and profiles. */
import { RESOURCES_MAX } from "./resources.js";

/** @import { Api } from "./api.js" */
/** @import { HistoryEntry, ImageDetail, ImageRecord, PrivateNetwork, ProfileRecord, ReleaseRecord } from "../wire.ts" */

/** A deletion frees the layers that no image needs any more before it is answered. */
const DELETE_MS = 90_000;

/** @param {Api} api */
export function imagesOf(api) {
  const of = (/** @type {string} */ reference) => `?reference=${encodeURIComponent(reference)}`;
  return {
    /** Newest first. @returns {Promise<{ images: ImageRecord[], next_cursor: string | null }>} */
    list: () => api.request("GET", `/api/oci/images?limit=${RESOURCES_MAX}`),
    /** @param {string} reference @returns {Promise<ImageDetail>} */
    inspect: (reference) => api.request("GET", `/api/oci/images/inspect${of(reference)}`),
    /** The first step first. @param {string} reference @returns {Promise<{ history: HistoryEntry[] }>} */
    history: (reference) => api.request("GET", `/api/oci/images/history${of(reference)}`),
    /** Begins a pull. @param {string} reference @returns {Promise<{ operation_id: string }>} */
    pull: (reference) => api.request("POST", "/api/oci/images/pull?execution=async", { reference }),
    /** @param {string} reference */
    remove: (reference) => api.request("DELETE", `/api/oci/images${of(reference)}`, undefined, DELETE_MS),
  };
}

/** @param {Api} api */
export function networksOf(api) {
  return {
    /** By name. @returns {Promise<{ networks: PrivateNetwork[] }>} */
    list: () => api.request("GET", "/api/networks"),
  };
}

/** @param {Api} api */
export function profilesOf(api) {
  const profile = (/** @type {string} */ name, rest = "") => `/api/nightly/profiles/${encodeURIComponent(name)}${rest}`;
  return {
    /** @returns {Promise<{ profiles: ProfileRecord[] }>} */
    list: () => api.request("GET", "/api/nightly/profiles"),
    /** @param {string} name @returns {Promise<ProfileRecord>} */
    get: (name) => api.request("GET", profile(name)),
    /** Newest first. @param {string} name @returns {Promise<{ releases: ReleaseRecord[] }>} */
    releases: (name) => api.request("GET", profile(name, "/releases")),
  };
}
