/**
 * The files of a container or a volume: one page of a directory, and what goes in and out of it. Directories and pages
 * are addresses, so that the way back is the browser's. A directory is read when it is opened and when somebody changed it
 * from here, not with every round: looking into a tree starts a helper of the daemon's.
 *
 * F1. Names are the tree's and may be anything: text, and parts of addresses, encoded.
 */
import { containerHash, filesHash } from "./addresses.js";
import { confirm } from "./dialogs.js";
import { h, setText, show } from "./dom.js";
import { bytes, count, dateTime } from "./format.js";
import { containersOf, filesOf, PAGE_SIZE } from "./resources.js";
import { table, tableRow } from "./table.js";
import { save } from "./transfer.js";
import { uploadBar } from "./upload.js";
import { isRefusal, reported } from "./view.js";
import { act, card, crumbs, problem } from "./widgets.js";

/** @import { Context, View } from "./view.js" */
/** @import { Tree } from "./resources.js" */
/** @import { FileEntry, FileList } from "../wire.ts" */

const COLUMNS = ["Name", "Size", "Mode", "Changed", "Actions"];

/**
 * What the address says: a directory and a page of it.
 * @typedef {object} Place
 * @property {string} base address of the tree's view
 * @property {string} path with a slash in front
 * @property {number} page
 */

/** @param {string} path */
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

/** The parts of a path as links, the root's first. @param {Tree} tree @param {Place} place */
function pathLinks(tree, { base, path }) {
  const element = h("nav", { class: "path", "aria-label": "Directory" });
  element.append(h("a", { href: filesHash(base, "/"), text: tree.name }));
  let at = "";
  for (const part of path.split("/").filter((one) => one !== "")) {
    at += `/${part}`;
    element.append(h("span", { text: "/" }), h("a", { href: filesHash(base, at), text: part }));
  }
  element.lastElementChild?.setAttribute("aria-current", "page");
  return element;
}

/**
 * @param {Context} context
 * @param {Tree} tree
 * @param {Place} place
 * @param {ReturnType<typeof problem>} trouble
 * @param {() => void} onChanged
 */
function entryRow(context, tree, { base }, trouble, onChanged) {
  const { api, say } = context;
  const files = filesOf(api);
  /** @param {HTMLButtonElement} button @param {FileEntry} entry @param {boolean} isRaw */
  const download = (button, { path, name }, isRaw) =>
    act(button, trouble, async () => {
      say(`receiving ${name}`);
      const content = await (isRaw && tree.files !== null
        ? files.file(tree.files, path)
        : files.tar(tree.archive, path));
      save(context, isRaw && tree.files !== null ? name : `${name}.tar`, content);
      say(`${name}: ${bytes(content.size)}`);
    });
  /** @param {FileEntry} entry */
  return (entry) => {
    const { name, path, type, size, mode, modified_at, target } = entry;
    const isPlain = tree.files !== null;
    const isOpened = type === "directory" || type === "symlink";
    const title = target === null ? name : `${name} → ${target}`;
    const open = isOpened
      ? h("a", { class: "open", href: filesHash(base, path), text: title, title })
      : h("button", {
          type: "button",
          class: "open",
          text: title,
          title: `Download ${name}${isPlain ? "" : " as tar"}`,
        });
    if (open instanceof HTMLButtonElement) {
      open.disabled = type !== "file";
      open.addEventListener("click", () => void download(open, entry, true));
    }
    const acts = h("span", { class: "acts" });
    if (isOpened) {
      const tar = h("button", { type: "button", class: "quiet", text: "tar", "aria-label": `Download ${name} as tar` });
      tar.addEventListener("click", () => void download(tar, entry, false));
      acts.append(tar);
    }
    if (tree.files !== null && api.may("write")) {
      const source = tree.files;
      const remove = h("button", { type: "button", class: "quiet", text: "Delete", "aria-label": `Delete ${name}` });
      remove.addEventListener("click", () =>
        act(remove, trouble, async () => {
          const question = type === "directory" ? "hearth deletes its contents, too." : "You cannot undo this.";
          if (!(await confirm(`Delete ${path}?`, question, "Delete"))) return;
          await files.remove(source, path);
          say(`${path} is deleted`);
          onChanged();
        }),
      );
      acts.append(remove);
    }
    const changed = h("time", { text: dateTime(modified_at) });
    const shownSize = type === "file" ? bytes(size) : type === "directory" ? "" : type.replace("_", " ");
    const digits = h("code", { text: String(mode).padStart(3, "0") });
    return tableRow(COLUMNS, [open, shownSize, digits, changed, acts], { "data-type": type });
  };
}

