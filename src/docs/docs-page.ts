/**
 * The documentation: guides and the description of the API in one HTML document with one navigation. The server makes
 * it from the guides and the OpenAPI document. Its script shows one page at a time and searches; without the script all
 * pages follow each other.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { limitGroups, tenantLimitRows } from "../base/limit-texts.ts";
import { JSON_TYPE } from "../base/media-types.ts";
import { settingRows } from "../base/settings.ts";
import { anchor, code, entryAttributes, escaped, prose, table } from "./html.ts";
import { guideHtml } from "./markdown-html.ts";
import type {
  ApiDocument,
  DocumentOperation,
  DocumentParameter,
  DocumentResponse,
  DocumentSchema,
} from "./openapi-document.ts";
import { DOCS_GROUPS, DOCS_PAGES, type DocsPageRow, pageId, pageOf } from "./pages.ts";

export interface DocsPage {
  readonly html: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface Operation extends DocumentOperation {
  readonly method: string;
  readonly path: string;
}

export function docsPage(document: ApiDocument): DocsPage {
  const style = fileText("docs-page.css");
  const script = fileText("docs-page.js");
  const html = new Page(document).html(style, script);
  return {
    html,
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-length": String(Buffer.byteLength(html)),
      "content-security-policy": `default-src 'none'; style-src ${hashOf(style)}; script-src ${hashOf(script)}; require-trusted-types-for 'script'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
    },
  };
}

const fileText = (name: string): string => readFileSync(new URL(name, import.meta.url), "utf8");

const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const nameOf = (ref: string): string => ref.split("/").at(-1) ?? "";

/** A word as one argument of a shell command; variables in `text` keep their meaning where there is no quote. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** What a value may be, beside its type. */
function bounds(schema: DocumentSchema): string {
  const inner = schema.anyOf?.find(({ type }) => type !== "null") ?? schema;
  const range = (min: unknown, max: unknown, unit: string): string[] => {
    if (min === undefined && max === undefined) return [];
    if (max === undefined) return [`at least ${min}${unit}`];
    return [min === undefined ? `at most ${max}${unit}` : `${min} to ${max}${unit}`];
  };
  return [
    ...range(inner.minimum, inner.maximum, ""),
    ...range(inner.minLength, inner.maxLength, " characters"),
    ...range(inner.minItems, inner.maxItems, " items"),
  ].join(", ");
}

function typeText(schema: DocumentSchema): string {
  if (schema.$ref !== undefined) {
    const name = escaped(nameOf(schema.$ref));
    return `<a href="#schema-${name}">${name}</a>`;
  }
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeText).join(" or ");
  if (schema.const !== undefined) return code(JSON.stringify(schema.const));
  if (schema.enum !== undefined) return schema.enum.map((value) => code(JSON.stringify(value))).join(" or ");
  if (schema.type === "array") return `array of ${typeText(schema.items ?? {})}`;
  if (schema.not !== undefined) return "nothing";
  const { additionalProperties: values } = schema;
  if (schema.type === "object" && typeof values === "object" && Object.keys(values).length > 0) {
    return `object of ${typeText(values)}`;
  }
  return escaped([schema.type ?? "anything"].flat().join(" or "));
}

const FIELDS = ["Field", "Type", "Default", "Meaning"];

/** A row of each field, and of each field of objects inside. */
function fieldRows({ properties = {}, required = [] }: DocumentSchema, prefix: string, isRequest: boolean): string[][] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const path = `${prefix}${name}`;
    const fallback = schema.default === undefined ? "" : code(JSON.stringify(schema.default));
    const inner = [schema, ...(schema.anyOf ?? [])].find((one) => one.properties !== undefined) ?? schema.items;
    const mark = isRequest && required.includes(name) ? ' <span class="required">required</span>' : "";
    const optional = !isRequest && !required.includes(name) ? ' <span class="quiet">optional</span>' : "";
    const limits = bounds(schema);
    return [
      [
        `${code(path)}${mark}${optional}`,
        typeText(schema) + (limits === "" ? "" : ` <br><span class="quiet">${escaped(limits)}</span>`),
        fallback,
        prose(schema.description ?? ""),
      ],
      ...(inner?.properties === undefined ? [] : fieldRows(inner, `${path}.`, isRequest)),
    ];
  });
}

