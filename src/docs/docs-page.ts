/**
 * The description of the API as a page to read: made from the document, by the server, without a script. What comes
 * from the document is text until `escaped` has seen it.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { limitGroups, tenantLimitRows } from "../base/limit-texts.ts";
import { JSON_TYPE } from "../base/media-types.ts";
import { settingRows } from "../base/settings.ts";
import type {
  ApiDocument,
  DocumentOperation,
  DocumentParameter,
  DocumentResponse,
  DocumentSchema,
} from "./openapi-document.ts";

export interface DocsPage {
  readonly html: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface Operation extends DocumentOperation {
  readonly method: string;
  readonly path: string;
}

export function docsPage(document: ApiDocument): DocsPage {
  const style = readFileSync(new URL("docs-page.css", import.meta.url), "utf8");
  const hash = createHash("sha256").update(style).digest("base64");
  const html = new Page(document).html(style);
  return {
    html,
    headers: {
      "content-type": "text/html; charset=utf-8",
      "content-length": String(Buffer.byteLength(html)),
      "content-security-policy": `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
    },
  };
}

export const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/** Text in which backquotes mark code. */
const prose = (text: string): string => escaped(text).replace(/`([^`]+)`/g, "<code>$1</code>");

const code = (text: string): string => `<code>${escaped(text)}</code>`;

const nameOf = (ref: string): string => ref.split("/").at(-1) ?? "";

/** A word as one argument of a shell command; variables in `text` keep their meaning where there is no quote. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Without the columns that would be empty. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return "";
  const shown = [...head.keys()].filter((i) => rows.some((row) => row[i] !== ""));
  const cells = (row: readonly string[]) => shown.map((i) => `<td data-label="${head[i]}">${row[i]}</td>`).join("");
  return `<div class="wide"><table><thead><tr>${shown.map((i) => `<th scope="col">${head[i]}</th>`).join("")}</tr></thead>
