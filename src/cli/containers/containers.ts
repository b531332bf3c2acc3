/** The verbs of a container's life: listed, looked at, started, ended, renamed. */
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { ResponseOf } from "../../client/client.ts";
import { done, operationOf, succeeded } from "../daemon/operations.ts";
import { each } from "../each.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import type { Format } from "../output/terminal.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes, relative, span } from "../output/time.ts";
import { EXIT, Failure } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import { type ContainerRecord, type Flags, isRefusal, type Session, type Words } from "../session/session.ts";
import { endOf, reportError } from "./container-log.ts";
import { filterOf } from "./filters.ts";

const STATE_FORMATS: Readonly<Record<ContainerRecord["state"], Format>> = {
  created: "dim",
  starting: "yellow",
  running: "green",
  exited: "dim",
  error: "red",
};

const seconds = (iso: string | null) => (iso === null ? null : Math.floor(Date.parse(iso) / 1000));

/** `up 3 min`, `exited with 1, 2 h ago`, `cannot be started: …`. */
export function statusOf(record: ContainerRecord, now: number): string {
  const { state, started_at, exited_at, exit_code, oom_killed, error_message, restart_count, health } = record;
  if (state === "running") {
    const status = health?.status ?? null;
    const up = `up ${span(now - (seconds(started_at) ?? now))}${status === null ? "" : ` (${status})`}`;
    return restart_count === 0 ? up : `${up}, restarted ${counted(restart_count, "time")}`;
  }
  if (state === "error") return `failed to start: ${error_message ?? "unknown"}`;
  if (state !== "exited") return state;
  const at = seconds(exited_at);
  const when = at === null ? "" : now - at < 1 ? " just now" : `, ${relative(at, now)}`;
  const why = oom_killed ? " (out of memory)" : (error_message ?? "").startsWith("unhealthy:") ? " (unhealthy)" : "";
  if (exit_code === null) return `exited (${error_message ?? "exit code unknown"})${when}`;
  return `exited with ${exit_code}${why}${when}`;
}

/** `web exited with 0 just now`: of a container after `stop` or `kill`. */
const endSentence = (record: ContainerRecord, now: number) => `${visible(record.name)} ${statusOf(record, now)}\n`;

const portText = ({ host_address, host_port, container_port, protocol }: ContainerRecord["ports"][number]) =>
  `${host_address}:${host_port}->${container_port}/${protocol}`;

export function sentence(session: Session, record: ContainerRecord): string {
  const { name, state, ip_address, ports, container_id } = record;
  const painted = session.terminal.paint(STATE_FORMATS[state], state);
  const where = [...(ip_address === null ? [] : [ip_address]), ...ports.map(portText)];
  return `${visible(name)} is ${painted}${where.length === 0 ? "" : `, ${where.join(", ")}`} (${container_id})\n`;
}

export async function ps(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const state = flags.state as ContainerRecord["state"] | undefined;
  const filter = filterOf((flags.filter ?? []) as string[]);
  const client = session.client();
  const answer = await readList("containers", limit, (page) =>
    client.request("GET /api/containers", { query: { ...page, state } }),
  );
  const isAll = flags.all === true || state !== undefined || filter.hasStatus;
  // What starts is as good as running to who looks for it.
  const shown = answer.containers.filter(
    (record) => (isAll || /^(running|starting)$/.test(record.state)) && filter.matches(record),
  );
  const columns: Column<ContainerRecord>[] = [
    { title: "NAME", value: ({ name }) => name },
    { title: "STATE", value: ({ state }) => state, format: ({ state }) => STATE_FORMATS[state] },
    { title: "STATUS", value: (record) => statusOf(record, session.now), isLong: true },
    { title: "ADDRESS", value: ({ ip_address }) => ip_address },
    {
      title: "PORTS",
      value: ({ ports }) => (ports.length === 0 ? null : ports.map(portText).join(" ")),
      isSpare: true,
    },
    {
      title: "MEMORY",
      value: ({ memory_limit_mb }) => bytes(memory_limit_mb * 1024 ** 2),
      side: "right",
      isSpare: true,
    },
    { title: "RESTART", value: ({ restart }) => restart, isSpare: true },
    { title: "ID", value: ({ container_id }) => container_id, format: () => "dim", isSpare: true },
  ];
  if (flags.quiet === true && session.flags.json !== true) {
    return session.terminal.out(shown.map(({ container_id }) => `${container_id}\n`).join(""));
  }
  const none = isAll ? "no containers: hearth run -d --name box" : "no running containers; hearth ps -a lists all";
  const empty =
    answer.containers.length > 0 && isAll ? "no container matches the filter; hearth ps -a lists all" : none;
  session.show({ ...answer, containers: shown }, () => session.table(columns, shown, empty));
  session.noteCut(answer.containers.length, limit, answer);
}

export async function inspect(session: Session, [name = ""]: Words): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const record = await session.client().request("GET /api/containers/:container_id", { params });
  session.show(record, () => session.list(entriesOf(record, session.now)));
}

async function eachContainer(
  session: Session,
  names: Words,
  doing: string,
  act: (id: string) => Promise<[unknown, string]>,
) {
  await each(session, names, async (name) => {
    const id = await session.containerId(name);
    const [answer, text] = await session.terminal.progress(`${doing} ${visible(name)}`, act(id));
    session.show(answer, () => text);
  });
}

