/** The verbs of published services. A URL is printed where it was asked for, and never in a list: it has a token. */
import { LIMITS } from "../../base/limits.ts";
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import { shellWord, visible } from "../output/text.ts";
import { relative } from "../output/time.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import { pauseBetween } from "../session/poll.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Service = ResponseOf<"GET /api/services/:service_id">;

/** Publishes a port, and prints the URL alone on standard output. */
export async function publish(session: Session, [container = "", port = ""]: Words, flags: Flags): Promise<void> {
  const target_port = Number(port);
  if (!/^\d{1,5}$/.test(port)) throw usage(`not a port: '${visible(port)}'`);
  const name = (flags.name as string | undefined) ?? `port-${target_port}`;
  session.advice = {
    NAME_TAKEN: `give another --name, or print its URL: hearth services url ${shellWord(visible(name))}`,
  };
  const params = { container_id: await session.containerId(container) };
  const body = {
    name,
    target_port,
    ttl_seconds: flags.ttl as number | undefined,
    enable_websockets: flags.websockets === true,
    auth_mode: flags.public === true ? ("public" as const) : undefined,
    hostname: flags.hostname as string | undefined,
  };
  const made = await session.client().request("POST /api/containers/:container_id/services", { params, body });
  const service = flags.wait === true ? await ready(session, made) : made;
  session.show(service, () => `${service.public_url ?? ""}\n`);
  if (session.flags.json === true || service.status === "ready") return;
  session.terminal.note(`nothing listens on port ${target_port} yet: the status is ${service.status}`);
}

/** Waits until the port accepts connections, at most `cli_service_wait_seconds`. */
async function ready(session: Session, { service_id }: Service): Promise<Service> {
  const end = session.now + LIMITS.cli_service_wait_seconds;
  for (;;) {
    const service = await session.client().request("GET /api/services/:service_id", { params: { service_id } });
    if (service.status === "ready") return service;
    if (service.status === "expired" || service.status === "error") {
      throw new Failure(EXIT.refused, `service ${service_id} is ${service.status}`, service.status_message);
    }
    if (session.now >= end) {
      const late = `service ${service_id} is ${service.status} after ${LIMITS.cli_service_wait_seconds} s`;
      throw new Failure(EXIT.refused, late, "start a process that listens on the port, on all addresses");
    }
    await pauseBetween();
  }
}

export async function listServices(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const answer = await readList("services", limit, (query) => client.request("GET /api/services", { query }));
  // Records have ids; people know names. A key of some containers lists those alone.
  const { containers } = await readList("containers", undefined, (query) =>
    client.request("GET /api/containers", { query }),
  );
  const names = new Map(containers.map(({ container_id, name }) => [container_id, name]));
  const columns: Column<Service>[] = [
    { title: "NAME", value: ({ name }) => name, isLong: true },
    { title: "CONTAINER", value: ({ container_id }) => names.get(container_id) ?? container_id, isLong: true },
    { title: "PORT", value: ({ target_port }) => String(target_port), side: "right" },
    { title: "STATUS", value: ({ status }) => status },
    { title: "HOST", value: ({ public_url }) => (public_url === null ? null : new URL(public_url).host), isLong: true },
    { title: "EXPIRES", value: ({ expires_at }) => (expires_at === null ? null : relative(expires_at, session.now)) },
    { title: "ID", value: ({ service_id }) => service_id, format: () => "dim" },
  ];
  const none = "no services yet: hearth publish <container> <port>";
  session.show(answer, () => session.table(columns, answer.services, none));
  session.noteCut(answer.services.length, limit, answer);
}

/** Returns the id for an id, or for a name that only one service has. */
async function idOf(session: Session, service: string): Promise<string> {
  if (/^svc_[0-9a-z]{16}$/.test(service)) return service;
  const client = session.client();
  const { services } = await readList("services", undefined, (query) => client.request("GET /api/services", { query }));
  const found = services.filter(({ name }) => name === service);
  if (found.length > 1) {
    throw usage(`${found.length} services are named '${visible(service)}'`, "give an id: hearth services list");
  }
  return found[0]?.service_id ?? service;
}

export async function showUrl(session: Session, [service = ""]: Words): Promise<void> {
  const params = { service_id: await idOf(session, service) };
  const found = await session.client().request("GET /api/services/:service_id", { params });
  session.show(found, () => `${found.public_url ?? `${visible(found.name)} is ${found.status}`}\n`);
  if (found.auth_mode === "public" || found.public_url === null || new URL(found.public_url).search !== "") return;
  session.terminal.note("the URL lacks its token: the key has neither the scope invoke nor write");
}

export async function deleteService(session: Session, [service = ""]: Words): Promise<void> {
  const params = { service_id: await idOf(session, service) };
  const answer = await session.client().request("DELETE /api/services/:service_id", { params });
  session.show(answer, () => `${visible(shellWord(service))} is deleted\n`);
}

export async function rotateService(session: Session, [service = ""]: Words): Promise<void> {
  const params = { service_id: await idOf(session, service) };
  const rotated = await session.client().request("POST /api/services/:service_id/rotate", { params });
  session.show(rotated, () => `${rotated.public_url ?? ""}\n`);
}
