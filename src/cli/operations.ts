/** Work that was accepted: looked at, waited for, cancelled. */
import { LIMITS } from "../base/limits.ts";
import type { ResponseOf } from "../client/client.ts";
import { EXIT, Failure } from "./failure.ts";
import { entriesOf } from "./functions.ts";
import type { Flags, Session, Words } from "./session.ts";
import type { Column } from "./table.ts";
import type { Format } from "./terminal.ts";
import { visible } from "./text.ts";
import { relative } from "./time.ts";

type Operation = ResponseOf<"GET /api/operations/:operation_id">;
type Summary = ResponseOf<"GET /api/operations">["operations"][number];

const OPEN: ReadonlySet<Operation["status"]> = new Set(["accepted", "queued", "running"]);

function statusFormat({ status }: Pick<Operation, "status">): Format {
  if (status === "succeeded") return "green";
  return OPEN.has(status) ? "dim" : "red";
}

function sentence(session: Session, operation: Operation): string {
  const { operation_id, operation_type, status, progress_pct, message } = operation;
  const part = progress_pct === null || !OPEN.has(status) ? "" : `, ${Math.round(progress_pct)} %`;
  const text = message === null ? "" : `: ${visible(message)}`;
  const state = session.terminal.paint(statusFormat(operation), status.replace("_", " "));
  return `${operation_type} ${operation_id} ${OPEN.has(status) ? "is" : "has"} ${state}${part}${text}\n`;
}

export async function listOperations(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = (flags.limit as number | undefined) ?? LIMITS.list_limit_default;
  const query = {
    limit,
    status: flags.status as Operation["status"] | undefined,
    operation_type: flags.type as string | undefined,
    target_resource_id: flags.target as string | undefined,
  };
  const answer = await session.client().request("GET /api/operations", { query });
  const columns: Column<Summary>[] = [
    { title: "ID", value: ({ operation_id }) => operation_id },
    { title: "TYPE", value: ({ operation_type }) => operation_type },
    { title: "STATUS", value: ({ status }) => status, format: statusFormat },
    {
      title: "DONE",
      value: ({ progress_pct }) => (progress_pct === null ? null : `${Math.round(progress_pct)} %`),
      side: "right",
    },
    { title: "TARGET", value: ({ target_resource_id }) => target_resource_id, isSpare: true },
    { title: "ACCEPTED", value: ({ created_at }) => relative(created_at, session.now) },
    { title: "MESSAGE", value: ({ message }) => message, isLong: true },
  ];
  session.show(answer, () => session.table(columns, answer.operations, "no operations"));
  if (answer.operations.length > 0) session.noteCut(answer.operations.length, limit, undefined);
}

export async function getOperation(session: Session, [operation_id = ""]: Words): Promise<void> {
  const found = await session.client().request("GET /api/operations/:operation_id", { params: { operation_id } });
  session.show(found, () => session.list(entriesOf(found, session.now)));
}

/** The end of an operation, however long that takes: each look waits for a while. */
export async function ended(session: Session, operation_id: string): Promise<Operation> {
  const wait_seconds = LIMITS.operation_wait_seconds_max;
  const look = () =>
    session
      .client()
      .request("GET /api/operations/:operation_id", { params: { operation_id }, query: { wait_seconds } });
  const wait = async (): Promise<Operation> => {
    for (;;) {
      const found = await look();
      if (!OPEN.has(found.status)) return found;
    }
  };
  return session.terminal.progress(`waiting for ${visible(operation_id)}`, wait());
}

export async function waitForOperation(session: Session, [operation_id = ""]: Words): Promise<void> {
  const found = await ended(session, operation_id);
  session.show(found, () => sentence(session, found));
  if (found.status !== "succeeded") throw new Failure(EXIT.refused, `the operation has not succeeded: ${found.status}`);
}

export async function cancelOperation(session: Session, [operation_id = ""]: Words): Promise<void> {
  const params = { operation_id };
  const found = await session.terminal.progress(
    `cancelling ${visible(operation_id)}`,
    session.client().request("POST /api/operations/:operation_id/cancel", { params }),
  );
  session.show(found, () => sentence(session, found));
}
