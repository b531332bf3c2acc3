/**
 * The warm calls of one tenant while another attacks: the same arrivals at rest and beside each attack, in turns. The attacker has a
 * tenant's default limits and a key of its own; it repeats its requests until the load has ended, refused or not.
 */
import { type IncomingMessage, request } from "node:http";
import { setTimeout } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { entry } from "../test/support/layer-bytes.ts";
import { tarOf } from "../test/support/registry.ts";
import { BusyFunction } from "./busy-function.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { distribution, evidence, pairedBar, Samples, type Section } from "./report.ts";
import { figure } from "./text.ts";

const SEED = 28_100;
/** The bar of the walls between tenants: p99 beside an attack, of p99 at rest. */
const BAR = 2;
const SPARSE = "1T";
const TOO_MANY = 429;
const REFUSED_MS = 1_000;
const PAUSE_MS = 5;

export interface AttacksPlan {
  readonly rounds_count: number;
  readonly warmup_ms: number;
  readonly length_ms: number;
  /** Size of the blob of zeros, unpacked. */
  readonly blob_mb: number;
  readonly streams_count: number;
}

interface Answered {
  readonly status: number;
  readonly body: string;
}

type Send = (method: string, path: string, body: object | Buffer | null) => Promise<Answered>;

/** Requests of the attacker, with as many at once as it likes. */
function senderOf(port: number, key: string, isOver: AbortSignal): Send {
  return (method, path, body) =>
    new Promise((resolve, reject) => {
      const isRaw = Buffer.isBuffer(body);
      const bytes = body === null ? Buffer.alloc(0) : isRaw ? body : Buffer.from(JSON.stringify(body));
      const headers = {
        "x-api-key": key,
        "content-type": isRaw ? "application/gzip" : "application/json",
        "content-length": bytes.length,
      };
      const read = (answer: IncomingMessage) => {
        let text = "";
        answer.on("data", (chunk: Buffer) => {
          if (text.length < 10_000) text += chunk.toString("latin1");
        });
        answer.on("end", () => resolve({ status: answer.statusCode ?? 0, body: text }));
        answer.on("error", reject);
      };
      request({ port, method, path, headers, signal: isOver }, read).on("error", reject).end(bytes);
    });
}

interface Attack {
  readonly label: string;
  /** Requests of it that are under way at once. */
  readonly lanes_count: number;
  /** Resolves to the status of the last answer. */
  once(send: Send): Promise<number>;
}

async function attacksOf(send: Send, { blob_mb, streams_count }: AttacksPlan): Promise<readonly Attack[]> {
  const made = async (path: string, body: object) => {
    const answer = await send("POST", path, body);
    if (answer.status >= 300) throw new Error(`POST ${path} answered ${answer.status}: ${answer.body}`);
    return JSON.parse(answer.body) as Record<string, string>;
  };
  const build = async (again: Send, line: string) => {
    const content = tarOf("Dockerfile", Buffer.from(`FROM prod\n${line}\n`)).toString("base64");
    const context = JSON.parse((await again("POST", "/api/build-contexts", { content })).body) as {
      context_id?: string;
    };
    if (context.context_id === undefined) return TOO_MANY;
    const { status } = await again("POST", "/api/oci/images/build?execution=sync", {
      context_id: context.context_id,
      image_reference: "attack:1",
      no_cache: true,
    });
    return status;
  };
  await made("/api/volumes", { name: "sparse" });
  const { container_id } = await made("/api/containers", { name: "maker", image: "prod", volumes: ["sparse:/v"] });
  await made(`/api/containers/${container_id}/exec`, { command: ["truncate", "-s", SPARSE, "/v/file"] });
  const zeros = gzipSync(
    entry({ name: `blobs/sha256/${"0".repeat(64)}`, content: Buffer.alloc(blob_mb * 1024 * 1024) }),
    { level: 1 },
  );
  return [
    {
      label: "builds with a cache at /dev",
      lanes_count: 2,
      once: (again) => build(again, "RUN --mount=type=cache,target=/dev true"),
    },
    {
      label: "builds that fill a cache",
      lanes_count: 2,
      once: (again) => build(again, "RUN --mount=type=cache,target=/c head -c 64M /dev/urandom > /c/file; rm /c/file"),
    },
    {
      label: `loads of a blob of ${blob_mb} MiB of zeros`,
      lanes_count: 2,
      once: async (again) => (await again("POST", "/api/oci/images/load?reference=zeros:1", zeros)).status,
    },
    {
      label: `${streams_count} downloads of a sparse file of ${SPARSE}B`,
      lanes_count: streams_count,
      once: async (again) => (await again("GET", "/api/volumes/sparse/files/file", null)).status,
    },
    {
      label: "a container that floods its log",
      lanes_count: 1,
      once: async (again) => {
        const { body, status } = await again("POST", "/api/containers", {
          name: "flood",
          image: "prod",
          command: ["yes"],
        });
        const { container_id: id } = JSON.parse(body) as { container_id?: string };
        await again("GET", "/api/containers/flood/logs?limit=10000", null);
        if (id !== undefined) await again("DELETE", `/api/containers/${id}`, null);
        return status;
      },
    },
  ];
}

