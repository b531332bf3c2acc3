/** Requests for every route of the table, with ids that are there and ids that are not, and the bytes that they are. */
import fc from "fast-check";
import type { Route } from "../../src/http/route.ts";
import { archive } from "../support/file-helper.ts";
import { PARAMETER, parametersOf, ROUTES } from "../support/routes.ts";
import { bodyText, HOSTILE_TEXT, queryText, rawOf } from "./values.ts";

/** A value of a path parameter: the n-th of what there is, one that nothing has, or raw text. */
export type Parameter =
  | { readonly kind: "there"; readonly n: number }
  | { readonly kind: "nowhere" }
  | { readonly kind: "raw"; readonly text: string };

export type Who = "operator" | "tenant" | "reader" | "token" | "nobody" | "stranger" | "both";

export interface FuzzRequest {
  /** The route's, by which it is found: a request is printed where it fails. */
  readonly operation: string;
  readonly method: string;
  readonly parameters: Readonly<Record<string, Parameter>>;
  readonly query: string;
  readonly body: string | null;
  readonly who: Who;
  /** The tenant that X-Tenant-Id names. */
  readonly named: Named;
  readonly headers: readonly string[];
}

/** The caller's own, another one, or none. */
export type Named = "own" | "another" | "none";

const parameter: fc.Arbitrary<Parameter> = fc.oneof(
  { weight: 10, arbitrary: fc.nat(1_000).map((n) => ({ kind: "there" as const, n })) },
  { weight: 2, arbitrary: fc.constant({ kind: "nowhere" as const }) },
  {
    weight: 2,
    arbitrary: fc
      .oneof(fc.constantFrom(...HOSTILE_TEXT, "health", "pool", "by-name", "invoke"), fc.string({ maxLength: 20 }))
      .map((text) => ({ kind: "raw" as const, text })),
  },
);

const headers = fc.oneof(
  { weight: 10, arbitrary: fc.constant<readonly string[]>([]) },
  {
    weight: 1,
    arbitrary: fc.subarray([
      `X-Request-Id: ${"r".repeat(129)}`,
      "X-Request-Id: fine-1",
      "X-Request-Id: a b",
      "Content-Type: text/xml",
      "Accept: text/markdown",
      "Accept: */*;q=nothing",
      "traceparent: 00-zz-zz-01",
      "X-Forwarded-For: 1.2.3.4",
      "Cookie: a=b",
      "X-Api-Key: again",
    ]),
  },
);

/** Who may, most of the time. */
/** Only the operator names images of the local store. */
const OPERATORS: readonly string[] = ["pullImage"];

function whoFor({ auth, operation }: Route): fc.Arbitrary<Who> {
  const isOperators = auth === "operator" || OPERATORS.includes(operation);
  const rest: Who[] = ["reader", "token", "nobody", "stranger", "both", "operator", "tenant"];
  return fc.oneof(
    { weight: 8, arbitrary: fc.constant<Who>(isOperators ? "operator" : "tenant") },
    { weight: 2, arbitrary: fc.constantFrom(...rest) },
  );
}

/** Archives of code, with texts alone, so that a request can be printed; some that are refused. */
const ARCHIVES: readonly string[] = [
  archive({ name: "f", content: "1\n" }),
  archive({ name: "d/run", content: "#!/bin/sh\ncat\n" }, { name: "l", type: "symlink", link: "d/run" }),
  archive({ name: "../out", content: "1\n" }),
  archive({ name: "l", type: "symlink", link: "/etc/passwd" }),
  archive({ name: "f", content: "1\n" }).subarray(0, 600),
  archive(),
].map((bytes) => bytes.toString("latin1"));

function bodyFor(route: Route): fc.Arbitrary<string | null> {
  if (route.body !== null) return bodyText(route.body);
  // A route that reads no body is sent one now and then.
  const others = fc.constantFrom(null, null, null, "{}", "{");
  const isArchive = route.upload?.content.includes("application/zip") === true;
  return isArchive ? fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...ARCHIVES) }, others) : others;
}

