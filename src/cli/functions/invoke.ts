/**
 * `hearth invoke`: prints the returned value as JSON, or else the handler's output byte for byte. The exit code is the outcome
 * of the call.
 */
import { LIMITS } from "../../base/limits.ts";
import type { RequestOf } from "../../client/client.ts";
import type { Format, Paint } from "../output/terminal.ts";
import { json, pad, shellWord, visible } from "../output/text.ts";
import { milliseconds } from "../output/time.ts";
import { EXIT, usage } from "../session/failure.ts";
import { readInput } from "../session/input.ts";
import type { Flags, InvocationRecord, Session, Words } from "../session/session.ts";
import { environmentOf } from "./function-fields.ts";

const BAR_WIDTH = 40;

export const STATUS_FORMATS: Readonly<Record<InvocationRecord["status"], Format>> = {
  success: "green",
  failed: "red",
  timeout: "yellow",
  cancelled: "yellow",
};

type InvokeBody = NonNullable<RequestOf<"POST /api/functions/invoke/:name">["body"]>;

const WITHOUT_BODY: ReadonlySet<string> = new Set(["GET", "HEAD"]);

// The daemon says which methods there are.
const methodOf = (flags: Flags) => (flags.method as string | undefined)?.toUpperCase() as InvokeBody["method"];

function headersOf(flags: Flags): Record<string, string> | undefined {
  const given = flags.header as string[] | undefined;
  if (given === undefined) return undefined;
  const headers = new Map<string, string>();
  for (const line of given) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).trim();
    if (colon < 1 || name === "") throw usage("--header is no 'NAME: VALUE'", "write --header 'Accept: text/plain'");
    if (headers.has(name)) throw usage(`--header ${visible(name)} is given twice`, "give it once");
    headers.set(name, line.slice(colon + 1).trim());
  }
  return Object.fromEntries(headers);
}

async function payloadOf(session: Session, word: string | undefined, flags: Flags): Promise<string> {
  const file = flags.file as string | undefined;
  if (file !== undefined && word !== undefined)
    throw usage("a payload argument and --file exclude each other", "give one of them");
  if (word !== undefined && word !== "-") return word;
  // Its request has no body.
  if (file === undefined && word === undefined && WITHOUT_BODY.has(methodOf(flags) ?? "")) return "";
  if (file === undefined && word === undefined && process.stdin.isTTY) return "";
  return session.terminal.progress("reading the payload from standard input", readInput(file ?? "-"));
}

export async function invoke(session: Session, [name = "", word]: Words, flags: Flags): Promise<void> {
  const body = {
    payload: await payloadOf(session, word, flags),
    environment: await environmentOf(flags),
    timeout_seconds: flags.timeoutSeconds as number | undefined,
    path: flags.path as string | undefined,
    method: methodOf(flags),
    headers: headersOf(flags),
  };
  const client = session.client(LIMITS.cli_call_timeout_ms);
  if (!session.isFunctionId(name)) session.sought = { word: name, names: () => session.functionNames() };
  session.advice = { WRONG_STATE: `to deploy it: hearth deploy ${shellWord(name)}` };
  const record = await session.terminal.progress(
    `calling ${visible(name)}`,
    session.isFunctionId(name)
      ? client.request("POST /api/functions/:function_id/invoke", { params: { function_id: name }, body })
      : client.request("POST /api/functions/invoke/:name", { params: { name }, body }),
  );
  const { terminal } = session;
  // A returned value is the answer; the output beside it is for people.
  const hasResult = (record.result ?? null) !== null;
  session.show(record, () => (hasResult ? `${json(record.result)}\n` : record.stdout));
  if (session.flags.json !== true) {
    if (hasResult) terminal.err(record.stdout);
    terminal.err(record.stderr);
    for (const line of remarks(record)) terminal.err(`hearth: ${line}\n`);
    if (flags.verbose === true) terminal.err(timeline(record, terminal.paintError));
  }
  if (record.status !== "success") process.exitCode = (flags.exitCode === true && record.exit_code) || EXIT.refused;
}

/** What its output alone does not tell. */
function remarks(record: InvocationRecord): string[] {
  const failed = record.error_message === null ? [] : [`${record.status}: ${visible(record.error_message)}`];
  if (record.stdout_truncated) failed.push("standard output was truncated: too long to keep");
  if (record.stderr_truncated) failed.push("standard error was truncated: too long to keep");
  return failed;
}

interface Phase {
  readonly name: string;
  readonly begin_ms: number;
  readonly length_ms: number;
}

/** The phases in their order. What the start of an instance took lies at the end of the wait for it. */
export function phasesOf({ timings }: Pick<InvocationRecord, "timings">): Phase[] {
  const { queue, network, rootfs, start, open, cell, load, handler, total } = timings;
  const started = [
    { name: "network", length_ms: network },
    { name: "rootfs", length_ms: rootfs },
    { name: "start", length_ms: start },
    { name: "open", length_ms: open },
  ];
  const start_ms = started.reduce((sum, { length_ms }) => sum + (length_ms ?? 0), 0);
  const phases: Phase[] = [{ name: "queue", begin_ms: 0, length_ms: queue }];
  let begin_ms = Math.max(0, queue - start_ms);
  const bound = [
    { name: "cell", length_ms: cell },
    { name: "load", length_ms: load },
  ];
  for (const { name, length_ms } of [...started, ...bound]) {
    // Binding begins when the wait is over, whatever the start was measured to take.
    if (name === "cell") begin_ms = queue;
    if (length_ms === undefined) continue;
    phases.push({ name, begin_ms, length_ms });
    begin_ms += length_ms;
  }
  phases.push({
    name: "handler",
    begin_ms: Math.max(queue + (cell ?? 0) + (load ?? 0), total - handler),
    length_ms: handler,
  });
  return phases;
}

/** How the call went: a line, and a line for each phase with a bar where it lay. */
export function timeline(record: InvocationRecord, paint: Paint): string {
  const { total } = record.timings;
  const column = (ms: number) => Math.round((Math.min(ms, total) / Math.max(total, Number.MIN_VALUE)) * BAR_WIDTH);
  const head = [
    paint(STATUS_FORMATS[record.status], record.status),
    record.cold_start ? paint("cyan", "cold") : "warm",
    milliseconds(total),
    `version ${record.version}`,
    record.invocation_id,
  ].join(" · ");
  const lines = phasesOf(record).map(({ name, begin_ms, length_ms }) => {
    const begin = Math.min(column(begin_ms), BAR_WIDTH - 1);
    const end = Math.max(begin + 1, column(begin_ms + length_ms));
    const bar = `${" ".repeat(begin)}${(length_ms > 0 ? "█" : "·").repeat(Math.min(end, BAR_WIDTH) - begin)}`;
    return `  ${pad(name, 8)}${pad(milliseconds(length_ms), 9, "right")}  ${paint("cyan", bar)}`;
  });
  return `${[head, ...lines].join("\n")}\n`;
}