/**
 * Repeats an attack until `isOver`. A refused lane waits as long as `Retry-After` asks for, at most a second: what is measured is
 * the attack and no flood of refusals, against which an operator sets `requests_per_second`.
 */
async function repeat(attack: Attack, send: Send, isOver: AbortSignal): Promise<void> {
  const lane = async () => {
    while (!isOver.aborted) {
      const status = await attack.once(send).catch(() => 0);
      await pause(status === TOO_MANY ? REFUSED_MS : PAUSE_MS, isOver);
    }
  };
  await Promise.all(Array.from({ length: attack.lanes_count }, lane));
}

async function pause(ms: number, isOver: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal: isOver }).catch(() => {});
}

class Beside {
  readonly latency: Samples;
  readonly attack: Attack | null;

  constructor(attack: Attack | null) {
    this.attack = attack;
    this.latency = new Samples(attack === null ? "warm call at rest" : `warm call beside ${attack.label}`);
  }
}

async function measure(
  daemon: Daemon,
  plan: AttacksPlan,
): Promise<{ sides: readonly Beside[]; rate_per_second: number }> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "attacker" })) as { tenant_id: string };
  const made = await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "attacker" });
  const { key } = made as { key: string };
  const never = new AbortController();
  const attacks = await attacksOf(senderOf(daemon.port, key, never.signal), plan);
  const sides = [null, ...attacks].map((attack) => new Beside(attack));
  const busy = await BusyFunction.start(daemon, plan, 4);
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) {
      const over = new AbortController();
      const send = senderOf(daemon.port, key, over.signal);
      const attacking = side.attack === null ? null : repeat(side.attack, send, over.signal);
      await busy.measure(side.latency, SEED + round);
      over.abort();
      await attacking;
      await daemon.quiet(0);
    }
  }
  // Containers outlive the daemon.
  const send = senderOf(daemon.port, key, never.signal);
  const { containers } = JSON.parse((await send("GET", "/api/containers?limit=1000", null)).body) as {
    containers: { container_id: string }[];
  };
  for (const { container_id } of containers) await send("DELETE", `/api/containers/${container_id}`, null);
  return { sides, rate_per_second: busy.rate_per_second };
}

export async function benchAttacks(plan: AttacksPlan): Promise<Section> {
  const { sides, rate_per_second } = await withDaemon({ cells: null }, (daemon) => measure(daemon, plan));
  const [rest, ...attacked] = sides;
  if (rest === undefined) throw new Error("no side was measured");
  return {
    title: "Attacks (ms): warm calls of one tenant while another attacks",
    method:
      `One daemon. ${plan.length_ms / 1_000} s of open loop on a shell function at ${figure(rate_per_second)} calls a second, a ` +
      "quarter of its peak before, at rest and beside each attack in turns. The attacker is a tenant with default limits; its " +
      "client runs on the same two cores. The bars hold for the median of the rounds.",
    rows: sides.map(({ latency }) => latency.row()),
    bars: attacked.map(({ latency }) =>
      pairedBar(`p99 of a ${latency.label}, of one at rest, median of rounds`, latency, rest.latency, "p99", BAR),
    ),
    plots: [
      distribution(
        "Warm call of one tenant",
        sides.map(({ latency }) => latency),
      ),
    ],
    ...evidence(sides.map(({ latency }) => latency)),
  };
}
