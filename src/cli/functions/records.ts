/** What calls have left: the list of their records, one record, and their outputs in order of time. */
import { LIMITS } from "../../base/limits.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import { json, visible } from "../output/text.ts";
import { milliseconds, relative, stamp } from "../output/time.ts";
import { readList } from "../session/pages.ts";
import { eachPoll } from "../session/poll.ts";
import type { Flags, InvocationRecord, Session, Words } from "../session/session.ts";
import { STATUS_FORMATS, timeline } from "./invoke.ts";

const INVOCATIONS_SHOWN = 20;

export async function invocations(session: Session, [name = "", invocation_id]: Words, flags: Flags): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  if (invocation_id !== undefined) return record(session, { ...params, invocation_id });
  const limit = (flags.limit as number | undefined) ?? INVOCATIONS_SHOWN;
  const client = session.client();
  const answer = await readList("invocations", limit, (query) =>
    client.request("GET /api/functions/:function_id/invocations", { params, query }),
  );
  const columns: Column<InvocationRecord>[] = [
    { title: "ID", value: ({ invocation_id }) => invocation_id },
    { title: "WHEN", value: ({ started_at }) => relative(started_at, session.now) },
    { title: "STATUS", value: ({ status }) => status, format: ({ status }) => STATUS_FORMATS[status] },
    { title: "VERSION", value: ({ version }) => version, side: "right" },
    { title: "START", value: ({ cold_start }) => (cold_start ? "cold" : "warm") },
    { title: "TIME", value: ({ timings }) => milliseconds(timings.total), side: "right" },
    { title: "EXIT", value: ({ exit_code }) => exit_code, side: "right" },
    { title: "OUTPUT", value: ({ error_message, stdout }) => error_message ?? stdout.trimEnd(), isLong: true },
  ];
  session.show(answer, () => session.table(columns, answer.invocations, "no calls yet"));
  session.noteCut(answer.invocations.length, limit, answer);
}

async function record(session: Session, params: { function_id: string; invocation_id: string }): Promise<void> {
  const found = await session
    .client()
    .request("GET /api/functions/:function_id/invocations/:invocation_id", { params });
  session.show(found, () => {
    const { stdout: _stdout, stderr: _stderr, timings: _timings, ...rest } = found;
    const fields = session.list(entriesOf(rest, session.now));
    const output = outputLines(session, found).map((line) => `${line}\n`);
    return `${fields}\n${timeline(found, session.terminal.paint)}${output.join("")}`;
  });
}

/** A line of output beside others: on a terminal it can neither overwrite them nor look like them. */
function outputLine(session: Session, line: string): string {
  if (session.terminal.width === null) return line;
  return line.replace(/\r$/, "").split("\t").map(visible).join("\t");
}

/** Each line of output behind a mark of its stream, then the result. */
function outputLines(session: Session, { stdout, stderr, result }: InvocationRecord): string[] {
  const lines = (text: string, mark: string) =>
    text === ""
      ? []
      : text
          .replace(/\n$/, "")
          .split("\n")
          .map((line) => `  ${mark} ${outputLine(session, line)}`);
  const returned = (result ?? null) === null ? [] : [`  = ${json(result, 0)}`];
  return [...lines(stdout, "|"), ...lines(stderr, session.terminal.paint("red", "!")), ...returned];
}

/** A line with the facts of a record, and its output below it. */
function entry(session: Session, found: InvocationRecord): string {
  const { paint } = session.terminal;
  const head = [
    paint("dim", stamp(found.started_at)),
    found.invocation_id,
    paint(STATUS_FORMATS[found.status], found.status),
    `v${found.version}`,
    milliseconds(found.timings.total),
    ...(found.error_message === null ? [] : [visible(found.error_message)]),
  ].join("  ");
  return `${[head, ...outputLines(session, found)].join("\n")}\n`;
}

/** Prints a record as it comes: its entry, or with --json a line. */
export function print(session: Session, record: InvocationRecord): void {
  session.terminal.out(session.flags.json === true ? `${json(record, 0)}\n` : entry(session, record));
}

export async function logs(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const limit = ((flags.tail ?? flags.limit) as number | undefined) ?? INVOCATIONS_SHOWN;
  const params = { function_id: await session.functionId(name) };
  if (flags.follow === true) {
    const records = new NewRecords(session, params.function_id);
    return eachPoll(session, async () => {
      for (const one of await records.read(limit)) print(session, one);
    });
  }
  const client = session.client();
  const answer = await readList("invocations", limit, (query) =>
    client.request("GET /api/functions/:function_id/invocations", { params, query }),
  );
  session.show(answer, () =>
    answer.invocations
      .toReversed()
      .map((one) => entry(session, one))
      .join(""),
  );
  session.noteCut(answer.invocations.length, limit, answer);
}

const idOf = ({ invocation_id }: InvocationRecord) => invocation_id;

/** The records of a function that are new since the last request; each request is bounded. */
export class NewRecords {
  readonly #session: Session;
  readonly #params: { readonly function_id: string };
  #seen: ReadonlySet<string> | null = null;

  constructor(session: Session, function_id: string) {
    this.#session = session;
    this.#params = { function_id };
  }

  /** Resolves to the records since the last read, oldest first; at the first read to the newest `first_max`. */
  async read(first_max: number): Promise<InvocationRecord[]> {
    const client = this.#session.client();
    const { invocations } = await readList("invocations", LIMITS.cli_follow_records_max, (query) =>
      client.request("GET /api/functions/:function_id/invocations", { params: this.#params, query }),
    );
    // Records stand in the order in which calls began, but appear when calls end: a new one may follow known ones.
    const known = this.#seen;
    const fresh = known === null ? invocations.slice(0, first_max) : invocations.filter((one) => !known.has(idOf(one)));
    if (known !== null && known.size > 0 && fresh.length === invocations.length) {
      this.#session.terminal.note("… some calls skipped: too many at once");
    }
    this.#seen = new Set(invocations.map(idOf));
    return fresh.toReversed();
  }
}
