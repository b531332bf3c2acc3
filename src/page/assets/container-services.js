/**
 * The published services of one container: their addresses, and the forms that publish, rotate and delete them.
 *
 * S1. A token stands in the href of its link alone: never in a text, in a message or in an address of the page. The tab that
 *     the link opens learns neither the page's window nor its address.
 */
import { askForm, confirm } from "./dialogs.js";
import { h, KeyedList, setAttribute, setText, show } from "./dom.js";
import { dateTime } from "./format.js";
import { servicesOf } from "./resources.js";
import { lifeField } from "./snapshot-actions.js";
import { expiryText } from "./snapshots.js";
import { table, tableRow } from "./table.js";
import { act, badge, card, labelled, problem, recordButtons } from "./widgets.js";

/** @import { Context, Removal } from "./view.js" */
/** @import { ContainerRecord, ServiceRecord } from "../wire.ts" */

/** Rows of the card. */
export const SERVICES_MAX = 50;
const COLUMNS = ["Name", "Port", "Status", "Expires", "URL", "Actions"];

/** @param {ServiceRecord} record @param {number} now_ms */
export function serviceExpiry(record, now_ms) {
  if (record.expires_at === null) return "with its container";
  return record.status === "expired" ? "expired" : expiryText({ ...record, pinned: false }, now_ms);
}

/** Asks what to publish. @param {ContainerRecord} record @returns {Promise<object | null>} null: never mind */
function askService({ name: container }) {
  const plain = { autocomplete: "off", spellcheck: "false", required: true };
  const name = h("input", { id: "service-name", maxlength: 128, value: "web", ...plain });
  const port = h("input", { id: "service-port", type: "number", min: 1, max: 65_535, step: 1, ...plain });
  const life = lifeField("service-life", "with its container");
  const sockets = h("input", { id: "service-websockets", type: "checkbox" });
  const hint = "A process listens on it at all addresses of the container (0.0.0.0).";
  const fields = [
    labelled("Name", name),
    labelled("Port", port, hint),
    life.element,
    h("label", { class: "check" }, sockets, "Pass WebSockets on"),
  ];
  return askForm(`Publish a service of ${container}`, fields, "Publish", () => ({
    name: name.value.trim(),
    target_port: Number(port.value),
    enable_websockets: sockets.checked,
    ...life.read(),
  }));
}

/**
 * The buttons of one service.
 * @param {Context} context @param {ReturnType<typeof problem>} trouble @param {() => ServiceRecord} current @param {() => void} onMoved
 * @param {Removal} [end] of a page of the service
 */
export function serviceButtons(context, trouble, current, onMoved, end = async (work) => void (await work())) {
  const { api } = context;
  const services = servicesOf(api);
  const button = recordButtons(context, trouble, current, onMoved);
  const rotate = button("Rotate", "", async ({ service_id, name }) => {
    const text = "The service gets another URL. Its present URL ends immediately, with its requests and WebSockets.";
    if (!(await confirm(`Rotate the token of ${name}?`, text, "Rotate"))) return null;
    await services.rotate(service_id);
    return `${name} has another URL`;
  });
  const remove = button("Delete", "danger", async ({ service_id, name }) => {
    const text = "Its URL ends immediately, with its requests and WebSockets.";
    if (!(await confirm(`Delete ${name}?`, text, "Delete"))) return null;
    await end(() => services.remove(service_id));
    return `${name} is deleted`;
  });
  return {
    elements: [rotate, remove],
    /** @param {ServiceRecord} record */
    update({ name, auth_mode, status }) {
      const may = api.may("write");
      show(rotate, may && auth_mode === "service_token" && status !== "expired");
      show(remove, may);
      for (const one of [rotate, remove]) setAttribute(one, "aria-label", `${one.textContent} ${name}`);
    },
  };
}

/** @param {Context} context @param {ReturnType<typeof problem>} trouble @param {() => void} onMoved */
function rowMaker(context, trouble, onMoved) {
  /** @param {ServiceRecord} first */
  return (first) => {
    let record = first;
    const status = badge();
    const [name, port, expires, none] = [h("b"), h("span"), h("span"), h("span", { class: "hint", text: "none" })];
    const link = h("a", { target: "_blank", rel: "noopener noreferrer" });
    const buttons = serviceButtons(context, trouble, () => record, onMoved);
    const acts = h("span", { class: "acts" }, ...buttons.elements);
    const cells = [name, port, status.element, expires, h("span", {}, link, none), acts];
    return {
      element: tableRow(COLUMNS, cells, { "data-id": first.service_id }),
      /** @param {ServiceRecord} next */
      update(next) {
        record = next;
        const { public_url } = next;
        setText(name, next.name);
        setText(port, next.target_port);
        status.update(next.status);
        setAttribute(status.element, "title", next.status_message);
        setText(expires, serviceExpiry(next, context.clock.epochMs()));
        setAttribute(expires, "title", next.expires_at === null ? null : dateTime(next.expires_at));
        const isServed = public_url !== null && next.status !== "expired";
        show(link, isServed);
        show(none, !isServed);
        setAttribute(link, "href", isServed ? public_url : null);
        setText(link, isServed ? new URL(public_url).host : "");
        buttons.update(next);
      },
    };
  };
}

/** @param {Context} context @param {() => ContainerRecord | null} current @param {() => void} onMoved */
export function servicesCard(context, current, onMoved) {
  const { api, say } = context;
  const trouble = problem();
  const { element: grid, rows } = table("Published services", "container-services", COLUMNS);
  const keyOf = (/** @type {ServiceRecord} */ { service_id }) => service_id;
  const list = new KeyedList(rows, keyOf, rowMaker(context, trouble, onMoved));
  const publish = h("button", { type: "button", text: "Publish a port" });
  publish.addEventListener("click", () =>
    act(publish, trouble, async () => {
      const record = current();
      const body = record === null ? null : await askService(record);
      if (record === null || body === null) return;
      try {
        const { name } = await servicesOf(api).publish(record.container_id, body);
        say(`${name} is published`);
      } finally {
        onMoved();
      }
    }),
  );
  const summary = h("span", { class: "hint" });
  const element = card("Published services", h("p", { class: "actions" }, publish, summary), trouble.element, grid);
  return {
    element,
    /** @param {{ services: readonly ServiceRecord[], next_cursor: string | null } | null} found null: refused */
    update(found) {
      show(element, found !== null);
      if (found === null) return;
      const { services, next_cursor } = found;
      list.update(services);
      show(grid, services.length > 0);
      show(publish, api.may("write"));
      const more = next_cursor === null ? "" : `The newest ${SERVICES_MAX}.`;
      setText(summary, services.length === 0 ? "No published services." : more);
    },
  };
}
