/** Every route of terminal sessions. */
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement } from "../base/schema.ts";
import { route } from "../http/route.ts";
import { SAMPLES } from "./samples.ts";
import {
  attachQuery,
  bySession,
  createSession,
  resizeSession,
  sessionList,
  sessionRecord,
  sessionsQuery,
} from "./schema.ts";
import type { Terminals } from "./service.ts";

export interface TerminalRoutesOptions {
  readonly terminals: Terminals;
}

const CREATE_ERRORS = [
  "FORBIDDEN",
  "NOT_FOUND",
  "NOT_RUNNING",
  "NOT_RESPONDING",
  "START_FAILED",
  "CONCURRENCY_LIMIT",
] as const;
const ID_EXAMPLE = { session_id: "{session_id}" };

export function terminalRoutes(options: TerminalRoutesOptions) {
  return [...sessionRoutes(options), attachRoute(options)];
}

function sessionRoutes({ terminals }: TerminalRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/terminal/sessions",
      auth: "tenant",
      scope: "invoke",
      operation: "createTerminalSession",
      summary: `Starts a shell on a terminal in a container. Without a client the session ends after ${LIMITS.terminal_idle_seconds_default} seconds or the node's setting.`,
      headers: ["Idempotency-Key"],
      body: createSession,
      status: 201,
      response: sessionRecord,
      errors: CREATE_ERRORS,
      example: { body: { container_id: "{container_id}" }, response: SAMPLES.session },
      handler: async ({ caller, body }) => (await terminals.create(caller.tenant_id, body)).record(),
    }),
    route({
      method: "GET",
      path: "/api/terminal/sessions",
      auth: "tenant",
      scope: "read",
      operation: "listTerminalSessions",
      summary: "Lists the tenant's open sessions, newest first.",
      query: sessionsQuery,
      response: sessionList,
      example: { query: { target: "container" }, response: { sessions: [SAMPLES.session], next_cursor: null } },
      handler: (request) => {
        const page = request.page();
        const { tenant_id, container_ids } = request.caller;
        const { items, last } = terminals.list(tenant_id, request.query.target, page, container_ids);
        return page.answer("sessions", { items: items.map((session) => session.record()), last });
      },
    }),
    route({
      method: "GET",
      path: "/api/terminal/sessions/:session_id",
      auth: "tenant",
      scope: "read",
      operation: "getTerminalSession",
      summary: "Returns one session. An ended session keeps its exit code for a while. Sessions end with the daemon.",
      params: bySession,
      response: sessionRecord,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: SAMPLES.session },
      handler: ({ caller, params }) => terminals.get(caller.tenant_id, params.session_id).record(),
    }),
    route({
      method: "POST",
      path: "/api/terminal/sessions/:session_id/resize",
      auth: "tenant",
      scope: "invoke",
      operation: "resizeTerminalSession",
      summary: "Sets the size of the terminal.",
      params: bySession,
      body: resizeSession,
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: {
        params: ID_EXAMPLE,
        body: { cols: 120, rows: 40 },
        response: { success: true, message: "terminal resized to 120 columns and 40 rows" },
      },
      handler: ({ caller, params, body }) => {
        terminals.resize(caller.tenant_id, params.session_id, body);
        return { success: true as const, message: `terminal resized to ${body.cols} columns and ${body.rows} rows` };
      },
    }),
    route({
      method: "DELETE",
      path: "/api/terminal/sessions/:session_id",
      auth: "tenant",
      scope: "invoke",
      operation: "endTerminalSession",
      summary: "Hangs up: ends the shell and its processes, and notifies an attached client.",
      params: bySession,
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: { params: ID_EXAMPLE, response: { success: true, message: "session ended" } },
      handler: ({ caller, params }) => {
        terminals.end(caller.tenant_id, params.session_id);
        return { success: true as const, message: "session ended" };
      },
    }),
  ];
}

function attachRoute({ terminals }: TerminalRoutesOptions) {
  return route({
    method: "GET",
    path: "/ws/terminal/attach",
    auth: "tenant",
    scope: "invoke",
    operation: "attachTerminal",
    summary:
      "Attaches to a session, or to a new one, by WebSocket: binary messages are terminal bytes, text messages are frames.",
    query: attachQuery,
    query_credential: true,
    socket: { protocol: "terminal" },
    errors: [...CREATE_ERRORS, "WRONG_STATE"],
    handler: ({ caller, query }) => {
      const { session_id, container_id, shell, cols, rows } = query;
      if ((session_id === undefined) === (container_id === undefined)) {
        throw new AppError("INVALID_ARGUMENT", "expected either session_id or container_id", {
          details: { expected: ["session_id", "container_id"] },
        });
      }
      if (session_id !== undefined) return terminals.attach(caller.tenant_id, session_id, { cols, rows });
      return terminals.attachNew(caller.tenant_id, {
        target: "container",
        container_id,
        shell,
        environment: {},
        cols: cols ?? LIMITS.terminal_columns_default,
        rows: rows ?? LIMITS.terminal_rows_default,
      });
    },
  });
}
