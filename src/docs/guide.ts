/**
 * What a concern says of itself: help, examples and readiness, each as JSON and as Markdown. A concern's own `guide.ts`
 * holds its words; routes, states, limits and errors are read from where they are enforced.
 */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import { type Caller, SCOPES, type Scope } from "../base/caller.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { type DocumentedLimit, limitRows } from "../base/limit-texts.ts";
import { JSON_TYPE, preferredType } from "../base/media-types.ts";
import type { Machine } from "../base/state-machine.ts";
import { type Output, type Route, route } from "../http/route.ts";
import { bullets, document, fenced, heading, inlineCode, numbered, paragraph, table } from "./markdown.ts";
import { errorsOf, templateOf } from "./openapi.ts";

const MARKDOWN_TYPE = "text/markdown";

/** A shell script that runs as it stands, with what it prints. A test runs each with a key of just these scopes. */
export interface GuideExample {
  readonly title: string;
  readonly about: string;
  readonly scopes: readonly Scope[];
  readonly script: string;
  readonly output: string;
}

/** `api PATH …` is curl with the key, and fails on a refusal; `get FIELD` takes a field out of a JSON object. */
const TOOLS = `set -eu
api() { path=$1; shift; curl -sS --fail-with-body -H "X-Api-Key: $HEARTH_KEY" "$HEARTH_URL$path" "$@"; }
get() { python3 -c 'import json, sys; sys.stdout.write(str(json.load(sys.stdin)[sys.argv[1]]))' "$1"; }
`;

/** A script with what every one begins with. */
export const example = (
  title: string,
  about: string,
  scopes: readonly Scope[],
  lines: string,
  output: string,
): GuideExample => ({
  title,
  about,
  scopes,
  script: `${TOOLS}\n${lines.trim()}\n`,
  output,
});

export interface Guide<Concern extends string> {
  /** The second part of its paths. */
  readonly concern: Concern;
  readonly about: string;
  /** What a client does, in this order. */
  readonly steps: readonly string[];
  readonly machine: Machine<string, string>;
  /** What each state of the machine means. */
  readonly states: Readonly<Record<string, string>>;
  /** The limits that its clients meet. */
  readonly limits: readonly DocumentedLimit[];
  readonly examples: readonly GuideExample[];
}

const text = (about: string) => z.string().describe(about);

const guideHelp = z
  .object({
    concern: text("The concern of the API, the second part of its paths."),
    about: text("Purpose of the concern."),
    steps: z.array(z.string()).describe("Steps of a client, in this order."),
    routes: z
      .array(
        z.object({
          method: text("Method of the request."),
          path: text("Path, with parameters in braces."),
          scope: z.enum(SCOPES).nullable().describe("Scope that the key needs; null if every key may call the route."),
          summary: text("Effect of the route."),
        }),
      )
      .describe("Every route of the concern."),
    initial_state: text("State after creation."),
    states: z
      .array(
        z.object({
          state: text("Name of the state."),
          about: text("Meaning."),
          transitions: z.record(z.string(), z.string()).describe("Next state for each possible verb."),
        }),
      )
      .describe("States and transitions."),
    limits: z
      .array(
        z.object({
          name: text("Name, as in GET /api/system/info."),
          value: z.number().describe("The bound."),
          about: text("Meaning."),
        }),
      )
      .describe("Limits and defaults."),
    errors: z
      .array(
        z.object({
          error_code: text("Code, as in error_code."),
          status: z.int().describe("HTTP status."),
          retryable: z.boolean().describe("True if the same request may succeed later."),
          about: text("Meaning."),
        }),
      )
      .describe("Error codes of the routes."),
  })
  .meta({ id: "GuideHelp" });
export type GuideHelp = Readonly<z.output<typeof guideHelp>>;

const guideExamples = z
  .object({
    concern: text("The concern of the API, the second part of its paths."),
    requires: z.array(z.string()).describe("Programs and variables that the scripts need."),
    examples: z
      .array(
        z.object({
          title: text("Title of the example."),
          about: text("Explanation of the example."),
          scopes: z.array(z.enum(SCOPES)).describe("Scopes that the key in HEARTH_KEY needs."),
          script: text("Complete script for /bin/sh."),
          output: text("Output of the script."),
        }),
      )
      .describe("Scripts that run on their own and remove what they create."),
  })
  .meta({ id: "GuideExamples" });
export type GuideExamples = Readonly<z.output<typeof guideExamples>>;

const REQUIRES = [
  "sh, curl, python3",
  "HEARTH_URL: URL of the daemon, like http://127.0.0.1:8700",
  "HEARTH_KEY: an API key",
];

const guideQuery = z.object({
  format: z
    .enum(["json", "markdown"])
    .optional()
    .describe("Format of the response; takes precedence over the Accept header. Default: json."),
});

/** The readiness of a concern: its answer's schema, one answer as an example, and how to look. */
export interface Readiness<Schema extends z.ZodType> {
  readonly schema: Schema;
  readonly example: Output<Schema, unknown>;
  readonly look: (caller: Caller) => Output<Schema, unknown> | Promise<Output<Schema, unknown>>;
}

