/** The form that makes a function and deploys it, with the command lines that do the same. */
import { h, setText, show } from "./dom.js";
import { RUNTIMES, runtimeOf } from "./runtimes.js";
import { versionFields } from "./version-fields.js";
import { act, card, crumbs, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */

/** @param {string} text for a shell, as one word */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @typedef {{ name: string, handler: string, runtime: string, gpu_count?: number }} Described */

/** @param {Described} described */
function commands({ name, handler, runtime, ...gpus }) {
  const { needsCode } = runtimeOf(runtime);
  const described = runtime === "shell" ? { name, handler, ...gpus } : { name, runtime, handler, ...gpus };
  const body = quoted(JSON.stringify(needsCode ? { ...described, code_sha256: "SHA" } : described));
  const upload = `SHA=$(tar cz . | curl -s -H "$K" -H "Content-Type: application/gzip" $U/code --data-binary @- | grep -o '[0-9a-f]\\{64\\}')`;
  const call = quoted(JSON.stringify({ payload: runtime === "shell" ? "world" : { name: "world" } }));
  return [
    `K="X-Api-Key: $HEARTH_KEY" U=${location.origin}/api/functions`,
    ...(needsCode ? [upload] : []),
    `ID=$(curl -s -H "$K" $U -d ${needsCode ? body.replace('"code_sha256":"SHA"', () => `"code_sha256":"'$SHA'"`) : body} | grep -o 'fn_[a-z0-9]*' | head -n 1)`,
    `curl -s -H "$K" -X POST $U/$ID/deploy`,
    `curl -s -H "$K" $U/$ID/invoke -d ${call}`,
  ].join("\n");
}

/** @param {Described} described */
function shortCommands({ name, handler, runtime, gpu_count = 0 }) {
  if (runtime === "shell") {
    const gpus = gpu_count === 0 ? "" : ` --gpu-count ${gpu_count}`;
    return [
      `hearth create ${quoted(name)} --handler ${quoted(handler)}${gpus} --deploy`,
      `hearth invoke ${quoted(name)} world`,
    ].join("\n");
  }
  return [
    `hearth init hello --runtime ${runtime} --name ${quoted(name)}`,
    "hearth deploy ./hello",
    ...(gpu_count === 0 ? [] : [`hearth update ${quoted(name)} --gpu-count ${gpu_count}`]),
    `hearth invoke ${quoted(name)} '{"name": "world"}'`,
  ].join("\n");
}

/** @param {Context} context @param {string} title */
export function createForm(context, title) {
  const { api, say, refresh } = context;
  const trouble = problem();
  const short = h("pre", { class: "output", tabindex: 0, "aria-label": "Commands of hearth" });
  const lines = h("pre", { class: "output", tabindex: 0, "aria-label": "Command lines" });
  const name = h("input", { id: "new-name", required: true, maxlength: 128, autocomplete: "off", value: "hello" });
  const fields = versionFields(context, "new");
  const { runtime, handler, gpus } = fields;
  const folder = h("p", { class: "hint", hidden: true });
  folder.append(
    "From a folder: ",
    h("code", { text: "hearth init" }),
    " writes an example, ",
    h("code", { text: "hearth deploy" }),
    " sends it.",
  );
  handler.value = RUNTIMES[0].handler;
  const button = h("button", { class: "primary", type: "submit", text: "Create and deploy" });
  const draw = () => {
    const gpu_count = Number(gpus.input.value);
    const described = {
      ...{ name: name.value, handler: handler.value, runtime: runtime.value },
      ...(gpu_count > 0 ? { gpu_count } : {}),
    };
    show(folder, runtimeOf(runtime.value).needsCode);
    setText(short, shortCommands(described));
    setText(lines, commands(described));
  };
  // The example of another runtime is replaced by that of this one; an edited handler stays.
  runtime.addEventListener("change", () => {
    if (RUNTIMES.some((one) => one.handler === handler.value)) handler.value = runtimeOf(runtime.value).handler;
    draw();
  });
  draw();
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const { id, name: made } = await api.create({ name: name.value, ...(await fields.body()) });
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
    ...fields.elements,
    folder,
    trouble.element,
    h("p", { class: "actions" }, button, h("kbd", { text: "Ctrl+Enter" })),
  );
  const shell = h("details", { open: true }, h("summary", { text: "The same from a shell" }), short, lines);
  return { element: card(title, form, shell), focus: () => name.select(), leave: fields.leave, refresh: gpus.refresh };
}

/** @param {Context} context @returns {View} */
export function newFunctionView(context) {
  const form = createForm(context, "New function");
  return {
    element: h("div", { class: "narrow" }, crumbs([["Functions", "#/"]], "New").element, form.element),
    title: () => "New function",
    refresh: form.refresh,
    focus: form.focus,
    leave: form.leave,
  };
}
