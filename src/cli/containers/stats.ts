/** `hearth stats`: what running containers use, once or live. Processor time is a rate, so it takes two readings. */
import { ApiError, type ResponseOf } from "../../client/client.ts";
import { type Column, table } from "../output/table.ts";
import { json } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { EXIT } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import { pauseBetween } from "../session/poll.ts";
import type { ContainerRecord, Flags, Session, Words } from "../session/session.ts";

type Metrics = ResponseOf<"GET /api/containers/:container_id/metrics">;

interface Reading {
  readonly name: string;
  readonly at_ms: number;
  readonly metrics: Metrics;
  /** Percent of one core since the reading before; null for the first. */
  readonly cpu_percent: number | null;
}

/** Percent of one core; a container that was started again in between counts from zero. */
export function cpuPercent(used_usec: number, length_ms: number): number | null {
  return length_ms <= 0 ? null : (Math.max(0, used_usec) / 1_000 / length_ms) * 100;
}

async function read(session: Session, ids: readonly string[], before: readonly Reading[]): Promise<Reading[]> {
  const client = session.client();
  const { containers } = await readList("containers", undefined, (page) =>
    client.request("GET /api/containers", { query: { ...page, state: "running" } }),
  );
  const wanted = containers.filter(({ container_id }) => ids.length === 0 || ids.includes(container_id));
  const all = await Promise.all(
    wanted.map(async ({ container_id, name }: ContainerRecord): Promise<Reading | null> => {
      try {
        const metrics = await client.request("GET /api/containers/:container_id/metrics", { params: { container_id } });
        const at_ms = session.clock.monotonicMs();
        const last = before.find(({ metrics }) => metrics.container_id === container_id);
        const used = metrics.cpu_usage_usec - (last?.metrics.cpu_usage_usec ?? 0);
        return { name, at_ms, metrics, cpu_percent: last === undefined ? null : cpuPercent(used, at_ms - last.at_ms) };
      } catch (error) {
        // It has ended since it was listed.
        if (error instanceof ApiError) return null;
        throw error;
      }
    }),
  );
  return all.filter((reading) => reading !== null);
}

const both = (one: number, other: number) => `${bytes(one)} / ${bytes(other)}`;

const COLUMNS: readonly Column<Reading>[] = [
  { title: "NAME", value: ({ name }) => name },
  {
    title: "CPU",
    value: ({ cpu_percent }) => (cpu_percent === null ? null : `${cpu_percent.toFixed(1)} %`),
    side: "right",
  },
  {
    title: "MEMORY",
    value: ({ metrics }) => both(metrics.memory_current_bytes, metrics.memory_limit_bytes),
    side: "right",
    format: ({ metrics }) => (metrics.memory_current_bytes > 0.9 * metrics.memory_limit_bytes ? "red" : null),
  },
  { title: "PROCESSES", value: ({ metrics }) => metrics.processes_count, side: "right" },
  {
    title: "NET IN / OUT",
    value: ({ metrics }) => both(metrics.network_rx_bytes, metrics.network_tx_bytes),
    side: "right",
    isSpare: true,
  },
  {
    title: "DISK READ / WRITTEN",
    value: ({ metrics }) => both(metrics.disk_read_bytes, metrics.disk_write_bytes),
    side: "right",
    isSpare: true,
  },
];

export async function stats(session: Session, names: Words, flags: Flags): Promise<void> {
  const ids: string[] = [];
  for (const name of names) ids.push(await session.containerId(name ?? ""));
  const { terminal } = session;
  const isJson = session.flags.json === true;
  const answerOf = (readings: readonly Reading[]) => ({
    stats: readings.map(({ name, cpu_percent, metrics }) => ({ name, cpu_percent, ...metrics })),
  });
  let readings = await read(session, ids, []);
  if (flags.stream === false) {
    await terminal.progress("measuring for one second", pauseBetween());
    readings = await read(session, ids, readings);
    return session.show(answerOf(readings), () => session.table(COLUMNS, readings, "no running containers"));
  }
  session.interrupt_exit_code = EXIT.success;
  const view = terminal.isLive && !isJson ? terminal.live() : null;
  for (;;) {
    const { width, paint } = terminal;
    const shown = () => table(COLUMNS, readings, { width, paint });
    if (view !== null) view.draw([...shown().trimEnd().split("\n"), paint("dim", "Ctrl-C ends")]);
    else terminal.out(isJson ? `${json(answerOf(readings), 0)}\n` : shown());
    await pauseBetween();
    readings = await read(session, ids, readings);
  }
}
