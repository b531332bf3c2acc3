/**
 * `hearth deploy <function> --from-container <container>`: what was tried by hand in a container becomes a function. The
 * container is not touched; its snapshot goes when the version has its image, or after a day.
 */
import { LIMITS } from "../../base/limits.ts";
import type { Client } from "../../client/client.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { sentence } from "../functions/functions.ts";
import { visible } from "../output/text.ts";
import { usage } from "../session/failure.ts";
import { type Flags, type FunctionRecord, isRefusal, type Session } from "../session/session.ts";

const EXECUTION = { execution: "async" as const };

export async function deployFromContainer(session: Session, name: string, flags: Flags): Promise<void> {
  const container = String(flags.fromContainer);
  const handler = flags.handler as string | undefined;
  const container_id = await session.containerId(container);
  const client = await session.tenantClient(LIMITS.cli_call_timeout_ms);
  const { id: function_id, state } = await functionOf(session, client, name, handler);
  const snapshot_id = await snapshotOf(session, client, container_id, container);
  try {
    const smoke = flags.smoke as string | undefined;
    const body = {
      ...{ snapshot_id, note: flags.note as string | undefined, handler },
      ...(smoke === undefined ? {} : { smoke: { payload: smoke } }),
    };
    const asked = { params: { function_id }, query: EXECUTION, body };
    const operation_id = accepted(await client.request("POST /api/functions/:function_id/versions", asked));
    await succeeded(session, operation_id, `making a version of ${name}`);
  } finally {
    await client.request("DELETE /api/snapshots/:snapshot_id", { params: { snapshot_id } }).catch(() => {});
  }
  const params = { function_id };
  const deploying = () => client.request("POST /api/functions/:function_id/deploy", { params, body: {} });
  const record =
    state === "active"
      ? await client.request("GET /api/functions/:function_id", { params })
      : await session.terminal.progress(`deploying ${visible(name)}`, deploying());
  session.show(record, () => sentence(session, record));
}

/** The function, which is made if there is none. */
async function functionOf(
  session: Session,
  client: Client,
  name: string,
  handler: string | undefined,
): Promise<Pick<FunctionRecord, "id" | "state">> {
  try {
    const params = { function_id: await session.functionId(name) };
    return await client.request("GET /api/functions/:function_id", { params });
  } catch (error) {
    if (!isRefusal(error, "NOT_FOUND")) throw error;
    if (handler === undefined) {
      throw usage(
        `there is no function '${name}' yet: its handler is missing`,
        "give the command to run: --handler <line>",
      );
    }
    const made = await client.request("POST /api/functions", { body: { name, handler } });
    return { id: made.function_id, state: made.state };
  }
}

async function snapshotOf(session: Session, client: Client, container_id: string, name: string): Promise<string> {
  const asked = { params: { container_id }, query: EXECUTION, body: { ttl_seconds: LIMITS.cli_fork_seconds } };
  const answer = await client.request("POST /api/containers/:container_id/snapshot", asked);
  const operation = await succeeded(session, accepted(answer), `taking a snapshot of ${name}`);
  return operation.snapshot_id ?? "";
}
