/** Private networks of the tenant, live: the list, and one network with its containers. A network is as long as a container names it. */
import { containerHash, networkHash } from "./addresses.js";
import { ApiError } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { count, counted } from "./format.js";
import { listView } from "./list-view.js";
import { networksOf } from "./platform-resources.js";
import { resourcePage } from "./resource-page.js";
import { followedList, table, tableRow } from "./table.js";
import { badge, card } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { NetworkMember, PrivateNetwork } from "../wire.ts" */

const COLUMNS = ["Name", "Containers", "Running", "Members"];
const MEMBER_COLUMNS = ["Name", "State", "Address", "DNS name"];
const NONE = "No networks. The first container that names a network makes it.";

/** @param {PrivateNetwork} network */
const runningOf = ({ members }) => members.filter(({ state }) => state === "running").length;

/** @param {PrivateNetwork} first */
function row(first) {
  const link = h("a", { class: "open", href: networkHash(first.name), text: first.name });
  const [all, running, members] = [h("span"), h("span"), h("span")];
  return {
    element: tableRow(COLUMNS, [link, all, running, members], { "data-id": first.name }),
    /** @param {PrivateNetwork} next */
    update(next) {
      setText(all, count(next.members.length));
      setText(running, count(runningOf(next)));
      const names = next.members.map(({ name }) => name).join(", ");
      setText(members, names);
      setAttribute(members, "title", names);
    },
  };
}

/** @param {Context} context @returns {View} */
export function networksView(context) {
  return listView(context, {
    noun: "network",
    none: NONE,
    columns: COLUMNS,
    words: { title: "Networks", filter: "Filter by name, container" },
    idOf: (/** @type {PrivateNetwork} */ { name }) => name,
    matches: ({ name, members }, wanted) =>
      [name, ...members.map((member) => member.name)].join("\n").toLowerCase().includes(wanted),
    row,
    ask: async () => ({ resources: (await networksOf(context.api).list()).networks, next_cursor: null }),
  }).view;
}

/** @param {string} network */
function content(network) {
  const members = followedList(
    table("Containers", "members slim", MEMBER_COLUMNS),
    "No containers.",
    (/** @type {NetworkMember} */ { container_id }) => container_id,
    ({ container_id }) => {
      const link = h("a", { class: "open", href: containerHash(container_id) });
      const [state, address, inside] = [badge(), h("code"), h("code")];
      return {
        element: tableRow(MEMBER_COLUMNS, [link, state.element, address, inside], { "data-id": container_id }),
        /** @param {NetworkMember} member */
        update(member) {
          setText(link, member.name);
          state.update(member.state);
          setText(address, member.ip_address ?? "none");
          setText(inside, `${member.name}.${network}.hearth.internal`);
        },
      };
    },
  );
  return {
    elements: [card("Containers", ...members.elements)],
    /** @param {PrivateNetwork} shown */
    update: (shown) => members.update(shown.members),
  };
}

/** @param {Context} context @param {string} name @returns {View} */
export function networkView(context, name) {
  return resourcePage(context, {
    title: "Network",
    up: ["Networks", "#/networks"],
    facts: [
      ["Name", (/** @type {PrivateNetwork} */ network) => network.name],
      ["Containers", ({ members }) => count(members.length)],
      ["Running", (network) => count(runningOf(network))],
      ["DNS domain", (network) => `${network.name}.hearth.internal`],
    ],
    nameOf: (network) => network.name,
    stateOf: () => null,
    hintOf: ({ members }) => counted(members.length, "container"),
    ask: async () => {
      const { networks } = await networksOf(context.api).list();
      const found = networks.find((network) => network.name === name);
      if (found === undefined) {
        throw new ApiError(404, { error: `no network '${name}': no container names it`, error_code: "NOT_FOUND" });
      }
      return found;
    },
    content: content(name),
  });
}