/** The three routes of a guide. `routes` are the concern's others, which the help lists after them. */
export function guideRoutes<const Concern extends string, Schema extends z.ZodType>(
  guide: Guide<Concern>,
  routes: readonly Route[],
  readiness: Readiness<Schema>,
) {
  const { concern } = guide;
  const common = {
    method: "GET",
    auth: "tenant",
    query: guideQuery,
    content: [JSON_TYPE, MARKDOWN_TYPE],
  } as const;
  const all: { routes: readonly Route[] } = { routes: [] };
  const own = [
    route({
      ...common,
      path: `/api/${concern}/help`,
      operation: `${concern}Help`,
      summary: `Returns the guide of ${concern}: routes, states, limits, errors and the order of steps.`,
      response: guideHelp,
      handler: (request) => inForm(request, helpOf(guide, all.routes), helpMarkdown),
    }),
    route({
      ...common,
      path: `/api/${concern}/examples`,
      operation: `${concern}Examples`,
      summary: `Returns complete shell scripts for ${concern}.`,
      response: guideExamples,
      handler: (request) => inForm(request, examplesOf(guide), examplesMarkdown),
    }),
    route({
      ...common,
      path: `/api/${concern}/health`,
      operation: `${concern}Health`,
      summary: `Reports whether the daemon can serve ${concern}.`,
      response: readiness.schema,
      example: { response: readiness.example },
      handler: async (request) =>
        inForm(request, await readiness.look(request.caller), (body) => healthMarkdown(concern, body)),
    }),
  ] as const;
  all.routes = [...own, ...routes];
  return own;
}

interface Asked {
  readonly query: z.output<typeof guideQuery>;
  header(name: string): string | null;
}

/** The answer in the form that was asked for. */
function inForm<Body>(request: Asked, body: Body, render: (body: Body) => string): Answer<Body> | Response {
  const accepted = () => preferredType(request.header("accept"), [JSON_TYPE, MARKDOWN_TYPE]);
  const { format } = request.query;
  const isMarkdown = format === undefined ? accepted() === MARKDOWN_TYPE : format === "markdown";
  // Caches keep the two apart.
  const headers = { vary: "accept, origin" };
  if (!isMarkdown) return new Answer(200, body, headers);
  return new Response(render(body), { headers: { ...headers, "content-type": `${MARKDOWN_TYPE}; charset=utf-8` } });
}

function helpOf(
  { concern, about, steps, machine, states, limits }: Guide<string>,
  routes: readonly Route[],
): GuideHelp {
  const codes = new Set(routes.flatMap((one) => errorsOf(one)));
  return {
    concern,
    about,
    steps: [...steps],
    routes: routes.map(({ method, path, scope, summary }) => ({ method, path: templateOf(path), scope, summary })),
    initial_state: machine.initial,
    states: machine.states.map((state) => ({
      state,
      about: states[state] ?? "",
      transitions: Object.fromEntries(Object.entries(machine.table[state] ?? {}).map(([verb, to]) => [verb, to ?? ""])),
    })),
    limits: limitRows(limits).map(({ name, value, about }) => ({ name, value, about })),
    errors: (Object.keys(ERRORS) as ErrorCode[])
      .filter((error_code) => codes.has(error_code))
      .sort((a, b) => ERRORS[a].status - ERRORS[b].status)
      .map((error_code) => {
        const { status, retryable, about } = ERRORS[error_code];
        return { error_code, status, retryable, about };
      }),
  };
}

function helpMarkdown({ concern, about, steps, routes, initial_state, states, limits, errors }: GuideHelp): string {
  return document([
    heading(1, concern),
    paragraph(about),
    heading(2, "Steps"),
    numbered(steps),
    heading(2, "Routes"),
    table(
      ["Method", "Path", "Scope", "Effect"],
      routes.map(({ method, path, scope, summary }) => [method, inlineCode(path), scope ?? "any", summary]),
    ),
    heading(2, "States"),
    paragraph(`Initial state: ${initial_state}.`),
    table(
      ["State", "Meaning", "Transitions"],
      states.map(({ state, about, transitions }) => [
        inlineCode(state),
        about,
        Object.entries(transitions)
          .map(([verb, to]) => `${verb} → ${to}`)
          .join(", "),
      ]),
    ),
    heading(2, "Limits"),
    table(
      ["Name", "Value", "Meaning"],
      limits.map(({ name, value, about }) => [inlineCode(name), String(value), about]),
    ),
    heading(2, "Errors"),
    table(
      ["Status", "Code", "Meaning", "A retry may succeed"],
      errors.map(({ error_code, status, retryable, about }) => [
        String(status),
        inlineCode(error_code),
        about,
        retryable ? "yes" : "no",
      ]),
    ),
  ]);
}

function examplesOf({ concern, examples }: Guide<string>): GuideExamples {
  return {
    concern,
    requires: [...REQUIRES],
    examples: examples.map((example) => ({ ...example, scopes: [...example.scopes] })),
  };
}

function examplesMarkdown({ concern, requires, examples }: GuideExamples): string {
  return document([
    heading(1, `Examples of ${concern}`),
    paragraph("Each script runs on its own and removes what it creates. The scripts need:"),
    bullets(requires),
    ...examples.flatMap(({ title, about, scopes, script, output }) => [
      heading(2, title),
      paragraph(`${about} Scopes: ${scopes.join(", ")}.`),
      fenced("sh", script),
      paragraph("Output:"),
      fenced("text", output),
    ]),
  ]);
}

function healthMarkdown(concern: string, body: unknown): string {
  return document([heading(1, `Health of ${concern}`), table(["Field", "Value"], leaves(body, []))]);
}

/** Every value with the path that leads to it. */
function leaves(value: unknown, path: readonly string[]): string[][] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return [[inlineCode(path.join(".")), Array.isArray(value) ? value.join(", ") : String(value)]];
  }
  return Object.entries(value).flatMap(([name, inner]) => leaves(inner, [...path, name]));
}