const fieldTable = (schema: DocumentSchema, isRequest: boolean): string =>
  table(FIELDS, fieldRows(schema, "", isRequest));

class Page {
  readonly #document: ApiDocument;
  readonly #operations: readonly Operation[];

  constructor(document: ApiDocument) {
    this.#document = document;
    this.#operations = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item)
        .filter(([method]) => method !== "parameters")
        .map(([method, operation]) => ({ ...(operation as DocumentOperation), method: method.toUpperCase(), path })),
    );
  }

  html(style: string, script: string): string {
    const { info } = this.#document;
    const title = escaped(info.title);
    return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} documentation</title>
<style>${style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<nav aria-label="Documentation">
<form class="search" role="search" hidden><label for="search">Search</label>
<input id="search" type="search" autocomplete="off" spellcheck="false" placeholder="Search ( / )" aria-controls="found">
<p id="found-count" role="status"></p><ol id="found"></ol></form>
<details open><summary>${title} <span class="quiet">${escaped(info.version)}</span></summary>
${this.#contents()}
</details></nav>
<main id="main" tabindex="-1">
${DOCS_PAGES.map((page) => this.#page(page)).join("\n")}
</main>
<script>${script}</script>
</body>
</html>
`;
  }

  #of({ id }: DocsPageRow): readonly Operation[] {
    return this.#operations.filter(({ method, path }) => (pageOf(method, path)?.id ?? OVERVIEW) === id);
  }

  #contents(): string {
    const operation = ({ operationId, method, path }: Operation): string =>
      `<li><a href="#${escaped(operationId)}">${methodBadge(method)}<span>${pathText(path)}</span></a></li>`;
    const page = (row: DocsPageRow): string => {
      const operations = this.#of(row).map(operation).join("\n");
      const list = operations === "" ? "" : `<ul>${operations}</ul>`;
      return `<li><a class="page-link" href="#${pageId(row.id)}">${escaped(row.title)}</a>${list}</li>`;
    };
    return DOCS_GROUPS.map(
      ({ title, pages }) => `<p class="group">${escaped(title)}</p><ul>${pages.map(page).join("\n")}</ul>`,
    ).join("\n");
  }

  #page(row: DocsPageRow): string {
    const operations = this.#of(row).map((operation) => this.#operation(operation));
    const id = pageId(row.id);
    const level = row.id === OVERVIEW ? "h1" : "h2";
    return `<section class="page" ${entryAttributes({ id, kind: "guide", title: row.title })}>
<${level}>${anchor(id)}${escaped(row.title)}</${level}>
${row.guide === undefined ? "" : guideOf(row, row.guide)}
${row.part === undefined ? "" : this.#part(row.part)}
${operations.length === 0 ? "" : `<h3 class="operations">Operations of the API</h3>`}
${operations.join("\n")}
</section>`;
  }

  #part(part: NonNullable<DocsPageRow["part"]>): string {
    if (part === "overview") return this.#overview();
    if (part === "errors") return this.#errors();
    if (part === "headers") return this.#headers();
    if (part === "settings") return settingsPart();
    if (part === "limits") return limitsPart();
    return this.#schemas();
  }

  #overview(): string {
    const { info } = this.#document;
    const pages = DOCS_GROUPS.map(
      ({ title, pages }) =>
        `<li><strong>${escaped(title)}</strong>: ${pages
          .map((page) => `<a href="#${pageId(page.id)}">${escaped(page.title)}</a>`)
          .join(", ")}</li>`,
    );
    const paragraphs = info.description.split("\n\n").map((paragraph) => `<p>${prose(paragraph)}</p>`);
    return `${paragraphs.join("\n")}
<ul>${pages.join("\n")}</ul>
<p>The description for programs: <a href="/api/openapi.json">OpenAPI 3.1</a>.</p>`;
  }

  #operation(operation: Operation): string {
    const { operationId, method, path, summary, description } = operation;
    const parameters = operation.parameters.map((one) => this.#parameter(one));
    const body = operation.requestBody?.content[JSON_TYPE]?.schema;
    const entry = entryAttributes({ id: operationId, kind: "operation", title: `${method} ${path}` });
    return `<article ${entry}>
<h3>${anchor(operationId)}${methodBadge(method)} <span class="path">${pathText(path)}</span></h3>
<p>${prose(summary)} <span class="quiet">${prose(description)}</span></p>
${parameters.length === 0 ? "" : `<h4>Parameters</h4>${table(["Name", "In", "Type", "Default", "Meaning"], parameters.map(parameterRow))}`}
${body === undefined ? "" : `<h4>Body</h4>${fieldTable(this.#resolved(body), true)}`}
<h4>Example</h4>
<pre tabindex="0"><code>${escaped(this.#curl(operation, parameters))}</code></pre>
${this.#answers(operation)}
</article>`;
  }

  #parameter(parameter: DocumentOperation["parameters"][number]): DocumentParameter {
    if (!("$ref" in parameter)) return parameter;
    return this.#document.components.parameters[nameOf(parameter.$ref)] ?? { name: "", in: "", schema: {} };
  }

  #resolved(schema: DocumentSchema): DocumentSchema {
    return schema.$ref === undefined ? schema : (this.#document.components.schemas[nameOf(schema.$ref)] ?? {});
  }

  #curl(operation: Operation, parameters: readonly DocumentParameter[]): string {
    const { method, path, requestBody } = operation;
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const [example] = (parameters.find((one) => one.name === name)?.schema.examples ?? []) as readonly string[];
      return encodeURIComponent(example ?? name);
    });
    const query = parameters
      .filter((one) => one.in === "query" && one.example !== undefined)
      .map(({ name, example }) => `${name}=${encodeURIComponent(String(example))}`);
    const url = `"$HEARTH_URL${filled}${query.length === 0 ? "" : `?${query.join("&")}`}"`;
    const body = requestBody?.content[JSON_TYPE]?.example;
    const parts = [`curl ${url}`];
    // curl itself says GET, and POST where there is a body.
    if (method !== (body === undefined ? "GET" : "POST")) parts[0] = `curl -X ${method} ${url}`;
    if (operation["x-hearth-auth"] !== "public") parts.push('-H "X-Api-Key: $HEARTH_KEY"');
    for (const one of parameters) {
      if (one.in === "header" && one.required === true) parts.push(`-H "${one.name}: ${one.example}"`);
    }
    if (body !== undefined) parts.push(`-d ${quoted(JSON.stringify(body))}`);
    return parts.join(" \\\n  ");
  }

  #answers({ responses }: Operation): string {
    const rows: string[] = [];
    const refusals: string[] = [];
    for (const [status, response] of Object.entries(responses)) {
      if ("$ref" in response) {
        for (const name of codesOf(this.#document.components.responses[nameOf(response.$ref)])) {
          refusals.push(`<a class="code" href="#error-${escaped(name)}">${escaped(status)} ${escaped(name)}</a>`);
        }
      } else rows.push(answerText(status, response));
    }
    return `<h4>Responses</h4>${rows.join("\n")}<p class="refusals">${refusals.join(" ")}</p>`;
  }

  #headers(): string {
    const { headers, parameters } = this.#document.components;
    const sent = Object.values(parameters).filter((one) => one.in === "header");
    const answered = Object.entries(headers as Readonly<Record<string, { readonly description: string }>>);
    return `<h4>Request headers</h4>${table(
      ["Name", "Meaning"],
      sent.map(({ name, description }) => [code(name), prose(description ?? "")]),
    )}
<h4>Response headers</h4>${table(
      ["Name", "Meaning"],
      answered.map(([name, { description }]) => [code(name), prose(description)]),
    )}`;
  }

  #errors(): string {
    const rows = (Object.keys(ERRORS) as ErrorCode[])
      .sort((a, b) => ERRORS[a].status - ERRORS[b].status)
      .map((name) => ({
        cells: [
          String(ERRORS[name].status),
          code(name),
          prose(ERRORS[name].about),
          ERRORS[name].retryable ? "yes" : "no",
        ],
        entry: { id: `error-${name}`, kind: "error" as const, title: name },
      }));
    return `<p>The body of each error response is an <a href="#schema-Error">Error</a>.</p>
${table(["Status", "Code", "Meaning", "Retry"], rows)}`;
  }

  #schemas(): string {
    const shapes = Object.entries(this.#document.components.schemas).sort(([a], [b]) => a.localeCompare(b));
    const one = ([name, schema]: [string, DocumentSchema]): string =>
      `<article ${entryAttributes({ id: `schema-${name}`, kind: "schema", title: name })}><h3>${anchor(`schema-${name}`)}${escaped(name)}</h3>
${schema.description === undefined ? "" : `<p>${prose(schema.description)}</p>`}${fieldTable(schema, /^(Create|Update|Request|Invoke|Rollback)/.test(name))}</article>`;
    return shapes.map(one).join("\n");
  }
}

const OVERVIEW = "overview";

/** Links between guides lead to their pages; other files of the checkout are not served. */
function guideOf({ id, title }: DocsPageRow, file: string): string {
  const href = (target: string): string | null => {
    if (/^https?:/.test(target)) return escaped(target);
    const [path = "", part] = target.split("#");
    const page = path === "" ? id : DOCS_PAGES.find((one) => one.guide?.endsWith(path.replace(/^(\.\.\/)+/, "")))?.id;
    if (page === undefined) return null;
    return part === undefined ? `#${pageId(page)}` : `#${page}-${escaped(part)}`;
  };
  // The section Files is for readers of the folder.
  const text = fileText(file).split(/^## Files$/m)[0] ?? "";
  return guideHtml(text, { id, title, href });
}

function settingsPart(): string {
  const rows = settingRows().map(({ variable, flag, default_text, range, about }) => ({
    cells: [
      `${code(variable)}${flag === "" ? "" : `<br>${code(flag)}`}`,
      prose(about),
      escaped(default_text),
      escaped(range),
    ],
    entry: { id: `setting-${variable}`, kind: "setting" as const, title: variable },
  }));
  return `<p>Each setting is an environment variable of the daemon. It is also a flag of <code>npm start --</code> unless it holds a key.</p>
${table(["Setting", "Meaning", "Default", "Values"], rows)}`;
}

function limitsPart(): string {
  const entry = (id: string, name: string) => ({ id: `${id}-${name}`, kind: "limit" as const, title: name });
  const groups = limitGroups().map(
    ({ title, rows }) =>
      `<h3>${escaped(title)}</h3>${table(
        ["Name", "Value", "Meaning"],
        rows.map(({ name, shown, about }) => ({
          cells: [code(name), escaped(shown), prose(about)],
          entry: entry("limit", name),
        })),
      )}`,
  );
  const tenant = tenantLimitRows().map(({ name, about, default_text, above }) => ({
    cells: [code(name), prose(about), escaped(default_text), escaped(above)],
    entry: entry("tenant-limit", name),
  }));
  return `${groups.join("\n")}
<h3>Limits of a tenant, set by the operator</h3>${table(["Name", "Meaning", "Default", "Above it"], tenant)}`;
}

const methodBadge = (method: string): string =>
  `<span class="method ${escaped(method.toLowerCase())}">${escaped(method)}</span>`;

/** A long path may break before a slash. */
const pathText = (path: string): string =>
  path
    .split("/")
    .map(escaped)
    .join("<wbr>/")
    .replace(/\{(\w+)\}/g, '<span class="parameter">{$1}</span>');

function parameterRow({ name, in: place, required, description, schema }: DocumentParameter): string[] {
  const limits = bounds(schema);
  return [
    `${code(name)}${required && place === "query" ? ' <span class="required">required</span>' : ""}`,
    escaped(place),
    typeText(schema) + (limits === "" ? "" : ` <br><span class="quiet">${escaped(limits)}</span>`),
    schema.default === undefined ? "" : code(String(schema.default)),
    prose(description ?? ""),
  ];
}

function codesOf(response: DocumentResponse | undefined): readonly string[] {
  const parts = (response?.content[JSON_TYPE]?.schema.allOf ?? []) as readonly DocumentSchema[];
  return parts.flatMap(({ properties }) => (properties?.error_code?.enum ?? []).map(String));
}

function answerText(status: string, { description, content }: DocumentResponse): string {
  const types = Object.entries(content).map(([type, { schema }]) =>
    type === JSON_TYPE ? `${code(type)} ${typeText(schema)}` : code(type),
  );
  const example = content[JSON_TYPE]?.example;
  const head = `<strong>${escaped(status)}</strong> ${escaped(description)} · ${types.join(" · ")}`;
  if (example === undefined) return `<p class="answer">${head}</p>`;
  const text = escaped(JSON.stringify(example, null, 2));
  return `<details class="answer"><summary>${head}</summary><pre tabindex="0"><code>${text}</code></pre></details>`;
}