<tbody>${rows.map((row) => `<tr>${cells(row)}</tr>`).join("\n")}</tbody></table></div>`;
}

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

  html(style: string): string {
    const { info, tags } = this.#document;
    const title = `${escaped(info.title)} API`;
    return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<nav aria-label="Contents"><details open><summary>${title} <span class="quiet">${escaped(info.version)}</span></summary>
${this.#contents()}
</details></nav>
<main id="main">
<h1>${title}</h1>
${info.description
  .split("\n\n")
  .map((paragraph) => `<p>${prose(paragraph)}</p>`)
  .join("\n")}
<p><a href="/api/openapi.json">OpenAPI 3.1</a></p>
${tags.map((tag) => this.#concern(tag)).join("\n")}
${this.#headers()}
${this.#errors()}
${settingsSection()}
${limitsSection()}
${this.#shapes()}
</main>
</body>
</html>
`;
  }

  #of(tag: string): readonly Operation[] {
    return this.#operations.filter(({ tags }) => tags[0] === tag);
  }

  #contents(): string {
    const list = (items: readonly string[]) => `<ul>${items.map((item) => `<li>${item}</li>`).join("\n")}</ul>`;
    const concerns = this.#document.tags.map(
      ({ name }) =>
        `<a class="concern" href="#concern-${escaped(name)}">${escaped(name)}</a>${list(
          this.#of(name).map(
            ({ operationId, method, path }) =>
              `<a href="#${escaped(operationId)}">${methodBadge(method)}<span>${pathText(path)}</span></a>`,
          ),
        )}`,
    );
    const rest = [
      ["headers", "Headers"],
      ["errors", "Errors"],
      ["settings", "Settings"],
      ["limits", "Limits"],
      ["shapes", "Shapes"],
    ].map(([id, name]) => `<a class="concern" href="#${id}">${name}</a>`);
    return list([...concerns, ...rest]);
  }

  #concern({ name, description }: { readonly name: string; readonly description: string }): string {
    return `<section id="concern-${escaped(name)}" class="concern"><h2>${anchor(`concern-${name}`)}${escaped(name)}</h2>
<p>${prose(description)}</p>
${this.#of(name)
  .map((operation) => this.#operation(operation))
  .join("\n")}
</section>`;
  }

  #operation(operation: Operation): string {
    const { operationId, method, path, summary, description } = operation;
    const parameters = operation.parameters.map((one) => this.#parameter(one));
    const body = operation.requestBody?.content[JSON_TYPE]?.schema;
    return `<article id="${escaped(operationId)}">
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
    return `<h4>Answers</h4>${rows.join("\n")}<p class="refusals">${refusals.join(" ")}</p>`;
  }

  #headers(): string {
    const { headers, parameters } = this.#document.components;
    const sent = Object.values(parameters).filter((one) => one.in === "header");
    const answered = Object.entries(headers as Readonly<Record<string, { readonly description: string }>>);
    return `<section id="headers"><h2>${anchor("headers")}Headers</h2>
<h4>Request headers</h4>${table(
      ["Name", "Meaning"],
      sent.map(({ name, description }) => [code(name), prose(description ?? "")]),
    )}
<h4>Response headers</h4>${table(
      ["Name", "Meaning"],
      answered.map(([name, { description }]) => [code(name), prose(description)]),
    )}</section>`;
  }

  #errors(): string {
    const rows = (Object.keys(ERRORS) as ErrorCode[])
      .sort((a, b) => ERRORS[a].status - ERRORS[b].status)
      .map((name) => [
        String(ERRORS[name].status),
        `<code id="error-${name}">${name}</code>`,
        prose(ERRORS[name].about),
        ERRORS[name].retryable ? "yes" : "no",
      ]);
    return `<section id="errors"><h2>${anchor("errors")}Errors</h2>
<p>The body of each is an <a href="#schema-Error">Error</a>.</p>
${table(["Status", "Code", "Meaning", "Try again"], rows)}</section>`;
  }

  #shapes(): string {
    const shapes = Object.entries(this.#document.components.schemas).sort(([a], [b]) => a.localeCompare(b));
    const one = ([name, schema]: [string, DocumentSchema]): string =>
      `<article id="schema-${escaped(name)}"><h3>${anchor(`schema-${name}`)}${escaped(name)}</h3>
${schema.description === undefined ? "" : `<p>${prose(schema.description)}</p>`}${fieldTable(schema, /^(Create|Update|Request|Invoke|Rollback)/.test(name))}</article>`;
    return `<section id="shapes"><h2>${anchor("shapes")}Shapes</h2>${shapes.map(one).join("\n")}</section>`;
  }
}

function settingsSection(): string {
  const rows = settingRows().map(({ variable, flag, default_text, range, about }) => [
    `${code(variable)}${flag === "" ? "" : `<br>${code(flag)}`}`,
    prose(about),
    escaped(default_text),
    escaped(range),
  ]);
  return `<section id="settings"><h2>${anchor("settings")}Settings</h2>
<p>Each setting is an environment variable of the daemon. It is also a flag of <code>npm start --</code> unless it holds a key.</p>
${table(["Setting", "Meaning", "Default", "Values"], rows)}</section>`;
}

function limitsSection(): string {
  const groups = limitGroups().map(
    ({ title, rows }) =>
      `<h3>${escaped(title)}</h3>${table(
        ["Name", "Value", "Meaning"],
        rows.map(({ name, shown, about }) => [code(name), escaped(shown), prose(about)]),
      )}`,
  );
  const tenant = tenantLimitRows().map(({ name, about, default_text, above }) => [
    code(name),
    prose(about),
    escaped(default_text),
    escaped(above),
  ]);
  return `<section id="limits"><h2>${anchor("limits")}Limits</h2>
${groups.join("\n")}
<h3>Of a tenant, set by the operator</h3>${table(["Name", "Meaning", "Default", "Above it"], tenant)}</section>`;
}

const anchor = (id: string): string => `<a class="anchor" href="#${escaped(id)}" aria-label="Link to this part">#</a>`;

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
