/**
 * Published services: requests through the URL of a service, against the same requests straight to the container, and through hono's
 * own proxy in front of it. One generator drives all three in alternating order, each in a fresh process; the container and its server
 * are the same.
 */
import { runLoad, SpawnServer } from "./baselines.ts";
import { LoadSamples, rateBar } from "./calls.ts";
import { until } from "./clock.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { requestBytes } from "./http.ts";
import { type Bar, countBar, distribution, evidence, type Section, timeComparison } from "./report.ts";

const SIDES = ["service", "direct", "hono proxy"] as const;
const CLIENTS = [1, 16] as const;
const MANY = CLIENTS[1];
const BACKEND_PORT = 8_080;
const BODY_BYTES = 1_024;
const ADDED_BAR_MS = 1;
const RATE_BAR = 0.5;
const READY_TIMEOUT_MS = 20_000;
const SERVER = `const body = Buffer.alloc(${BODY_BYTES}, "x");
require("node:http").createServer((request, response) => {
  request.resume().on("end", () => response.writeHead(200, { "content-length": body.length }).end(body));
}).listen(${BACKEND_PORT}, "0.0.0.0");`;

export interface ServicesPlan {
  readonly rounds_count: number;
  readonly warmup_ms: number;
  /** Length of each measured phase. */
  readonly length_ms: number;
}

type Side = (typeof SIDES)[number];
type Subjects = ReadonlyMap<Side, ReadonlyMap<number, LoadSamples>>;

interface Address {
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

interface Published {
  readonly service_id: string;
  readonly status: string;
  readonly public_url: string;
}

/** Starts the server in a container and publishes it. Resolves to both addresses. */
async function publish(daemon: Daemon): Promise<{ service: Address; direct: Address }> {
  const body = { name: "site", image: "prod", command: ["node", "-e", SERVER] };
  const made = (await daemon.call("POST", "/api/containers", body)) as { container_id: string; ip_address: string };
  const path = `/api/containers/${made.container_id}/services`;
  const spec = { name: "web", target_port: BACKEND_PORT };
  const { service_id } = (await daemon.call("POST", path, spec)) as Published;
  const look = async () => {
    const service = (await daemon.call("GET", `/api/services/${service_id}`, null)) as Published;
    return service.status === "ready" ? service : null;
  };
  const what = () => "the service is ready";
  const { public_url } = await until(look, { poll_ms: 20, deadline_ms: READY_TIMEOUT_MS, what });
  const { hostname, port, pathname, search } = new URL(public_url);
  return {
    service: { host: hostname, port: Number(port), path: `${pathname}${search}` },
    direct: { host: made.ip_address, port: BACKEND_PORT, path: "/" },
  };
}

async function load(plan: ServicesPlan, { host, port, path }: Address, clients: ReadonlyMap<number, LoadSamples>) {
  // The host of a service decides which one answers.
  const request = requestBytes("GET", path, {}, null, `${host}:${port}`).toString();
  const targets = [{ request, expected: "x".repeat(BODY_BYTES) }];
  const { warmup_ms, length_ms } = plan;
  for (const [clients_count, subject] of clients) {
    const options = { host, port, targets, is_hearth: false, clients_count, warmup_ms, length_ms, open: null };
    subject.add(await runLoad(options), new Set());
  }
}

async function round(plan: ServicesPlan, order: readonly Side[], subjects: Subjects): Promise<void> {
  await withDaemon({ cells: 0 }, async (daemon) => {
    const { service, direct } = await publish(daemon);
    const proxy = await SpawnServer.start("proxy-server.ts", `http://${direct.host}:${direct.port}`);
    try {
      const addresses: Record<Side, Address> = {
        service,
        direct,
        "hono proxy": { host: "127.0.0.1", port: proxy.port, path: "/" },
      };
      for (const side of order) await load(plan, addresses[side], subjects.get(side) ?? new Map());
    } finally {
      await proxy.stop();
    }
  });
}

/** The bar on the time that a service adds to a direct request, with one client. */
function addedBar(service: LoadSamples, direct: LoadSamples): Bar {
  const value = service.summary().p50 - direct.summary().p50;
  return countBar("time that a service adds, p50, 1 client", value, " ms", ADDED_BAR_MS);
}

export async function benchServices(plan: ServicesPlan): Promise<Section> {
  const subjects: Subjects = new Map(
    SIDES.map((side) => [
      side,
      new Map(CLIENTS.map((n) => [n, new LoadSamples(`${side}, ${n} ${n === 1 ? "client" : "clients"}`)])),
    ]),
  );
  for (let i = 0; i < plan.rounds_count; i++) {
    const turn = i % SIDES.length;
    await round(plan, [...SIDES.slice(turn), ...SIDES.slice(0, turn)], subjects);
  }
  const at = (side: Side, count: number) => subjects.get(side)?.get(count) ?? new LoadSamples(side);
  const all = CLIENTS.flatMap((count) => SIDES.map((side) => at(side, count)));
  return {
    title: "Published services (ms): GET of 1 KiB from a server in a container, kept-alive connections, closed loop",
    method:
      "The server is node:http in a container of prod. hearth finds the service by its host, checks the token of each request and " +
      "takes it out, and bounds requests, headers and times; hono's proxy does none of it. Server, proxy and generator share the " +
      "processors.",
    rows: all.map((subject) => subject.row(subject.note)),
    bars: [
      addedBar(at("service", 1), at("direct", 1)),
      rateBar(`requests, ${MANY} clients, of the hono proxy`, at("service", MANY), at("hono proxy", MANY), RATE_BAR),
    ],
    comparisons: [
      timeComparison("p50, 1 client, of the hono proxy", at("service", 1), at("hono proxy", 1), "p50"),
      timeComparison(`p99, ${MANY} clients, of the hono proxy`, at("service", MANY), at("hono proxy", MANY), "p99"),
    ],
    plots: CLIENTS.map((count) =>
      distribution(
        `Published services, ${count} ${count === 1 ? "client" : "clients"}`,
        SIDES.map((side) => at(side, count)),
      ),
    ),
    ...evidence(all),
  };
}
