/** Every mounted route is one of the interface's, or of the named extras; each says who may call it and what it is. */
import { describe, expect, it } from "vitest";
import type { Route } from "../src/http/route.ts";
import { pageRoutes } from "../src/page/routes.ts";
import { INTERFACE, NOT_MOUNTED } from "./support/interface.ts";
import { ROUTES } from "./support/routes.ts";

/** Rows of the interface, and those of them that were not mounted when this number was last lowered. */
const ROWS_COUNT = 161;
const NOT_MOUNTED_COUNT = 50;

/** Routes beyond the interface, each with its reason. */
const EXTRAS: Readonly<Record<string, string>> = {
  "GET /": "the page, which is no part of the API: a browser asks for it before anybody has signed in",
  "GET /page/:file": "what the page is made of",
  "GET /page/novnc/*": "the same, of the viewer of desktops",
  "GET /api/containers/:container_id/gui-url": "a desktop is looked at in a browser",
  "GET /gui/:container_id/": "the same",
  "GET /gui/:container_id/websockify": "the same",
  "POST /api/containers/:container_id/gui/screenshot": "agents look at a desktop",
  "POST /api/containers/:container_id/gui/input": "agents use a desktop",
  "POST /api/icc/inbox/:container_id/receive": "clients without the socket of a container receive messages",
  "POST /api/icc/request": "a message and its reply as one call",
  "GET /api/icc/containers/:container_id/permission": "what a container itself may send",
  "PUT /api/icc/containers/:container_id/permission": "the same",
  "GET /api/icc/topics": "one message reaches many containers",
  "GET /api/icc/topics/:name/subscribers": "the same",
  "PUT /api/icc/topics/:name/subscribers/:container_id": "the same",
  "DELETE /api/icc/topics/:name/subscribers/:container_id": "the same",
  "GET /api/icc/state": "the last state that was published to each key",
  "GET /api/icc/state/:key": "the same, of one key",
  "PUT /api/icc/state/:key": "the same",
  "DELETE /api/icc/state/:key": "the same",
  "POST /api/icc/bindings": "functions handle messages without a process that receives them",
  "GET /api/icc/bindings": "the same",
  "GET /api/icc/bindings/:binding_id": "the same",
  "DELETE /api/icc/bindings/:binding_id": "the same",
  "GET /metrics": "what Prometheus reads",
  "GET /api/openapi.json": "the description of all the others",
  "GET /api/docs": "the same as a page to read",
  "GET /api/schemas/hearth.toml.json": "an editor of hearth.toml reads it without a key",
  "GET /api/functions/pools": "a console asks for the pools of all functions in one request",
  "GET /api/operations": "whoever has lost a handle finds it",
  "POST /api/operations/:operation_id/cancel": "what was accepted may be wanted no more",
  "POST /api/terminal/sessions": "the interface says that there are such routes, and not which",
  "GET /api/terminal/sessions": "the same",
  "GET /api/terminal/sessions/:session_id": "the same",
  "POST /api/terminal/sessions/:session_id/resize": "the same",
  "DELETE /api/terminal/sessions/:session_id": "the same",
  "GET /ws/terminal/attach": "the same",
  "GET /ws/containers/:container_id/attach": "output of a command as bytes, and its input",
  "GET /ws/containers/:container_id/exec": "the same of further commands",
  "GET /api/network/allocations": "existing clients read it",
  "GET /api/containers/:container_id/network": "the same",
  "PUT /api/containers/:container_id/network": "the same",
  "POST /api/containers/:container_id/network/setup": "the same",
  "GET /api/containers/:container_id/network/diagnostics": "the same",
  "GET /api/containers/:container_id/egress": "the same",
  "POST /api/containers/:container_id/routes": "the same",
  "DELETE /api/containers/:container_id/routes": "the same",
  "GET /api/monitors": "the same",
  "GET /api/monitors/processes": "the same",
  "GET /api/monitors/profile": "the same",
  "GET /api/monitors/:container_id": "the same",
  "GET /api/cleanup/status": "the same",
  "GET /api/cleanup/tasks": "the same",
  "GET /api/containers/:container_id/cleanup/tasks": "the same",
  "POST /api/containers/:container_id/cleanup/force": "the same",
  "GET /api/activity": "the same",
  "GET /api/audit": "who changed what is asked after the fact",
  "GET /api/api-keys": "the interface leaves the issuance of keys open (Authentication 7)",
  "POST /api/api-keys": "the same",
  "DELETE /api/api-keys/:key_id": "the same",
  "POST /api/auth/token": "the same, of bearer tokens",
  "GET /api/containers/:container_id/api-keys": "the same, of keys that reach one container",
  "POST /api/containers/:container_id/api-keys": "the same",
  "DELETE /api/containers/:container_id/api-keys/:key_id": "the same",
  "POST /api/auth/register": "people sign up with a password where the operator lets them",
  "POST /api/auth/login": "the same",
  "POST /api/auth/refresh": "the same",
  "POST /api/auth/logout": "the same",
  "POST /api/auth/password": "the same",
  "GET /api/auth/me": "who holds a credential asks what it may do",
  "GET /api/users": "the operator sees who has signed up",
  "POST /api/users/password": "the operator helps somebody who has forgotten the password",
  "GET /api/containers/:container_id/archive": "the twin of the upload",
  "GET /api/volumes/:name/archive": "the same",
  "GET /api/containers/:container_id/ls": "the twin of a volume's: who fetches a file looks for it first",
  "GET /api/containers/:container_id/jobs": "what existing clients read after an exec",
  "GET /api/containers/:container_id/jobs/:job_id": "the same",
  "POST /api/functions/code": "people bring code of their own",
  "POST /api/functions/code/:code_sha256/renew": "code that a tenant has uploaded is not sent again",
  "PUT /api/functions/:function_id/code": "the same",
  "GET /api/functions/:function_id/versions/:version": "the same",
  "GET /api/functions/:function_id/versions/:version/code": "the same",
  "GET /api/functions/:function_id/versions/:version/diff/:other_version": "the same",
  "POST /api/functions/deployments": "several functions change together or not at all",
  "POST /api/operator/key/rotate": "a key that leaked is replaced while the daemon runs",
  "POST /api/operator/token-key/rotate": "the same",
  "GET /api/secrets": "functions need values that no record shows",
  "PUT /api/secrets/:name": "the same",
  "GET /api/secrets/:name": "the same",
  "DELETE /api/secrets/:name": "the same",
  "GET /api/operator/secrets-key": "the operator sees when the earlier key is gone",
  "POST /api/operator/secrets-key/rotate": "a key that leaked is replaced while the daemon runs",
  "POST /api/containers/:container_id/services": "existing clients publish ports of containers",
  "GET /api/containers/:container_id/services": "the same",
  "GET /api/services": "the same",
  "GET /api/services/:service_id": "the same",
  "DELETE /api/services/:service_id": "the same",
  "POST /api/services/:service_id/rotate": "a URL that leaked is replaced",
  "POST /api/containers/:container_id/restore": "who takes snapshots wants to go back to one",
  "GET /api/snapshots/:snapshot_id/diff/:other_id": "who tries things out sees what they changed",
  "GET /api/containers/:container_id/changes": "the same",
  "POST /api/snapshots/:snapshot_id/export": "what was tried by hand goes elsewhere as an image",
  "POST /api/containers/:container_id/commit": "the same",
  "POST /api/functions/:function_id/versions": "what was tried by hand in a container becomes a function",
  "PUT /api/containers/:container_id/snapshot-schedule": "a snapshot that somebody has to think of is not there",
  "GET /api/containers/:container_id/snapshot-schedule": "the same",
  "DELETE /api/containers/:container_id/snapshot-schedule": "the same",
  "PUT /api/volumes/:name/snapshot-schedule": "the same",
  "GET /api/volumes/:name/snapshot-schedule": "the same",
  "DELETE /api/volumes/:name/snapshot-schedule": "the same",
  "POST /api/volumes/:name/snapshot": "data in a volume is as dear as that in a container",
  "GET /api/nightly/profiles": "whoever chooses an image sees what there is",
  "GET /api/nightly/profiles/:profile": "the same, with the progress of its build",
  "GET /api/nightly/profiles/:profile/resolve": "what existing clients call before they pull a profile",
  "GET /api/nightly/profiles/:profile/updates": "the operator sees what a rebuild would change",
  "GET /api/nightly/profiles/:profile/releases": "whoever pins a release finds it",
  "GET /api/nightly/profiles/:profile/releases/:version": "whoever ships an image has to name its licences",
  "GET /api/nightly/profiles/:profile/releases/:version/diff/:other": "a rebuild is judged before it is promoted",
  "POST /api/nightly/profiles/:profile/build": "the operator builds before the first use",
  "POST /api/nightly/profiles/:profile/promote": "the operator decides what stable means",
  "POST /api/nightly/profiles/:profile/rollback": "the same",
  "POST /api/oci/images/load": "an image comes to a machine without a registry",
  "POST /api/oci/images/tag": "an image that was pulled gets a name of one's own",
  "POST /api/oci/images/push": "an image that was built here goes where others pull it",
  "GET /api/oci/images/save": "an image goes to a machine without a registry",
  "GET /api/oci/registries": "private images need credentials that no request has to repeat",
  "PUT /api/oci/registries/:registry": "the same",
  "GET /api/oci/registries/:registry": "the same",
  "DELETE /api/oci/registries/:registry": "the same",
  "POST /api/oci/images/prune": "a tenant frees its quota without naming each image",
  "PATCH /api/oci/images": "the operator shares an image with all tenants",
  "GET /api/build-contexts": "a tenant sees what its limits count",
  "DELETE /api/build-contexts/:context_id": "what was uploaded may be wanted no more",
  "GET /api/networks": "members of a private network look for each other",
  "GET /api/dns/entries": "existing clients read the names of containers",
  "POST /api/dns/entries/:name/rename": "the same clients rename them",
  "POST /api/tenants": "somebody has to make those to whom keys belong",
  "GET /api/tenant": "a tenant sees its limits beside what it has in use",
  "GET /api/tenants": "the same",
  "GET /api/tenants/:tenant_id": "the same",
  "PATCH /api/tenants/:tenant_id": "their limits",
  "DELETE /api/tenants/:tenant_id": "the same",
  "POST /api/tenants/:tenant_id/api-keys": "a tenant's first key",
  "GET /api/tenants/:tenant_id/api-keys": "the operator revokes a key that leaked",
  "DELETE /api/tenants/:tenant_id/api-keys/:key_id": "the same",
};

