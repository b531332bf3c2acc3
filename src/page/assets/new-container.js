/** The form that makes a container. What it does not ask for has the API's defaults. */
import { containerHash } from "./addresses.js";
import { h, setText, show } from "./dom.js";
import { count } from "./format.js";
import { containersOf } from "./resources.js";
import { act, card, crumbs, labelled, problem, sendOnEnter } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { SystemInfo } from "../wire.ts" */

/** As `-p` of the command line. */
const PORT = /^(?:(?:(\d{1,3}(?:\.\d{1,3}){3}):)?(\d{1,5})?:)?(\d{1,5})(?:\/(tcp|udp))?$/;

/** What stands on lines, or between commas. @param {string} text */
const items = (text) =>
  text
    .split(/[\n,]/)
    .map((item) => item.trim())
    .filter((item) => item !== "");

/** @param {string} text `[[address:]port:]port[/udp]` */
function port(text) {
  const match = PORT.exec(text);
  if (match === null)
    throw new TypeError(`invalid port: '${text}' (expected [[address:]port:]port[/udp], such as 20080:80)`);
  const [, host_address, host_port, container_port, protocol] = match;
  return {
    container_port: Number(container_port),
    ...(host_port === undefined ? {} : { host_port: Number(host_port) }),
    ...(host_address === undefined ? {} : { host_address }),
    ...(protocol === undefined ? {} : { protocol }),
  };
}

/** A number of any GPUs, or ids. @param {string[]} wanted */
function wantedGpus(wanted) {
  const [first = ""] = wanted;
  if (wanted.length === 0) return {};
  return wanted.length === 1 && /^\d+$/.test(first)
    ? { gpu_count: Number(first) }
    : { gpu_count: wanted.length, gpu_ids: wanted };
}

/** @param {SystemInfo} info */
function inventoryText({ gpu_count, gpu_free_count, gpus }) {
  const named = gpus.map(({ gpu_id, is_held, device }) => `${gpu_id} (${device}, ${is_held ? "in use" : "free"})`);
  const all = `${gpu_free_count} of ${count(gpu_count)} GPUs of this node are free`;
  return gpu_count === 0 ? "This node has no GPUs." : `${[all, ...named].join("; ")}.`;
}

function fields() {
  const plain = { autocomplete: "off", spellcheck: "false" };
  const lines = { rows: 2, onkeydown: sendOnEnter, ...plain };
  const name = h("input", { id: "container-name", required: true, maxlength: 128, ...plain });
  const image = h("input", { id: "container-image", required: true, value: "prod", ...plain });
  const oci = h("input", { id: "container-oci", type: "checkbox" });
  const command = h("textarea", { id: "container-command", ...lines });
  const memory = h("input", { id: "container-memory", type: "number", min: 256, step: 1, placeholder: "512" });
  const gpus = h("input", { id: "container-gpus", placeholder: "1 or nvidia0, nvidia1", ...plain });
  const inventory = h("p", { class: "hint", id: "container-gpu-inventory" });
  const volumes = h("textarea", { id: "container-volumes", placeholder: "data:/data", ...lines });
  const ports = h("input", { id: "container-ports", placeholder: "20080:80, 53/udp", ...plain });
  const network = h("input", { id: "container-network", maxlength: 63, ...plain });
  const egress = h(
    "select",
    { id: "container-egress" },
    h("option", { value: "on", text: "everything outside" }),
    h("option", { value: "off", text: "nothing" }),
    h("option", { value: "list", text: "these addresses" }),
  );
  const rules = h("textarea", { id: "container-rules", placeholder: "203.0.113.0/24:443/tcp", ...lines });
  const allowed = labelled("Addresses and networks", rules, "One per line, optionally with ports and protocol.");
  const draw = () => show(allowed, egress.value === "list");
  egress.addEventListener("change", draw);
  draw();
  const body = () => ({
    name: name.value.trim(),
    image: image.value.trim(),
    oci: oci.checked,
    ...(command.value.trim() === "" ? {} : { command: ["/bin/sh", "-c", command.value] }),
    ...(memory.value === "" ? {} : { memory_limit_mb: Number(memory.value) }),
    ...wantedGpus(items(gpus.value)),
    volumes: items(volumes.value),
    ports: items(ports.value).map(port),
    ...(network.value.trim() === "" ? {} : { network: network.value.trim() }),
    egress: egress.value === "list" ? items(rules.value) : egress.value,
  });
  const all = [
    labelled("Name", name),
    h(
      "div",
      { class: "pair" },
      labelled("Image", image, "A profile, such as prod."),
      labelled("Memory", memory, "MiB."),
    ),
    h("label", { class: "check" }, oci, "The image is an OCI reference in the image store"),
    labelled("Command", command, "A command line for /bin/sh -c. Without a command, the container waits for exec."),
    labelled("Volumes", volumes, "One per line: <volume>:<target path>."),
    labelled("Ports", ports, "[[address:]host port:]container port[/udp]. Default host port: a free one."),
    labelled("Private network", network, "Its containers reach each other by name. It needs no creation."),
    labelled("Outbound traffic", egress),
    allowed,
    labelled("GPUs", gpus, "A number, or ids."),
    inventory,
  ];
  return { all, body, name, inventory };
}

/** @param {Context} context @returns {View} */
export function newContainerView({ api, say, refresh }) {
  const trouble = problem();
  const { all, body, name, inventory } = fields();
  const button = h("button", { class: "primary", type: "submit", text: "Create" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const record = await containersOf(api).create(body());
      say(`${record.name} is ${record.state}`);
      location.hash = containerHash(record.container_id);
      refresh();
    });
  };
  const form = h(
    "form",
    { onsubmit },
    ...all,
    trouble.element,
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" })),
  );
  const way = crumbs([["Containers", "#/containers"]], "New");
  return {
    element: h("div", { class: "narrow" }, way.element, card("New container", form)),
    title: () => "New container",
    up: "#/containers",
    refresh: async () => setText(inventory, inventoryText(await api.systemInfo())),
    focus: () => name.focus(),
  };
}
