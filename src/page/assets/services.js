/**
 * Published services of the tenant, live: the list over all containers, and one service. S1 of container-services.js holds
 * here, too: a token stands in the href of a link alone.
 */
import { containerHash, serviceHash } from "./addresses.js";
import { serviceButtons, serviceExpiry } from "./container-services.js";
import { h, setAttribute, setText, show } from "./dom.js";
import { dateTime } from "./format.js";
import { listView } from "./list-view.js";
import { resourcePage } from "./resource-page.js";
import { containersOf, servicesOf } from "./resources.js";
import { tableRow } from "./table.js";
import { unlessRefused } from "./view.js";
import { badge, card, choice } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { ServiceRecord } from "../wire.ts" */

const COLUMNS = ["Name", "Status", "Container", "Port", "Access", "Expires", "URL"];
/** @type {Readonly<Record<string, (record: ServiceRecord) => boolean>>} */
const FILTERS = {
  All: () => true,
  Ready: ({ status }) => status === "ready",
  Other: ({ status }) => status !== "ready",
};
const NONE = "No services. Publish a port on the page of a container.";

/** @typedef {ServiceRecord & { container: string }} Named with the name of its container, or its id */

/** @param {ServiceRecord} record */
const accessText = ({ auth_mode }) => (auth_mode === "public" ? "public" : "token");

/** The address that a browser opens; null: it would serve nothing. @param {ServiceRecord} record */
const servedAt = ({ public_url, status }) => (status === "expired" ? null : public_url);

/** A link to the service itself, in a tab that learns nothing of the page. */
function serviceLink() {
  const link = h("a", { class: "service-link", target: "_blank", rel: "noopener noreferrer" });
  const none = h("span", { class: "hint", text: "none" });
  return {
    element: h("span", {}, link, none),
    /** @param {ServiceRecord} record */
    update(record) {
      const url = servedAt(record);
      show(link, url !== null);
      show(none, url === null);
      setAttribute(link, "href", url);
      setText(link, url === null ? "" : new URL(url).host);
    },
  };
}

/** @param {Named} first @param {Context} context */
function row(first, { clock }) {
  const link = h("a", { class: "open", href: serviceHash(first.service_id) });
  const [status, url] = [badge(), serviceLink()];
  const container = h("a", { class: "above-row", href: containerHash(first.container_id) });
  const [port, access, expires] = [h("span"), h("span"), h("span")];
  const cells = [link, status.element, container, port, access, expires, url.element];
  return {
    element: tableRow(COLUMNS, cells, { "data-id": first.service_id }),
    /** @param {Named} next */
    update(next) {
      setText(link, next.name);
      status.update(next.status);
      setAttribute(status.element, "title", next.status_message);
      setText(container, next.container);
      setText(port, next.target_port);
      setText(access, accessText(next));
      setText(expires, serviceExpiry(next, clock.epochMs()));
      setAttribute(expires, "title", next.expires_at === null ? null : dateTime(next.expires_at));
      url.update(next);
    },
  };
}

/** The names of containers by their ids. @param {Context} context @returns {Promise<ReadonlyMap<string, string>>} */
async function containerNames({ api }) {
  const answer = await unlessRefused(containersOf(api).list());
  return new Map(answer?.containers.map(({ container_id, name }) => [container_id, name]));
}

/** @param {Context} context @returns {View} */
export function servicesView(context) {
  let isWanted = FILTERS.All ?? (() => true);
  const { view, filter, draw } = listView(context, {
    noun: "service",
    none: NONE,
    columns: COLUMNS,
    words: { title: "Services", filter: "Filter by name, container" },
    idOf: (/** @type {Named} */ { service_id }) => service_id,
    matches: (record, wanted) =>
      isWanted(record) && `${record.name}\n${record.container}`.toLowerCase().includes(wanted),
    row: (record) => row(record, context),
    ask: async () => {
      const { services, next_cursor } = await servicesOf(context.api).list();
      const names = services.length === 0 ? new Map() : await containerNames(context);
      const resources = services.map((one) => ({ ...one, container: names.get(one.container_id) ?? one.container_id }));
      return { resources, next_cursor };
    },
  });
  const states = choice("Filter by status", Object.keys(FILTERS), (name) => {
    isWanted = FILTERS[name] ?? isWanted;
    draw();
  });
  states.choose("All");
  filter.after(states.element);
  return view;
}

/** @param {Context} context @param {string} id @returns {View} */
export function serviceView(context, id) {
  const { api, clock } = context;
  const url = serviceLink();
  return resourcePage(context, {
    title: "Service",
    up: ["Services", "#/services"],
    facts: [
      ["Id", (/** @type {Named} */ { service_id }) => service_id],
      ["Container", ({ container, container_id }) => ({ text: container, href: containerHash(container_id) })],
      ["Port", ({ target_port }) => String(target_port)],
      ["Protocol", ({ protocol, enable_websockets }) => (enable_websockets ? `${protocol}, WebSockets` : protocol)],
      ["Access", accessText],
      ["Host name", ({ hostname }) => hostname ?? "chosen by hearth"],
      ["Published", ({ created_at }) => dateTime(created_at)],
      ["Token rotated", ({ rotated_at }) => (rotated_at === null ? "never" : dateTime(rotated_at))],
      ["Expires", (record) => serviceExpiry(record, clock.epochMs())],
    ],
    nameOf: ({ name }) => name,
    stateOf: ({ status }) => [status, status],
    failureOf: ({ status_message }) => status_message,
    ask: async () => {
      const record = await servicesOf(api).get(id);
      const found = await unlessRefused(containersOf(api).get(record.container_id));
      return { ...record, container: found?.name ?? record.container_id };
    },
    buttons: ({ trouble, current, onMoved, remove }) => {
      const first = /** @type {() => Named} */ (current);
      return serviceButtons(context, trouble, first, onMoved, remove);
    },
    content: { elements: [card("URL", url.element)], update: (record) => url.update(record) },
  });
}
