/**
 * The report as one page that needs nothing else: no script, no font, no picture from anywhere, which its content
 * security policy holds. First what was asked for and what came out, then what is lost and what was not measured, then
 * each section with its method, table and plots.
 */
import { type Header, headerLines } from "./machine.ts";
import { Markup, markup } from "./markup.ts";
import { plotFigure } from "./plot.ts";
import { type Bar, type Comparison, distribution, isLost, isMet, type Plot, Samples, type Section } from "./report.ts";
import { barText, COLUMNS, comparisonText, figure, rowLabel } from "./text.ts";

export interface Report {
  readonly header: Header;
  readonly sections: Readonly<Record<string, Section>>;
  /** Seconds that each section took. */
  readonly duration_s: Readonly<Record<string, number>>;
}

const STYLE = `
:root { color-scheme: light dark; --page: #fff; --text: #1b1b1b; --dim: #595959; --line: #d9d9d9; --box: #f5f5f5;
  --good: #116329; --bad: #b3261e; --s0: #0b5cad; --s1: #b54708; --s2: #166534; --s3: #7e22ce; --s4: #9f1239; --s5: #525252; --s6: #0f766e; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --text: #e8e8e8; --dim: #a8a8a8; --line: #3a3d42;
  --box: #1f2226; --good: #7ee787; --bad: #ff8a80; --s0: #6cb6ff; --s1: #ffa657; --s2: #7ee787; --s3: #d2a8ff; --s4: #ff9bb3; --s5: #b8b8b8; --s6: #5eead4; } }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; } dt { color: var(--dim); } dd { margin: 0; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; color: var(--dim); }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th[scope=row], .note { text-align: left; font-weight: normal; } .note { color: var(--dim); }
.scroll { overflow-x: auto; } .good { color: var(--good); } .bad { color: var(--bad); font-weight: bold; }
.bars { list-style: none; padding: 0; } .bars li { padding-left: 5.5rem; text-indent: -5.5rem; } .bars b { display: inline-block; width: 5.5rem; text-indent: 0; }
.method { max-width: 48rem; color: var(--dim); }
figure { margin: 1.5rem 0; padding: .75rem; background: var(--box); border-radius: .4rem; } figcaption { font-weight: bold; }
figure svg { display: block; width: 100%; min-width: 34rem; max-width: 52rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .4rem 0; padding: 0; font-size: .9rem; }
.legend svg { display: inline; width: 28px; min-width: 0; vertical-align: middle; }
svg text { font: 12px system-ui, sans-serif; fill: var(--dim); } svg .label { fill: var(--text); }
svg path { fill: none; } .grid { stroke: var(--line); } .axis { stroke: var(--dim); } .mark { stroke: var(--dim); stroke-dasharray: 2 3; }
.line, .steps { stroke-width: 1.8; } .points { stroke-width: 3; stroke-linecap: round; opacity: .6; } .points.few { stroke-width: 7; }
a { color: var(--s0); } code { font-size: .95em; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); } .s3 { stroke: var(--s3); } .s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); } .s6 { stroke: var(--s6); }
.line.s1 { stroke-dasharray: 8 3; } .line.s2 { stroke-dasharray: 3 3; } .line.s3 { stroke-dasharray: 10 3 2 3; }
.line.s4 { stroke-dasharray: 5 2; } .line.s5 { stroke-dasharray: 1 2; } .line.s6 { stroke-dasharray: 12 4 4 4; }
summary { cursor: pointer; color: var(--dim); }
`;

/** What stands between backticks is code. */
function prose(text: string): Markup[] {
  return text.split("`").map((piece, i) => (i % 2 === 0 ? markup`${piece}` : markup`<code>${piece}</code>`));
}

const LEVELS = {
  met: markup`<b class="good">met</b>`,
  missed: markup`<b class="bad">NOT MET</b>`,
  wins: markup`<b class="good">wins</b>`,
  loses: markup`<b class="bad">loses</b>`,
  failed: markup`<b class="bad">failed</b>`,
  missing: markup`<b class="bad">missing</b>`,
};