/** Where one is among the pages of a directory. @param {Place} place */
function pager({ base, path, page }) {
  const before = h("a", { class: "button", href: filesHash(base, path, page - 1), text: "Previous" });
  const after = h("a", { class: "button", href: filesHash(base, path, page + 1), text: "Next" });
  const words = h("span", { class: "hint" });
  return {
    element: h("p", { class: "actions pager" }, before, after, words),
    /** @param {FileList} list */
    update({ files, total, has_more }) {
      show(before, page > 1);
      show(after, has_more);
      const first = (page - 1) * PAGE_SIZE + 1;
      const part = `${count(first)} to ${count(first + files.length - 1)} of ${count(total)}`;
      setText(
        words,
        total === 0 ? "Empty directory." : files.length === 0 ? `No entries on this page of ${count(total)}` : part,
      );
    },
  };
}

/** @param {Context} context @param {Tree} tree @param {Place} place */
export function filesCard(context, tree, place) {
  const trouble = problem();
  const { element: grid, rows, move } = table("Files", "files", COLUMNS);
  const foot = pager(place);
  const whole = h("button", { type: "button", text: "Download as tar" });
  whole.addEventListener("click", () =>
    act(whole, trouble, async () => {
      const content = await filesOf(context.api).tar(tree.archive, place.path);
      save(context, `${nameOf(place.path) || tree.name}.tar`, content);
      context.say(`${bytes(content.size)} received`);
    }),
  );
  let isRead = false;
  const refresh = () => {
    isRead = false;
    context.refresh();
  };
  const upload = uploadBar(context, tree, place.path, trouble, refresh);
  const makeRow = entryRow(context, tree, place, trouble, refresh);
  const bar = h("p", { class: "actions" }, whole, ...upload.elements);
  return {
    element: card("Files", pathLinks(tree, place), bar, upload.progress, trouble.element, grid, foot.element),
    move,
    leave: upload.leave,
    async refresh() {
      upload.update();
      if (isRead) return;
      try {
        const list = await tree.list(place.path, place.page);
        isRead = true;
        rows.replaceChildren(...list.files.map(makeRow));
        show(grid, list.files.length > 0);
        foot.update(list);
      } catch (error) {
        if (!isRefusal(error)) throw error;
        isRead = true;
        trouble.update(error);
      }
    },
  };
}

/** @param {Context} context @param {string} id of a container, or its name @param {Place} place @returns {View} */
export function containerFilesView(context, id, place) {
  const containers = containersOf(context.api);
  const trouble = problem();
  const title = h("h1", { tabindex: -1, text: "Files" });
  const up = containerHash(id);
  const way = h("div");
  const body = h("div");
  /** There when it is known what it is called. @type {ReturnType<typeof filesCard> | null} */
  let files = null;
  const open = async () => {
    const { name } = await containers.get(id);
    /** @type {[string, string][]} */
    const above = [
      ["Containers", "#/containers"],
      [name, up],
    ];
    way.replaceChildren(crumbs(above, "Files").element);
    setText(title, `Files of ${name}`);
    const card = filesCard(context, { ...containers.tree(id), name }, place);
    body.replaceChildren(card.element);
    return card;
  };
  return {
    element: h("div", {}, h("div", { class: "detail-head" }, way, title), trouble.element, body),
    title: () => title.textContent ?? "",
    up,
    refresh: reported(trouble, async () => {
      files ??= await open();
      await files.refresh();
    }),
    focus: () => title.focus(),
    move: (step) => files?.move(step),
    leave: () => files?.leave(),
  };
}