// Only the table is looked at: no handler runs.
const mounted: readonly Route[] = [...ROUTES, ...pageRoutes()];
const named = (route: Route) => `${route.method} ${route.path}`;

describe("the table of routes", () => {
  it("is the interface's list and the named extras, no more and no fewer", () => {
    const rows = Object.keys(INTERFACE).filter((row) => !NOT_MOUNTED.includes(row));
    const wanted = [...rows, ...Object.keys(EXTRAS)].sort();
    expect(mounted.map(named).sort()).toEqual(wanted);
  });

  it("mounts ever more of the interface: the list of what is not mounted holds no mounted row and never grows", () => {
    const names = mounted.map(named);
    expect(NOT_MOUNTED.filter((row) => names.includes(row))).toEqual([]);
    expect(Object.keys(INTERFACE).length).toBe(ROWS_COUNT);
    expect(NOT_MOUNTED.length).toBe(NOT_MOUNTED_COUNT);
  });

  it("asks for a credential everywhere but where there is nothing to protect", () => {
    const open = mounted.filter(({ auth }) => auth === "public").map(named);
    expect(open.sort()).toEqual([
      "GET /",
      "GET /api/docs",
      "GET /api/openapi.json",
      "GET /api/schemas/hearth.toml.json",
      // Their token in the query is checked by the concern.
      "GET /gui/:container_id/",
      "GET /gui/:container_id/websockify",
      "GET /health",
      "GET /page/:file",
      "GET /page/novnc/*",
      "POST /api/auth/login",
      "POST /api/auth/refresh",
      "POST /api/auth/register",
    ]);
  });

  it("says of every other route what a key needs, and lets only these do with any key", () => {
    const any = mounted.filter(({ auth, scope }) => auth !== "public" && scope === null).map(named);
    // Guides and readiness are asked before anything else; a key may end itself and make a token of what it is; so may a user.
    expect(any.sort()).toEqual([
      "DELETE /api/api-keys/:key_id",
      "GET /api/auth/me",
      "GET /api/containers/examples",
      "GET /api/containers/health",
      "GET /api/containers/help",
      "GET /api/functions/examples",
      "GET /api/functions/health",
      "GET /api/functions/help",
      "GET /api/icc/examples",
      "GET /api/icc/health",
      "GET /api/icc/help",
      "GET /api/nightly/examples",
      "GET /api/nightly/health",
      "GET /api/nightly/help",
      "GET /api/oci/examples",
      "GET /api/oci/health",
      "GET /api/oci/help",
      "POST /api/auth/logout",
      "POST /api/auth/password",
      "POST /api/auth/token",
    ]);
  });

  it("lets no key read with less than read, and change nothing with it", () => {
    const wrong = mounted.filter(
      ({ method, scope, socket, operation }) =>
        // A socket carries commands, and the URL of a desktop opens such a socket.
        operation !== "getGuiUrl" &&
        scope !== null &&
        scope !== "admin" &&
        (method === "GET" && socket === null) !== (scope === "read"),
    );
    expect(wrong.map(named)).toEqual([]);
  });

  it("names every operation once", () => {
    const names = mounted.map(({ operation }) => operation);
    expect([...new Set(names)]).toEqual(names);
  });

  it("describes each route in a sentence", () => {
    expect(mounted.filter(({ summary }) => !/^[A-Z].*\.$/.test(summary)).map(named)).toEqual([]);
  });

  it("has a schema for the parameters of every path that has some", () => {
    expect(mounted.filter(({ path, params }) => path.includes(":") && params === null).map(named)).toEqual([]);
  });
});
