/**
 * The form fields for runtime, handler, code and GPUs of a version. The code is an archive, which is uploaded
 * when the form is sent; the version then takes it by its digest.
 */
import { h, setText, show } from "./dom.js";
import { counted } from "./format.js";
import { codeOf } from "./resources.js";
import { RUNTIMES, runtimeOf } from "./runtimes.js";
import { transferMeter, typeOf } from "./transfer.js";
import { unlessRefused } from "./view.js";
import { labelled, sendOnEnter } from "./widgets.js";

/** @import { Context } from "./view.js" */

/** @param {Context} context @param {string} prefix of the ids */
function codeField({ api }, prefix) {
  const progress = transferMeter();
  const input = h("input", { id: `${prefix}-code`, type: "file", accept: ".tar,.tar.gz,.tgz,.zip" });
  const strip = h("input", { id: `${prefix}-strip`, type: "checkbox" });
  const stripped = h(
    "label",
    { class: "check", hidden: true },
    strip,
    "The files are inside of one folder of the archive",
  );
  input.addEventListener("change", () => show(stripped, input.value !== ""));
  const hint = h("p", { class: "hint" });
  return {
    elements: [
      h("div", { class: "field" }, h("label", { for: input.id, text: "Code" }), input, hint),
      stripped,
      progress.element,
    ],
    /** @param {{ isRequired: boolean, hasCode: boolean }} version */
    update({ isRequired, hasCode }) {
      input.required = isRequired;
      const otherwise = hasCode ? " Without one, the current code stays." : "";
      setText(hint, `An archive (.tar, .tar.gz, .zip) of at most 256 MiB; its files are at /function.${otherwise}`);
    },
    /** Uploads the archive. Resolves to the digest of the code, or null if no archive is chosen. */
    async send() {
      const [archive] = input.files ?? [];
      if (archive === undefined) return null;
      const content_type = await typeOf(archive);
      const { code_sha256 } = await progress.during(archive, (how) =>
        codeOf(api).put(archive, strip.checked ? 1 : 0, { content_type, ...how }),
      );
      return code_sha256;
    },
    clear() {
      input.value = "";
      strip.checked = false;
      show(stripped, false);
    },
    leave: progress.leave,
  };
}

/** The GPUs of an instance: offered where the node has some, or the current version asks for some. @param {Context} context @param {string} prefix of the ids */
function gpuField({ api }, prefix) {
  const input = h("input", { id: `${prefix}-gpus`, type: "number", min: 0, step: 1, placeholder: "0" });
  const hint = h("p", { class: "hint" });
  const element = h("div", { class: "field", hidden: true }, h("label", { for: input.id, text: "GPUs" }), input, hint);
  /** Null until the daemon has said it. @type {number | null} */
  let of_node = null;
  const draw = () => {
    if (of_node === null) return;
    show(element, of_node > 0 || input.value !== "");
    const all = of_node === 0 ? "This node has no GPUs" : `This node has ${counted(of_node, "GPU")}`;
    setText(hint, `GPUs that each instance holds alone. ${all}.`);
  };
  return {
    element,
    input,
    /** @param {number} gpu_count of the current version */
    set(gpu_count) {
      input.value = gpu_count === 0 ? "" : String(gpu_count);
      draw();
    },
    /** Asks once what the node has. */
    async refresh() {
      if (of_node !== null) return;
      const info = await unlessRefused(api.systemInfo());
      of_node = info?.gpu_count ?? 0;
      draw();
    },
    body: () => (element.hidden ? {} : { gpu_count: Number(input.value) }),
  };
}

/**
 * @param {Context} context
 * @param {string} prefix of the ids
 */
export function versionFields(context, prefix) {
  const runtime = h("select", { id: `${prefix}-runtime` });
  for (const { name, title } of RUNTIMES) runtime.append(h("option", { value: name, text: title }));
  const handler = h("textarea", {
    id: `${prefix}-handler`,
    required: true,
    rows: 3,
    spellcheck: "false",
    onkeydown: sendOnEnter,
  });
  const hint = h("p", { class: "hint" });
  const code = codeField(context, prefix);
  const gpus = gpuField(context, prefix);
  let hasCode = false;
  const draw = () => {
    const { needsCode, hint: text } = runtimeOf(runtime.value);
    setText(hint, text);
    code.update({ isRequired: needsCode && !hasCode, hasCode });
  };
  runtime.addEventListener("change", draw);
  draw();
  return {
    elements: [
      labelled("Runtime", runtime),
      h("div", { class: "field" }, h("label", { for: handler.id, text: "Handler" }), handler, hint),
      ...code.elements,
      gpus.element,
    ],
    runtime,
    handler,
    gpus,
    leave: code.leave,
    clear: code.clear,
    /** @param {boolean} value true if the current version has code, which stays */
    setHasCode(value) {
      hasCode = value;
      draw();
    },
    /** The fields of the API, after the upload. */
    async body() {
      const fields = { handler: handler.value, runtime: runtime.value, ...gpus.body() };
      const code_sha256 = await code.send();
      return code_sha256 === null ? fields : { ...fields, code_sha256 };
    },
  };
}
