/** The buttons that bring files into a directory, with how much of them has gone and the way to stop it. */
import { h, show } from "./dom.js";
import { counted } from "./format.js";
import { filesOf } from "./resources.js";
import { tarOf } from "./tar.js";
import { transferMeter, typeOf } from "./transfer.js";
import { act } from "./widgets.js";

/** @import { Context } from "./view.js" */
/** @import { problem } from "./widgets.js" */
/** @import { Tree } from "./resources.js" */

/**
 * @param {Context} context
 * @param {Tree} tree
 * @param {string} path the directory
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => void} onChanged
 */
export function uploadBar({ api, say }, tree, path, trouble, onChanged) {
  const progress = transferMeter();
  /** @param {Blob} content @param {string} content_type @param {string} done */
  const send = async (content, content_type, done) => {
    try {
      await progress.during(content, (how) =>
        filesOf(api).unpack(tree.archive, path, content, { content_type, ...how }),
      );
      say(done);
    } finally {
      onChanged();
    }
  };
  /**
   * A button that asks for files and sends them.
   * @param {string} text
   * @param {string} label
   * @param {boolean} isMultiple
   * @param {(files: File[]) => Promise<void>} work
   */
  const picker = (text, label, isMultiple, work) => {
    const input = h("input", { type: "file", hidden: true, multiple: isMultiple, "aria-label": label });
    const button = h("button", { type: "button", text, onclick: () => input.click() });
    input.addEventListener("change", () => {
      const files = [...(input.files ?? [])];
      input.value = "";
      if (files.length > 0) void act(button, trouble, () => work(files));
    });
    return [button, input];
  };
  const [upload, files] = picker("Upload files", "Files to upload", true, (chosen) =>
    send(tarOf(chosen), "application/x-tar", `${counted(chosen.length, "file")} uploaded`),
  );
  const [unpack, archive] = picker("Unpack an archive", "Archive to unpack", false, async ([chosen]) => {
    if (chosen !== undefined) await send(chosen, await typeOf(chosen), `${chosen.name} is unpacked`);
  });
  const buttons = /** @type {HTMLElement[]} */ ([upload, unpack]);
  for (const button of buttons) button.title = "tar or tar.gz, unpacked into this directory";
  return {
    elements: /** @type {HTMLElement[]} */ ([upload, files, unpack, archive]),
    progress: progress.element,
    update() {
      for (const button of buttons) show(button, api.may("write"));
    },
    leave: progress.leave,
  };
}
