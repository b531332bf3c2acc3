/**
 * Confines credentials that reach some containers of their tenant and nothing else: the one table of the routes that such a
 * credential may use.
 *
 * C1. A route that is not in the table refuses the credential with 403. So does each new route.
 * C2. A resource that the request names belongs to one of the containers, or is answered like a missing one.
 * C3. A name of a container is replaced by its id before the handler runs: a container that takes the name between check and
 *     work is not reached.
 * C4. It names no user of a command (`refuseUser`).
 */
import { type Caller, refuseUser } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import type { Route } from "./route.ts";

/**
 * `named`: the request names a container, or an operation or terminal session of one. `filtered`: the handler leaves out
 * what is not of `caller.container_ids`. `static`: the answer is the same for all callers, or about the credential itself.
 */
type Reach = "named" | "filtered" | "static";

const REACH: Readonly<Record<string, Reach>> = {
  containersHelp: "static",
  containersExamples: "static",
  identity: "static",
  requestToken: "static",
  iccHelp: "static",
  iccExamples: "static",
  messagingOverview: "static",
  messageSchema: "static",
  messageTypes: "static",
  messageProto: "static",
  messageDescriptor: "static",
  // Its handler lets a credential without the scope admin revoke itself alone.
  revokeKey: "static",

  listContainers: "filtered",
  findContainer: "filtered",
  listOperations: "filtered",
  listTerminalSessions: "filtered",
  streamEvents: "filtered",

  getContainer: "named",
  containerReady: "named",
  startContainer: "named",
  resumeContainer: "named",
  stopContainer: "named",
  killContainer: "named",
  deleteContainer: "named",
  getContainerEnvironment: "named",
  patchContainerEnvironment: "named",
  putContainerEnvironment: "named",
  execInContainer: "named",
  streamFromContainer: "named",
  attachContainer: "named",
  execInContainerSocket: "named",
  listJobs: "named",
  getJob: "named",
  listProcesses: "named",
  signalProcess: "named",
  containerMetrics: "named",
  containerLogs: "named",
  listContainerFiles: "named",
  uploadContainerArchive: "named",
  downloadContainerArchive: "named",
  getContainerNetwork: "named",
  setUpContainerNetwork: "named",
  diagnoseContainerNetwork: "named",
  getContainerEgress: "named",
  listContainerCleanupTasks: "named",
  getMonitor: "named",
  getOperation: "named",
  cancelOperation: "named",
  createTerminalSession: "named",
  getTerminalSession: "named",
  resizeTerminalSession: "named",
  endTerminalSession: "named",
  attachTerminal: "named",

  containerMessaging: "named",
  stateVersion: "named",
  messagePermission: "named",
  readInbox: "named",
  readContainerInbox: "named",
  listContainerMessages: "named",
  receiveMessages: "named",
  ackInboxMessage: "named",
  ackContainerMessage: "named",
  replayMessages: "named",
  replayInbox: "named",
  replayContainerInbox: "named",
  // Its handler lets the credential send as the container of the path alone, up to the container's permission level.
  publishContainerEnvelope: "named",
};

/** Finds the container of a resource; null: there is no such resource, or it is no container's. */
export interface ContainerOf {
  /** By id, or by name where no container has that id. */
  container(tenant_id: string, id_or_name: string): Promise<string | null>;
  operation(tenant_id: string, id: string): Promise<string | null>;
  session(tenant_id: string, id: string): string | null;
}

/** Fields by which requests name resources, with the words of their refusal. */
const NAMED = {
  container_id: { what: "container", find: "container" },
  operation_id: { what: "operation", find: "operation" },
  session_id: { what: "terminal session", find: "session" },
} as const satisfies Record<string, { readonly what: string; readonly find: keyof ContainerOf }>;
const FIELDS = Object.keys(NAMED) as (keyof typeof NAMED)[];

/** Throws FORBIDDEN for a route that the caller's containers do not reach (C1). */
export function permitConfined({ operation }: Pick<Route, "operation">, caller: Caller): void {
  if (caller.container_ids === undefined || REACH[operation] !== undefined) return;
  throw new AppError("FORBIDDEN", "the key reaches only its containers, and the route is about more", {
    hint: "use a key of the tenant",
  });
}

/** Parameters, query and body of a request; each may be anything. */
export interface Asked {
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}

/** Returns the request with ids in place of names (C3). Throws NOT_FOUND (C2), and FORBIDDEN where it names nothing. */
export async function confine(
  { operation }: Pick<Route, "operation">,
  { tenant_id, container_ids }: Caller,
  asked: Asked,
  owners: ContainerOf,
): Promise<Asked> {
  if (container_ids === undefined || REACH[operation] !== "named") return asked;
  let isNamed = false;
  const confined = { ...asked };
  for (const part of ["params", "query", "body"] as const) {
    const fields = asked[part];
    if (typeof fields !== "object" || fields === null) continue;
    if (part === "body") refuseUser({ container_ids }, (fields as { readonly user?: unknown }).user);
    for (const field of FIELDS) {
      const value = (fields as Readonly<Record<string, unknown>>)[field];
      if (typeof value !== "string") continue;
      isNamed = true;
      const { what, find } = NAMED[field];
      const id = await owners[find](tenant_id, value);
      if (id === null || !container_ids.has(id)) throw new AppError("NOT_FOUND", `${what} '${value}' not found`);
      if (field === "container_id") confined[part] = { ...(confined[part] as object), container_id: id };
    }
  }
  if (!isNamed) throw new AppError("FORBIDDEN", "the key reaches only its containers, and the request names none");
  return confined;
}

/**
 * The query with the id in place of the name of a container. Paths and bodies may have names too, which the concerns resolve; a
 * filter compares ids. What names no container stays: its filter finds what is left of a deleted one.
 */
export function withContainerId(query: unknown, caller: Caller | null, owners: ContainerOf | undefined): unknown {
  const { container_id } = (query ?? {}) as { readonly container_id?: unknown };
  if (caller === null || owners === undefined || typeof container_id !== "string") return query;
  return owners
    .container(caller.tenant_id, container_id)
    .then((id) => (id === null ? query : { ...(query as object), container_id: id }));
}