const barItem = (bar: Bar): Markup => markup`<li>${isMet(bar) ? LEVELS.met : LEVELS.missed}${barText(bar)}</li>
`;
const comparisonItem = (one: Comparison): Markup =>
  markup`<li>${isLost(one) ? LEVELS.loses : LEVELS.wins}${comparisonText(one)}</li>
`;
const failureItem = ([reason, count]: readonly [string, number]): Markup =>
  markup`<li>${LEVELS.failed}${count} × ${reason}</li>
`;

function list(items: readonly Markup[], none: string): Markup {
  return items.length === 0 ? markup`<p>${none}</p>` : markup`<ul class="bars">${items}</ul>`;
}

function rowsTable(section: Section): Markup {
  const names = ["samples", "failed", ...COLUMNS.map(([name]) => name)];
  const rows = section.rows.map((row) => {
    const cells = COLUMNS.map(([, key]) => markup`<td>${figure(row.summary[key])}</td>`);
    const failed = row.failed_count === 0 ? markup`<td>0</td>` : markup`<td class="bad">${row.failed_count}</td>`;
    return markup`<tr><th scope="row">${rowLabel(row)}</th><td>${row.summary.count}</td>${failed}${cells}<td class="note">${row.note}</td></tr>
`;
  });
  return markup`<div class="scroll"><table><thead><tr><td></td>${names.map((name) => markup`<th scope="col">${name}</th>`)}<td></td></tr></thead>
<tbody>${rows}</tbody></table></div>`;
}

/** A section that names no plots gets the distributions of its rows in milliseconds. */
function plotsOf(section: Section): readonly Plot[] {
  if (section.plots !== undefined) return section.plots;
  const labels = section.rows.filter(({ unit, label }) => (unit ?? "ms") === "ms" && section.raw[label] !== undefined);
  if (labels.length === 0) return [];
  return [
    distribution(
      section.title,
      labels.map(({ label }) => new Samples(label)),
    ),
  ];
}

function sectionMarkup([name, section]: readonly [string, Section], duration_s: number | undefined): Markup {
  const items = [
    ...section.bars.map(barItem),
    ...(section.comparisons ?? []).map(comparisonItem),
    ...Object.entries(section.failures).map(failureItem),
    ...(section.not_measured ?? []).map((text) => markup`<li>${LEVELS.missing}${text}</li>`),
  ];
  const took = duration_s === undefined ? "" : ` It took ${figure(duration_s)} s.`;
  return markup`<section id="${name}"><h2>${prose(section.title)}</h2>
<p class="method">${prose(section.method)}${took}</p>
${rowsTable(section)}
${list(items, "No bar and no failure.")}
${plotsOf(section).map((plot, i) => plotFigure(plot, section.raw, `${name}-${i}`))}</section>
`;
}

function lost(sections: readonly Section[]): Markup[] {
  return sections.flatMap((section) => [
    ...section.bars.filter((bar) => !isMet(bar)).map(barItem),
    ...(section.comparisons ?? []).filter(isLost).map(comparisonItem),
    ...Object.entries(section.failures).map(failureItem),
  ]);
}

export function reportHtml({ header, sections, duration_s }: Report): string {
  const entries = Object.entries(sections);
  const all = Object.values(sections);
  const facts = headerLines(header).map(
    ([name, value]) => markup`<dt>${name}</dt><dd>${value}</dd>
`,
  );
  const missing = [...header.not_measured, ...all.flatMap((section) => section.not_measured ?? [])];
  const page = markup`<!doctype html>
<html lang="en"><head><meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width"/><title>hearth bench, ${header.date}</title>
<style>${new Markup(STYLE)}</style></head>
<body><h1>hearth bench</h1>
<dl>${facts}</dl>
<p>Sections: ${entries.map(([name], i) => markup`${i === 0 ? "" : " · "}<a href="#${name}">${name}</a>`)}</p>
<h2>Bars</h2>
${list(all.flatMap((section) => section.bars).map(barItem), "None was measured.")}
<h2>Where hearth loses</h2>
${list(lost(all), "No bar missed, no comparison lost, no call failed.")}
<h2>What was not measured</h2>
<ul>${missing.map((text) => markup`<li>${text}</li>`)}</ul>
<p class="method">Percentiles are nearest-rank; p99.9 of fewer than 1,000 samples is the maximum. Failed calls have no latency
and are counted in the column beside the samples. Every sample is in report.json.</p>
${entries.map((entry) => sectionMarkup(entry, duration_s[entry[0]]))}</body></html>
`;
  return page.text;
}
