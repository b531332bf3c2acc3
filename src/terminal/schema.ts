/** Shapes of terminal sessions: the routes' and those of the text frames on their WebSockets. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { absolutePath, epochSeconds, nextCursor, pageQuery, queryNumber, wellFormed, whole } from "../base/schema.ts";
import { argv, containerEnvironment, containerUser, signalNumber } from "../containers/schema.ts";
import { TERMINAL_STATES } from "./states.ts";

const { terminal_columns_max, terminal_rows_max } = LIMITS;

const target = z.enum(["container", "master"]);
export type Target = z.output<typeof target>;

/** A command that minit looks up in the container's PATH, or a path. */
const shell = wellFormed
  .min(1)
  .max(LIMITS.path_bytes_max)
  .refine((text) => !text.includes("\0"), { error: "must not contain a NUL" })
  .describe("Shell to run (default: /bin/bash if the container has it, otherwise /bin/sh).");

const columns = whole(1, terminal_columns_max).describe("Columns.");
const lines = whole(1, terminal_rows_max).describe("Rows.");

export const createSession = z
  .object({
    target: target.default("container").describe("Always container: a shell never runs on the node."),
    container_id: z.string().optional().describe("Id or name of the container."),
    shell: shell.optional(),
    command: argv.optional().describe("Command to run instead of a shell, as argv."),
    environment: containerEnvironment
      .default({})
      .describe("Variables in addition to the container's; same names are replaced."),
    working_directory: absolutePath.nullish().describe("Working directory (default: the container's)."),
    user: containerUser
      .nullish()
      .describe("User of the shell, as <user> or <user>:<group>, each a name or a number (default: the container's)."),
    cols: columns.default(LIMITS.terminal_columns_default).describe("Columns."),
    rows: lines.default(LIMITS.terminal_rows_default).describe("Rows."),
  })
  .refine(({ shell, command }) => shell === undefined || command === undefined, {
    error: "cannot be combined with a shell",
    path: ["command"],
  })
  .meta({ id: "CreateTerminalSession" });
export type CreateSession = z.output<typeof createSession>;

export const resizeSession = z.object({ cols: columns, rows: lines }).meta({ id: "ResizeTerminalSession" });
export type TerminalSize = z.output<typeof resizeSession>;

export const sessionsQuery = pageQuery.extend({ target: target.optional().describe("Only sessions of this kind.") });

export const attachQuery = z.object({
  cols: queryNumber(1, terminal_columns_max)
    .optional()
    .describe("Columns of the terminal; resizes an existing session."),
  rows: queryNumber(1, terminal_rows_max).optional().describe("Rows of the terminal; resizes an existing session."),
  session_id: z.string().optional().describe("Id of the session; or send container_id."),
  container_id: z.string().optional().describe("Creates a session in this container, by id or name."),
  shell: shell.optional(),
});

export const sessionRecord = z
  .object({
    id: z.string().describe("Id of the session."),
    session_id: z.string().describe("The same as id."),
    tenant_id: z.string().describe("Tenant that owns the session."),
    target: target.describe("Kind of place in which the shell runs."),
    container_id: z.string().describe("Id of the container."),
    child_container_id: z.string().describe("The same as container_id."),
    state: z
      .enum(TERMINAL_STATES)
      .describe("active: a client is attached; ready: no client attached yet; idle: the client detached."),
    shell: z.string().describe("Shell, or the first element of the command."),
    is_shell: z.boolean().describe("False if the session runs a command."),
    cols: z.int().describe("Columns."),
    rows: z.int().describe("Rows."),
    pid: z.int().describe("Pid of the shell inside the container."),
    attach_url: z.string().describe("Path of its WebSocket."),
    created_at: epochSeconds,
    last_activity_at: epochSeconds,
    expires_at: epochSeconds.describe("Time at which the daemon ends the session, in seconds since the Unix epoch."),
    exit_code: z
      .int()
      .nullable()
      .describe("Exit code of the shell after its end; 128 plus the signal number if a signal killed it."),
    signal: z.string().nullable().describe("Signal that killed the shell."),
    error_code: z.string().nullable().describe("Error code if the state is error."),
    error_message: z.string().nullable().describe("Reason if the state is error."),
    retry_count: z.int().describe("Always 0: the daemon does not restart a shell."),
  })
  .meta({ id: "TerminalSession" });
export type SessionRecord = z.output<typeof sessionRecord>;

export const sessionList = z
  .object({ sessions: z.array(sessionRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "TerminalSessionList" });

export const bySession = z.object({
  session_id: z.string().meta({ description: "Id of the session.", examples: ["sess_3fa85f64c1d2"] }),
});

/** SIGHUP, SIGINT and SIGTERM. */
const TERMINAL_SIGNALS: ReadonlySet<number> = new Set([1, 2, 15]);

/** What a client sends as text. */
export const clientFrame = z.discriminatedUnion("type", [
  z.object({ type: z.literal("resize"), cols: columns, rows: lines }),
  z.object({ type: z.literal("ping"), ts: z.union([z.number(), z.string().max(64)]).optional() }),
  z.object({
    type: z.literal("signal"),
    // The number, as text too, and the name without SIG, as of other routes.
    signal: z
      .union([z.int(), z.string().max(16)])
      .transform((signal) => signalNumber(String(signal)) ?? 0)
      .refine((signal) => TERMINAL_SIGNALS.has(signal)),
  }),
]);

/** What is sent to a client as text; what the terminal shows goes as binary messages. */
export type ServerFrame =
  | { readonly type: "ready"; readonly session_id: string; readonly shell: string; readonly pid: number }
  | { readonly type: "pong"; readonly ts?: number | string }
  | { readonly type: "exit"; readonly code: number; readonly signal: string | null }
  | { readonly type: "error"; readonly code: string; readonly message: string };
