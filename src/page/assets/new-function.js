/** The form that makes a function and deploys it, with the command lines that do the same. */
import { h, setText } from "./dom.js";
import { act, card, crumbs, problem, sendOnEnter } from "./widgets.js";

/** @import { Context, View } from "./view.js" */

/** @param {string} text for a shell, as one word */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {string} name @param {string} handler */
function commands(name, handler) {
  const body = quoted(JSON.stringify({ name, handler }));
  const call = quoted(JSON.stringify({ payload: "world" }));
  return [
    `K="X-Api-Key: $HEARTH_KEY" U=${location.origin}/api/functions`,
    `ID=$(curl -s -H "$K" $U -d ${body} | grep -o 'fn_[a-z0-9]*' | head -n 1)`,
    `curl -s -H "$K" -X POST $U/$ID/deploy`,
    `curl -s -H "$K" $U/$ID/invoke -d ${call}`,
  ].join("\n");
}

/** @param {string} name @param {string} handler */
function shortCommands(name, handler) {
  return [
    `hearth create ${quoted(name)} --handler ${quoted(handler)} --deploy`,
    `hearth invoke ${quoted(name)} world`,
  ].join("\n");
}

/** @param {Context} context @param {string} title */
export function createForm({ api, say, refresh }, title) {
  const trouble = problem();
  const short = h("pre", { class: "output", tabindex: 0, "aria-label": "Commands of hearth" });
  const lines = h("pre", { class: "output", tabindex: 0, "aria-label": "Command lines" });
  const name = h("input", { id: "new-name", required: true, maxlength: 128, autocomplete: "off", value: "hello" });
  const handler = h("textarea", {
    id: "new-handler",
    required: true,
    rows: 3,
    spellcheck: "false",
    onkeydown: sendOnEnter,
  });
  handler.value = 'echo "hello, $(cat)"';
  const button = h("button", { class: "primary", type: "submit", text: "Create and deploy" });
  const draw = () => {
    setText(short, shortCommands(name.value, handler.value));
    setText(lines, commands(name.value, handler.value));
  };
  draw();
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const { id, name: made } = await api.create({ name: name.value, handler: handler.value });
      // A deployment that fails leaves a function in state error, whose own view says why.
      const failure = await api.move(id, "deploy").then(() => null, String);
      say(failure === null ? `${made} is deployed` : `${made} is created but not deployed: ${failure}`);
      location.hash = `#/functions/${encodeURIComponent(id)}`;
      refresh();
    });
  };
  const form = h(
    "form",
    { onsubmit, oninput: draw },
    h("label", { for: "new-name", text: "Name" }),
    name,
    h("label", { for: "new-handler", text: "Handler" }),
    handler,
    h(
      "p",
      { class: "hint" },
      "A command line for ",
      h("code", { text: "/bin/sh -c" }),
      "; the payload is its standard input.",
    ),
    trouble.element,
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" })),
  );
  const shell = h("details", { open: true }, h("summary", { text: "The same from a shell" }), short, lines);
  return { element: card(title, form, shell), focus: () => name.select() };
}

/** @param {Context} context @returns {View} */
export function newFunctionView(context) {
  const form = createForm(context, "New function");
  return {
    element: h("div", { class: "narrow" }, crumbs([["Functions", "#/"]], "New").element, form.element),
    title: () => "New function",
    refresh: async () => {},
    focus: form.focus,
  };
}
