/** Work that was accepted: looked at, waited for, cancelled. */
import { LIMITS } from "../../base/limits.ts";
import type { ResponseOf } from "../../client/client.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import type { Format } from "../output/terminal.ts";
import { visible } from "../output/text.ts";
import { relative } from "../output/time.ts";
import { EXIT, Failure } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Operation = ResponseOf<"GET /api/operations/:operation_id">;
type Summary = ResponseOf<"GET /api/operations">["operations"][number];

/** Unless told: a week's operations are thousands. */
const OPERATIONS_SHOWN = 100;

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
  const limit = (flags.limit as number | undefined) ?? OPERATIONS_SHOWN;
  const filter = {
    status: flags.status as Operation["status"] | undefined,
    operation_type: flags.type as string | undefined,
    target_resource_id: flags.target as string | undefined,
  };
  const client = session.client();
  const answer = await readList("operations", limit, (page) =>
    client.request("GET /api/operations", { query: { ...filter, ...page } }),
  );
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
  session.noteCut(answer.operations.length, limit, answer);
}

export async function getOperation(session: Session, [operation_id = ""]: Words): Promise<void> {
  const found = await session.client().request("GET /api/operations/:operation_id", { params: { operation_id } });
  session.show(found, () => session.list(entriesOf(found, session.now)));
}

interface Handle {
  readonly operation_id: string;
}

const isHandle = (answer: object): answer is Handle => "operation_id" in answer;

/** What a route answers when it has done what it was asked for, where it could have answered an operation. */
export function done<Answer extends object>(answer: Answer): Exclude<Answer, Handle> {
  if (isHandle(answer)) throw new Failure(EXIT.refused, `continues as operation ${answer.operation_id}`);
  return answer as Exclude<Answer, Handle>;
}

/** Returns the id of the operation that a route answers, where it could have answered a result. */
export function accepted(answer: object): string {
  if (!isHandle(answer)) throw new Failure(EXIT.refused, "the daemon answered no operation");
  return answer.operation_id;
}

/** The operation that a route has answered, null where it has done at once what it was asked for. */
export function operationOf(answer: object): string | null {
  return isHandle(answer) ? answer.operation_id : null;
}

/** The end of an operation, however long that takes: each look waits for a while. */
export async function ended(
  session: Session,
  operation_id: string,
  doing = `waiting for ${operation_id}`,
): Promise<Operation> {
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
  return session.terminal.progress(visible(doing), wait());
}

/**
 * Waits for the end of an operation and throws unless it succeeded. The failure has the first line of the operation's error; further
 * lines are output that the log has shown.
 */
export async function succeeded(session: Session, operation_id: string, doing: string): Promise<Operation> {
  const found = await ended(session, operation_id, doing);
  if (found.status === "succeeded") return found;
  const code = found.reason_code === null ? "" : ` [${found.reason_code}]`;
  const [why] = (found.error ?? found.message ?? `the operation did not succeed: ${found.status}`).split("\n", 1);
  const hint = session.advice[found.reason_code ?? ""] ?? `operation ${operation_id}`;
  throw new Failure(EXIT.refused, `${why}${code}`, hint);
}

export async function waitForOperation(session: Session, [operation_id = ""]: Words): Promise<void> {
  const found = await ended(session, operation_id);
  session.show(found, () => sentence(session, found));
  if (found.status !== "succeeded") throw new Failure(EXIT.refused, `the operation did not succeed: ${found.status}`);
}

export async function cancelOperation(session: Session, [operation_id = ""]: Words): Promise<void> {
  const params = { operation_id };
  const found = await session.terminal.progress(
    `cancelling ${visible(operation_id)}`,
    session.client().request("POST /api/operations/:operation_id/cancel", { params }),
  );
  session.show(found, () => sentence(session, found));
}
