/** `hearth pool`: the instances of a function, or of all, by state; once, or live with what happens in a second. */
import { counted } from "../../base/plurals.ts";
import type { ResponseOf } from "../../client/client.ts";
import type { Format } from "../output/terminal.ts";
import { json, pad, visible } from "../output/text.ts";
import { eachPoll } from "../session/poll.ts";
import type { Flags, FunctionRecord, Session, Words } from "../session/session.ts";

type FunctionPool = ResponseOf<"GET /api/functions/:function_id/pool">;
type PoolStats = ResponseOf<"GET /api/functions/pool/stats">;

const STATES = ["warming", "ready", "busy", "recycling", "terminating"] as const;
const FORMATS: Readonly<Record<(typeof STATES)[number], Format>> = {
  warming: "yellow",
  ready: "green",
  busy: "cyan",
  recycling: "blue",
  terminating: "red",
};
const BAR_WIDTH_MAX = 60;

/** One look: what is, and what only ever grows, whose differences are rates. */
interface Look {
  readonly at_ms: number;
  readonly answer: FunctionPool | PoolStats;
  readonly title: string;
  readonly levels: readonly (readonly [string, number])[];
  readonly counters: readonly (readonly [string, number])[];
  readonly error: string | null;
}

function ofFunction(at_ms: number, answer: FunctionPool, record: FunctionRecord): Look {
  return {
    at_ms,
    answer,
    title: `${record.name}, version ${record.current_version}, ${record.state}, up to ${counted(record.max_instances, "instance")}`,
    levels: [
      ["calls running", answer.calls_running],
      ["queued", answer.queued_count],
      ["kept for a rollback", answer.superseded_count],
    ],
    counters: [
      ["calls", record.invocation_count],
      ["failed", record.error_count],
    ],
    error: answer.last_error,
  };
}

/** Without the counts of the node, which the operator alone is told. */
const given = (counts: readonly (readonly [string, number | undefined])[]) =>
  counts.flatMap(([name, count]) => (count === undefined ? [] : [[name, count] as const]));

/** The runtime of a class, whose key ends with a digest. */
const runtimeOf = (key: string) => key.replace(/-[0-9a-f]+$/, "");

function ofAll(at_ms: number, answer: PoolStats): Look {
  return {
    at_ms,
    answer,
    title: "all functions",
    levels: given([
      ["calls running", answer.calls_running],
      ["queued", answer.queued],
      ["cells", answer.cells],
      ["cells starting", answer.cells_starting],
      ...(answer.classes ?? []).map(({ class: key, cells }) => [`cells of ${runtimeOf(key)}`, cells] as const),
    ]),
    counters: given([
      ["started", answer.started_count],
      ["failed to start", answer.start_failed_count],
      ["crashed", answer.crashed_count],
      ["evicted", answer.evicted_count],
      ["expired", answer.expired_count],
      ["cold, cell ready", answer.cell_hit_count],
      ["cold, no cell", answer.cell_miss_count],
    ]),
    error: null,
  };
}

/** Per second since the look before; null for the first look. */
function rate(look: Look, before: Look | null, counter: number): number | null {
  if (before === null || look.at_ms <= before.at_ms) return null;
  const grown = (look.counters[counter]?.[1] ?? 0) - (before.counters[counter]?.[1] ?? 0);
  // A daemon that was started again counts from zero.
  return Math.max(0, grown) / ((look.at_ms - before.at_ms) / 1000);
}

const perSecond = (value: number | null) => (value === null ? "" : `${value.toFixed(value < 10 ? 1 : 0)}/s`);

/** The look as lines: a bar of the states, a line for each number. */
function linesOf(session: Session, look: Look, before: Look | null): string[] {
  const { paint, width } = session.terminal;
  const counts = STATES.map((state) => [state, look.answer[`${state}_count`]] as const);
  const total = look.answer.total_count;
  const bar_width = Math.min(BAR_WIDTH_MAX, (width ?? 80) - 4, Math.max(total, 1));
  const bar = counts
    .filter(([, count]) => count > 0)
    .map(([state, count]) => paint(FORMATS[state], "█".repeat(Math.ceil((count / Math.max(total, 1)) * bar_width))))
    .join("");
  const row = (name: string, count: number, more = "") =>
    `  ${pad(name, 20)}${pad(String(count), 8, "right")}${more === "" ? "" : `  ${pad(more, 9, "right")}`}`;
  return [
    paint("bold", visible(look.title)),
    total === 0 ? paint("dim", "  no instances") : `  ${bar}`,
    ...counts.map(([state, count]) => (count > 0 ? paint(FORMATS[state], row(state, count)) : row(state, count))),
    ...look.levels.map(([name, count]) => row(name, count)),
    ...look.counters.map(([name, count], i) => row(name, count, perSecond(rate(look, before, i)))),
    ...(look.error === null ? [] : [paint("red", `  ${visible(look.error)}`)]),
  ];
}

/** The look as one line, for a log. */
function lineOf(look: Look, before: Look | null): string {
  const states = STATES.map((state) => `${state}=${look.answer[`${state}_count`]}`);
  const word = (name: string) => name.replaceAll(" ", "_");
  const levels = look.levels.map(([name, count]) => `${word(name)}=${count}`);
  const counters = look.counters.map(([name, count], i) => {
    const grown = perSecond(rate(look, before, i));
    return `${word(name)}=${count}${grown === "" ? "" : `(${grown})`}`;
  });
  return [...states, ...levels, ...counters].join(" ");
}

export async function pool(session: Session, [name]: Words, flags: Flags): Promise<void> {
  const params = name === undefined ? null : { function_id: await session.functionId(name) };
  const client = session.client();
  const look = async (): Promise<Look> => {
    if (params === null) return ofAll(at(), await client.request("GET /api/functions/pool/stats"));
    const [answer, record] = await Promise.all([
      client.request("GET /api/functions/:function_id/pool", { params }),
      client.request("GET /api/functions/:function_id", { params }),
    ]);
    return ofFunction(at(), answer, record);
  };
  const at = () => session.clock.monotonicMs();
  const { terminal } = session;
  if (flags.watch !== true) {
    const now = await look();
    return session.show(now.answer, () => `${linesOf(session, now, null).join("\n")}\n`);
  }
  const view = terminal.isLive && session.flags.json !== true ? terminal.live() : null;
  let before: Look | null = null;
  await eachPoll(session, async () => {
    const now = await look();
    if (view !== null) view.draw([...linesOf(session, now, before), terminal.paint("dim", "Ctrl-C ends")]);
    else terminal.out(`${session.flags.json === true ? json(now.answer, 0) : lineOf(now, before)}\n`);
    before = now;
  });
}
