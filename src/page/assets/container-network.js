/** The network of a container that runs: its link, and checks of it on request. */
import { h, setText, show } from "./dom.js";
import { containersOf } from "./resources.js";
import { act, badge, card, facts, problem } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { ContainerNetwork, ContainerRecord, NetworkDiagnostics } from "../wire.ts" */

/** @type {readonly [string, (network: ContainerNetwork) => string][]} */
const FACTS = [
  ["Address", ({ addresses }) => addresses.join(", ") || "none"],
  ["Reserved", ({ reserved_address }) => reserved_address ?? "no"],
  ["Gateway", ({ gateway }) => gateway],
  ["Hardware address", ({ mac_address }) => mac_address ?? "none"],
  ["MTU", ({ mtu }) => (mtu === null ? "none" : String(mtu))],
  ["Link on the host", ({ veth_host }) => veth_host ?? "none"],
  ["Name servers", ({ name_servers }) => name_servers.join(", ") || "none"],
];

/** @param {NetworkDiagnostics["checks"][number]} check */
function checkView({ name, ok, message }) {
  const result = badge(ok ? "success" : "failed");
  return h("div", {}, h("dt", {}, h("span", { text: `${name} ` }), result.element), h("dd", { text: message }));
}

/** @param {Context} context @param {() => string} id */
export function networkCard({ api, say }, id) {
  const containers = containersOf(api);
  const trouble = problem();
  const list = facts(FACTS);
  const checks = h("dl", { class: "facts column checks" });
  const check = h("button", { type: "button", text: "Check the network" });
  const mend = h("button", { type: "button", text: "Set it up again", hidden: true });
  const summary = h("span", { class: "hint" });
  show(list.element, false);

  /** @param {readonly NetworkDiagnostics["checks"][number][]} found */
  const draw = async (found) => {
    list.update(await containers.network(id()));
    show(list.element, true);
    checks.replaceChildren(...found.map(checkView));
    const failed = found.filter(({ ok }) => !ok).length;
    show(mend, failed > 0 && api.may("write"));
    setText(summary, failed === 0 ? "Every check is ok." : `${failed} of ${found.length} checks failed.`);
  };
  check.addEventListener("click", () =>
    act(check, trouble, async () => draw((await containers.diagnose(id())).checks)),
  );
  mend.addEventListener("click", () =>
    act(mend, trouble, async () => {
      const { message, checks: found } = await containers.setUpNetwork(id());
      say(message);
      await draw(found);
    }),
  );
  const element = card(
    "Network",
    h("p", { class: "actions" }, check, mend, summary),
    trouble.element,
    list.element,
    checks,
  );
  return {
    element,
    /** @param {ContainerRecord} record */
    update: ({ state }) => show(element, state === "running"),
  };
}
