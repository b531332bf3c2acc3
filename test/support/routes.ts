/** The table of routes as tests read it: nothing is mounted and no handler runs. */
import { apiRoutes } from "../../src/api.ts";
import type { Route } from "../../src/http/route.ts";

// Whatever part a concern is made of: its routes only keep it for their handlers.
const parts: Record<string, object> = { system: { version: "0.0.0" } };
const anything: object = new Proxy(parts, { get: (known, name) => known[String(name)] ?? {} });

export const ROUTES: readonly Route[] = apiRoutes(anything as never);

export const nameOf = ({ method, path }: Pick<Route, "method" | "path">): string => `${method} ${path}`;

/** `function_id` and `invocation_id` of `/api/functions/:function_id/invocations/:invocation_id`. */
export const parametersOf = ({ path }: Pick<Route, "path">): string[] =>
  [...path.matchAll(PARAMETER)].map(([, name = "path"]) => name);

/** `:name`, or the `*` at the end that is called `path`. */
export const PARAMETER = /:(\w+)|\*$/g;

/** The path with values for its parameters. Throws for one that has none: a test then needs to learn of it. */
export function pathOf({ path }: Pick<Route, "path">, values: Readonly<Record<string, string>>): string {
  return path.replace(PARAMETER, (_, name = "path") => {
    const value = values[name];
    if (value === undefined) throw new Error(`no value for the path parameter ${name} of ${path}`);
    return encodeURIComponent(value);
  });
}

/** A body that the route takes: its example's, with ids in place of `{function_id}`, or none where none is needed. */
export function bodyOf({ body, example }: Route, values: Readonly<Record<string, string>>): string | null {
  if (body === null) return null;
  const text = JSON.stringify(example.body ?? {});
  return text.replace(/"\{(\w+)\}"/g, (found, name: string) => JSON.stringify(values[name] ?? found));
}
