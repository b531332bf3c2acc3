/** Every mounted route is one of the interface's, or of the named extras; each says who may call it and what it is. */
import { describe, expect, it } from "vitest";
import { functionRoutes } from "../src/functions/routes.ts";
import type { Route } from "../src/http/route.ts";
import { systemRoutes } from "../src/system/routes.ts";

/** The interface's rows of the areas that exist. A row that is not built yet is not mounted, and not listed here. */
const INTERFACE = `
GET /health
GET /api/system/info
GET /api/functions/health
POST /api/functions
GET /api/functions
GET /api/functions/:function_id
GET /api/functions/by-name/:name
PUT /api/functions/:function_id
GET /api/functions/:function_id/versions
POST /api/functions/:function_id/rollback
DELETE /api/functions/:function_id
POST /api/functions/:function_id/deploy
POST /api/functions/:function_id/pause
POST /api/functions/:function_id/resume
POST /api/functions/:function_id/invoke
POST /api/functions/invoke/:name
GET /api/functions/:function_id/invocations
GET /api/functions/:function_id/invocations/:invocation_id
GET /api/functions/:function_id/pool
GET /api/functions/pool/stats
`;

/** Routes beyond the interface, each with its reason. None so far. */
const EXTRAS: readonly string[] = [];

// Only the table is looked at: no handler runs.
const mounted: readonly Route[] = [...systemRoutes({} as never), ...functionRoutes({} as never)];
const named = (route: Route) => `${route.method} ${route.path}`;

describe("the table of routes", () => {
  it("is the interface's list and the named extras, no more and no fewer", () => {
    const wanted = [...INTERFACE.trim().split("\n"), ...EXTRAS].sort();
    expect(mounted.map(named).sort()).toEqual(wanted);
  });

  it("asks for a credential everywhere but on /health", () => {
    expect(mounted.filter(({ auth }) => auth === "public").map(named)).toEqual(["GET /health"]);
  });

  it("describes each route in a sentence", () => {
    expect(mounted.filter(({ summary }) => !/^[A-Z].*\.$/.test(summary)).map(named)).toEqual([]);
  });

  it("has a schema for the parameters of every path that has some", () => {
    expect(mounted.filter(({ path, params }) => path.includes(":") && params === null).map(named)).toEqual([]);
  });
});