export async function start(session: Session, names: Words): Promise<void> {
  const client = session.client();
  await each(session, names, async (name) => {
    const params = { container_id: await session.containerId(name) };
    const operation_id = operationOf(await client.request("POST /api/containers/:container_id/start", { params }));
    if (operation_id !== null) await succeeded(session, operation_id, `starting ${name}`);
    const record = await client.request("GET /api/containers/:container_id", { params });
    session.show(record, () => sentence(session, record));
    if (record.state !== "exited" || record.error_message === null) return;
    reportError(session.terminal, record);
    process.exitCode = record.exit_code ?? EXIT.refused;
  });
}

/** A stop is answered when the container has ended. */
const STOP_TIMEOUT_MS = LIMITS.stop_grace_ms_max + LIMITS.cli_request_timeout_ms;

function stopBody(flags: Flags): { readonly timeout_ms?: number } {
  const time_s = flags.time as number | undefined;
  return time_s === undefined ? {} : { timeout_ms: time_s * 1_000 };
}

export async function stop(session: Session, names: Words, flags: Flags): Promise<void> {
  const body = stopBody(flags);
  const client = session.client(STOP_TIMEOUT_MS);
  await eachContainer(session, names, "stopping", async (container_id) => {
    const params = { container_id };
    const record = done(await client.request("POST /api/containers/:container_id/stop", { params, body }));
    return [record, endSentence(record, session.now)];
  });
}

/** Stops what runs, and starts it again. */
export async function restart(session: Session, names: Words, flags: Flags): Promise<void> {
  const client = session.client(STOP_TIMEOUT_MS);
  await each(session, names, async (name) => {
    const params = { container_id: await session.containerId(name) };
    const stopping = client
      .request("POST /api/containers/:container_id/stop", { params, body: stopBody(flags) })
      .then(done)
      .catch((error: unknown) => {
        if (!isRefusal(error, "NOT_RUNNING")) throw error;
      });
    await session.terminal.progress(`stopping ${visible(name)}`, stopping);
    await start(session, [params.container_id]);
  });
}

/** Prints the exit code of each, one after the other, when it has ended. */
export async function wait(session: Session, names: Words): Promise<void> {
  await each(session, names, async (name) => {
    const record = await endOf(session, await session.containerId(name), () => true);
    if (record === null) throw new Failure(EXIT.refused, `${visible(name)} was deleted`);
    const { exit_code, error_message } = record;
    if (exit_code === null) {
      throw new Failure(EXIT.refused, `${visible(name)} has no exit code: ${visible(error_message ?? "it never ran")}`);
    }
    session.show(record, () => `${exit_code}\n`);
  });
}

/** `80/tcp -> 127.0.0.1:20080`, a line for each published port. */
export async function ports(session: Session, [name = ""]: Words): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const { ports } = await session.client().request("GET /api/containers/:container_id", { params });
  session.show({ ports }, () =>
    ports.map((one) => `${one.container_port}/${one.protocol} -> ${one.host_address}:${one.host_port}\n`).join(""),
  );
  if (ports.length === 0) session.terminal.note(`${visible(name)} publishes no port: hearth run -p <port>`);
}

export async function kill(session: Session, names: Words, { signal }: Flags): Promise<void> {
  const query = { signal: signal as string | undefined };
  if (signal !== undefined) {
    session.advice = {
      INVALID_ARGUMENT: "to send the stop signal: hearth stop; another one: hearth exec box -- kill -HUP <pid>",
    };
  }
  await eachContainer(session, names, "killing", async (container_id) => {
    const params = { container_id };
    const record = await session.client().request("POST /api/containers/:container_id/kill", { params, query });
    return [record, endSentence(record, session.now)];
  });
}

export async function remove(session: Session, names: Words, flags: Flags): Promise<void> {
  const client = session.client();
  await eachContainer(session, names, "removing", async (container_id) => {
    const params = { container_id };
    const { name, state } = await client.request("GET /api/containers/:container_id", { params });
    if (flags.force !== true && (state === "running" || state === "starting")) {
      const hint = `stop it first, or: hearth rm -f ${shellWord(name)}`;
      throw new Failure(EXIT.refused, `${visible(name)} is ${state}`, hint);
    }
    const answer = await client.request("DELETE /api/containers/:container_id", { params });
    return [answer, `${visible(name)} is removed\n`];
  });
}

export async function rename(session: Session, [name = "", new_name = ""]: Words): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const request = { params, body: { new_name } };
  const answer = await session.client().request("POST /api/containers/:container_id/rename", request);
  session.show(answer, () => `${visible(answer.old_name)} is now ${visible(answer.new_name)}\n`);
}

type Process = ResponseOf<"GET /api/containers/:container_id/processes">["processes"][number];

export async function top(session: Session, [name = ""]: Words): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const answer = await session.client().request("GET /api/containers/:container_id/processes", { params });
  const columns: Column<Process>[] = [
    { title: "PID", value: ({ pid }) => pid, side: "right" },
    { title: "PPID", value: ({ ppid }) => ppid, side: "right" },
    { title: "STATE", value: ({ state }) => state },
    { title: "MEMORY", value: ({ memory_kb }) => bytes(memory_kb * 1024), side: "right" },
    { title: "STARTED", value: ({ started_at }) => relative(seconds(started_at), session.now) },
    { title: "COMMAND", value: ({ command }) => command, isLong: true },
  ];
  session.show(answer, () => session.table(columns, answer.processes, "no processes"));
}
