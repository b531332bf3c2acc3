/**
 * Latency of the newest calls, cold and warm apart: every call as a mark in its order (a call's date has whole seconds
 * only), beside it how often each latency came, below it the figures, which are also the plot's text. The scale is
 * logarithmic: cold and warm lie a factor of ten apart.
 */
import { h, KeyedList, setAttribute, setText, show, svg } from "./dom.js";
import { count, counted, milliseconds, quantile, timeOfDay } from "./format.js";
import { card } from "./widgets.js";

/** @import { InvocationRecord } from "../wire.ts" */

const HEIGHT = 232;
const MARGIN = { top: 10, right: 12, bottom: 36, left: 58 };
/** Of the distribution, and the width below which there is none. */
const SIDE_WIDTH = 96;
const SIDE_FROM_WIDTH = 520;
const BINS_PER_DECADE = 8;
const KINDS = /** @type {const} */ (["warm", "cold"]);
const SHARES = /** @type {const} */ ([0.5, 0.9, 0.99]);

/** @param {InvocationRecord} record */
const kindOf = ({ cold_start }) => (cold_start ? "cold" : "warm");
/** A clock that stood still between arrival and outcome would have no place on the scale. @param {InvocationRecord} record */
const latencyOf = ({ timings }) => Math.max(timings.total, 0.01);

/** @param {readonly InvocationRecord[]} records @param {"warm" | "cold"} kind */
const sorted = (records, kind) =>
  records
    .filter((record) => kindOf(record) === kind)
    .map(latencyOf)
    .sort((a, b) => a - b);

/** @param {number} decade */
const tick = (decade) => (decade >= 3 ? `${count(10 ** (decade - 3))} s` : `${10 ** decade} ms`);

function figures() {
  const body = h("tbody");
  const list = new KeyedList(
    body,
    (/** @type {{ kind: "warm" | "cold", values: readonly number[] }} */ { kind }) => kind,
    ({ kind }) => {
      const cells = [...Array(SHARES.length + 2)].map(() => h("td"));
      const element = h(
        "tr",
        {},
        h("th", { scope: "row" }, h("i", { class: `mark ${kind}`, "aria-hidden": "true" }), kind),
        ...cells,
      );
      return {
        element,
        update({ values }) {
          const numbers = [...SHARES.map((share) => quantile(values, share)), values.at(-1) ?? null];
          const texts = [count(values.length), ...numbers.map((value) => (value === null ? "–" : milliseconds(value)))];
          texts.forEach((text, i) => void (cells[i] && setText(cells[i], text)));
        },
      };
    },
  );
  const names = ["", "calls", ...SHARES.map((share) => `p${share * 100}`), "slowest"];
  const head = h("tr");
  for (const name of names) head.append(h("th", { scope: "col", text: name }));
  return {
    element: h("table", { class: "figures", id: "figures" }, h("thead", {}, head), body),
    /** @param {readonly InvocationRecord[]} records */
    update: (records) => list.update(KINDS.map((kind) => ({ kind, values: sorted(records, kind) }))),
  };
}

/** The vertical scale: whole decades around all values. @param {readonly number[]} values */
function scaleOf(values) {
  const high = Math.ceil(Math.log10(Math.max(...values)));
  const low = Math.min(Math.floor(Math.log10(Math.min(...values))), high - 2);
  const plot_height = HEIGHT - MARGIN.top - MARGIN.bottom;
  /** @param {number} value */
  const y = (value) => MARGIN.top + plot_height * (1 - (Math.log10(value) - low) / (high - low));
  return { low, high, y };
}

/** @param {ReturnType<typeof scaleOf>} scale @param {number} right */
function grid({ low, high, y }, right) {
  const group = svg("g", { class: "grid" });
  for (let decade = low; decade <= high; decade++) {
    const at = y(10 ** decade);
    group.append(svg("line", { x1: MARGIN.left, x2: right, y1: at, y2: at }));
    group.append(svg("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end", text: tick(decade) }));
    for (const part of decade < high ? [2, 5] : []) {
      const minor = y(part * 10 ** decade);
      group.append(svg("line", { class: "minor", x1: MARGIN.left, x2: right, y1: minor, y2: minor }));
    }
  }
  return group;
}

/** @param {InvocationRecord} record @param {number} x @param {number} y @param {(id: string) => void} onOpen */
function mark(record, x, y, onOpen) {
  const kind = kindOf(record);
  const failed = record.status === "success" ? "" : " failed";
  const attributes = { class: `mark ${kind}${failed}`, onclick: () => onOpen(record.invocation_id) };
  const title = svg("title", {
    text: `${milliseconds(record.timings.total)}, ${kind}, ${record.status}, v${record.version}, ${timeOfDay(record.started_at)}`,
  });
  return kind === "cold"
    ? svg("path", { ...attributes, d: `M${x} ${y - 5}l5 5-5 5-5-5z` }, title)
    : svg("circle", { ...attributes, cx: x, cy: y, r: 3.5 }, title);
}

