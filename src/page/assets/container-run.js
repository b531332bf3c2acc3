/** The form that runs a command in a container, and what the last one wrote. */
import { h, show } from "./dom.js";
import { count } from "./format.js";
import { output } from "./record-view.js";
import { containersOf } from "./resources.js";
import { act, badge, card, facts, problem, sendOnEnter } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { ContainerRecord, ExecResult } from "../wire.ts" */

/** Who waits longer than this takes the terminal. */
const TIMEOUT_MS = 60_000;

/** @param {ExecResult} result */
function resultView(result) {
  const { exit_code, execution_time_ms, timed_out, stdout, stderr } = result;
  const status = badge(timed_out ? "timeout" : exit_code === 0 ? "success" : "failed");
  const fields = facts(
    /** @type {[string, (result: ExecResult) => string][]} */ ([
      ["Exit code", () => (exit_code === null ? "none" : String(exit_code))],
      ["Took", () => `${count(execution_time_ms)} ms`],
    ]),
    "facts",
  );
  fields.update(result);
  fields.element.prepend(h("div", {}, h("dt", { text: "Status" }), h("dd", {}, status.element)));
  return h(
    "div",
    { class: "record" },
    fields.element,
    output("Standard output", stdout, result.stdout_truncated),
    stderr === "" ? null : output("Standard error", stderr, result.stderr_truncated),
  );
}

/** @param {Context} context @param {() => string} id */
export function runCard({ api, say, refresh }, id) {
  const trouble = problem();
  const result = h("div", { class: "result" });
  const line = h("textarea", { id: "command", rows: 2, required: true, spellcheck: "false", onkeydown: sendOnEnter });
  const button = h("button", { class: "primary", type: "submit", text: "Run" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const ended = await containersOf(api).exec(id(), ["/bin/sh", "-c", line.value], TIMEOUT_MS);
      result.replaceChildren(resultView(ended));
      say(ended.timed_out ? "killed after a minute" : `exit code ${ended.exit_code}`);
      refresh();
    });
  };
  const form = h(
    "form",
    { onsubmit },
    h("label", { for: "command", text: "Command" }),
    line,
    h("p", { class: "hint" }, "For ", h("code", { text: "/bin/sh -c" }), "; hearth kills it after a minute."),
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" })),
    trouble.element,
  );
  const element = card("Run a command", form, result);
  return {
    element,
    /** @param {ContainerRecord} record */
    update: ({ state }) => show(element, state === "running" && api.may("invoke")),
  };
}