function namedFor({ headers }: Route): fc.Arbitrary<Named> {
  const usual = headers.includes("X-Tenant-Id") ? "own" : "none";
  return fc.oneof(
    { weight: 20, arbitrary: fc.constant<Named>(usual) },
    { weight: 2, arbitrary: fc.constantFrom<Named>("own", "another", "none") },
  );
}

function requestFor(route: Route): fc.Arbitrary<FuzzRequest> {
  const names = parametersOf(route);
  return fc.record({
    operation: fc.constant(route.operation),
    method: fc.oneof(
      { weight: 40, arbitrary: fc.constant<string>(route.method) },
      { weight: 1, arbitrary: fc.constantFrom("HEAD", "OPTIONS", "PATCH", "PUT", "DELETE", "TRACE", "PROPFIND") },
    ),
    parameters: fc.record(Object.fromEntries(names.map((name) => [name, parameter]))),
    query: route.query === null ? fc.constantFrom("", "?a=b", "?%zz") : queryText(route.query),
    body: bodyFor(route),
    who: whoFor(route),
    named: namedFor(route),
    headers,
  });
}

export function routeOf({ operation }: Pick<FuzzRequest, "operation">): Route {
  const route = ROUTES.find((one) => one.operation === operation);
  if (route === undefined) throw new Error(`no operation ${operation}`);
  return route;
}

export const request: fc.Arbitrary<FuzzRequest> = fc.oneof(...ROUTES.map(requestFor));

/** Whether the path leads to the route and to no other: raw text may hold a slash, or a word that is a route's own. */
export function isPlain(asked: FuzzRequest): boolean {
  const { method } = routeOf(asked);
  return (
    (asked.method === method || (asked.method === "HEAD" && method === "GET")) &&
    Object.values(asked.parameters).every(({ kind }) => kind !== "raw")
  );
}

const NOWHERE: Readonly<Record<string, string>> = {
  function_id: "fn_0000000000000000",
  invocation_id: "inv_1_00000000",
  key_id: "key_000000000000",
  tenant_id: "ten_0000000000000000",
  operation_id: "op_0000000000000000",
  container_id: "ctr_0000000000000000",
  context_id: "ctx_0000000000000000",
  job_id: "job_0000000000000000",
  session_id: "sess_000000000000",
  snapshot_id: "snp_0000000000000000",
  other_id: "snp_0000000000000000",
  pid: "4000000",
  registry: "nothing.example",
};

/** What there is, by the name of the parameter that takes it. */
export type There = Readonly<Record<string, readonly string[]>>;

/** The caller: the header lines of a credential, and its tenant. */
export interface Caller {
  readonly credential: readonly string[];
  readonly tenant_id: string;
}

export function bytesOf(asked: FuzzRequest, there: There, { credential, tenant_id }: Caller): Buffer {
  const { method, parameters, named, headers } = asked;
  const snapshot_id = there.snapshot_id?.[0] ?? NOWHERE.snapshot_id ?? "";
  const [query, body] = [asked.query, asked.body].map((text) => text?.replaceAll("{snapshot_id}", snapshot_id) ?? null);
  const path = routeOf(asked).path.replace(PARAMETER, (_, name = "path") => {
    const value = parameters[name];
    const known = there[name] ?? [];
    if (value?.kind === "raw") return rawOf(value.text);
    if (value?.kind === "there" && known.length > 0) return encodeURIComponent(known[value.n % known.length] ?? "");
    return NOWHERE[name] ?? "nothing-of-that-name";
  });
  const bytes = body == null ? null : Buffer.from(body);
  const tenant = { own: [`X-Tenant-Id: ${tenant_id}`], another: ["X-Tenant-Id: ten_0000000000000000"], none: [] }[
    named
  ];
  const lines = [
    `${method} ${path}${query} HTTP/1.1`,
    "Host: fuzz",
    ...credential,
    ...tenant,
    ...headers,
    ...(bytes === null ? [] : [`Content-Length: ${bytes.length}`]),
  ];
  return Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), bytes ?? Buffer.alloc(0)]);
}