/** @param {readonly InvocationRecord[]} records @param {ReturnType<typeof scaleOf>} scale @param {number} left */
function distribution(records, { low, high, y }, left) {
  const bins = Array.from({ length: (high - low) * BINS_PER_DECADE }, () => ({ warm: 0, cold: 0 }));
  for (const record of records) {
    const bin = bins[Math.min(bins.length - 1, Math.floor((Math.log10(latencyOf(record)) - low) * BINS_PER_DECADE))];
    if (bin !== undefined) bin[kindOf(record)]++;
  }
  const fullest = Math.max(...bins.map(({ warm, cold }) => warm + cold));
  const group = svg("g", { class: "bins" });
  bins.forEach((bin, i) => {
    let x = left;
    const [top, bottom] = [y(10 ** (low + (i + 1) / BINS_PER_DECADE)), y(10 ** (low + i / BINS_PER_DECADE))];
    for (const kind of KINDS) {
      const width = ((SIDE_WIDTH - MARGIN.right) * bin[kind]) / fullest;
      if (width > 0)
        group.append(svg("rect", { class: kind, x, y: top + 0.5, width, height: Math.max(1, bottom - top - 1) }));
      x += width;
    }
  });
  group.append(svg("text", { x: left, y: HEIGHT - MARGIN.bottom + 16, text: "number of calls" }));
  return group;
}

/** @param {readonly InvocationRecord[]} records oldest first @param {number} width @param {(id: string) => void} onOpen */
function drawing(records, width, onOpen) {
  const hasSide = width >= SIDE_FROM_WIDTH;
  const right = width - (hasSide ? SIDE_WIDTH + MARGIN.right : MARGIN.right);
  const scale = scaleOf(records.map(latencyOf));
  const step = (right - MARGIN.left) / Math.max(records.length, 20);
  const parts = [grid(scale, right)];
  for (const kind of KINDS) {
    const median = quantile(sorted(records, kind), 0.5);
    if (median === null) continue;
    const at = scale.y(median);
    parts.push(svg("g", {}, svg("line", { class: `median ${kind}`, x1: MARGIN.left, x2: right, y1: at, y2: at })));
  }
  const marks = svg("g");
  // Cold ones last: they are few, and must not lie below the many.
  for (const kind of KINDS) {
    records.forEach((record, i) => {
      if (kindOf(record) === kind)
        marks.append(mark(record, MARGIN.left + step * (i + 0.5), scale.y(latencyOf(record)), onOpen));
    });
  }
  const bottom = HEIGHT - MARGIN.bottom + 16;
  const [first, last] = [records[0], records.at(-1)];
  const labels = svg(
    "g",
    {},
    svg("text", { x: MARGIN.left, y: bottom, text: first ? timeOfDay(first.started_at) : "" }),
    records.length > 10 && last
      ? svg("text", { x: right, y: bottom, "text-anchor": "end", text: timeOfDay(last.started_at) })
      : null,
    svg("text", {
      x: (MARGIN.left + right) / 2,
      y: HEIGHT - 3,
      "text-anchor": "middle",
      text: "calls, oldest to newest",
    }),
  );
  return [...parts, marks, ...(hasSide ? [distribution(records, scale, right + MARGIN.right)] : []), labels];
}

/** @param {(invocation_id: string) => void} onOpen */
export function plotsCard(onOpen) {
  const table = figures();
  const picture = svg("svg", { role: "img", height: HEIGHT, "aria-describedby": "figures" });
  const legend = h(
    "p",
    { class: "legend" },
    h("span", {}, h("i", { class: "mark warm", "aria-hidden": "true" }), "warm"),
    h("span", {}, h("i", { class: "mark cold", "aria-hidden": "true" }), "cold"),
    h("span", {}, h("i", { class: "mark failed", "aria-hidden": "true" }), "not successful"),
    h("span", {}, h("i", { class: "median", "aria-hidden": "true" }), "p50"),
    h("span", { class: "end", text: "total latency of each call, log scale" }),
  );
  const frame = h("div", { class: "plot" }, picture);
  const empty = h("p", { class: "hint", text: "The latency of calls appears here, warm and cold apart." });
  /** @type {readonly InvocationRecord[]} */
  let records = [];
  let width = 0;
  const draw = () => {
    show(frame, records.length > 0);
    show(legend, records.length > 0);
    show(empty, records.length === 0);
    show(table.element, records.length > 0);
    if (records.length === 0) return;
    table.update(records);
    if (width === 0) return;
    setAttribute(picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const said = KINDS.map((kind) => counted(sorted(records, kind).length, `${kind} call`));
    setAttribute(picture, "aria-label", `Total latency of the newest calls, logarithmic: ${said.join(", ")}`);
    picture.replaceChildren(...drawing(records, width, onOpen));
  };
  new ResizeObserver(([entry]) => {
    const next = Math.floor(entry?.contentRect.width ?? 0);
    if (next === width || next === 0) return;
    width = next;
    draw();
  }).observe(frame);
  return {
    element: card("Latency", legend, empty, frame, table.element),
    /** @param {readonly InvocationRecord[]} next newest first */
    update(next) {
      records = [...next].reverse();
      draw();
    },
  };
}
