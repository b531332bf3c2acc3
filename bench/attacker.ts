/**
 * The attacker of `attacks.ts`, a process of its own at the lowest priority: on a real machine its client is elsewhere, and takes
 * nothing of the processors that the attacked calls run on. It reads a line with its orders, then one line a turn: the number of
 * an attack to begin, or `end`. It answers each with a line: the labels of its attacks, then the line itself, of `end` when
 * nothing that it asked for is under way any more. At the end of its input it removes its containers.
 */
import { type IncomingMessage, request } from "node:http";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { entry } from "../test/support/layer-bytes.ts";
import { tarOf } from "../test/support/registry.ts";
import { seededRandom } from "./stats.ts";

const SEED = 28_100;
const SPARSE = "1T";
const TOO_MANY = 429;
const REFUSED_MS = 1_000;
const PAUSE_MS = 5;
const FLOOD = { name: "flood", image: "prod", command: ["yes"] };

export interface Orders {
  readonly port: number;
  readonly key: string;
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

async function attacksOf(send: Send, { blob_mb, streams_count }: Orders): Promise<readonly Attack[]> {
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
      label: "a container that floods its log, which is read",
      lanes_count: 1,
      once: async (again) => {
        // Refused from the second time on: the name is taken.
        await again("POST", "/api/containers", FLOOD);
        return (await again("GET", "/api/containers/flood/logs?limit=10000", null)).status;
      },
    },
    {
      label: "the same with a new container each time",
      lanes_count: 1,
      once: async (again) => {
        const { body, status } = await again("POST", "/api/containers", FLOOD);
        const { container_id: id } = JSON.parse(body) as { container_id?: string };
        await again("GET", "/api/containers/flood/logs?limit=10000", null);
        if (id !== undefined) await again("DELETE", `/api/containers/${id}`, null);
        return status;
      },
    },
  ];
}

/**
 * Repeats an attack until `isOver`. A refused lane waits for about a second, each another time: what is measured is the attack and
 * no flood of refusals, against which an operator sets `requests_per_second`.
 */
async function repeat(attack: Attack, send: Send, isOver: AbortSignal): Promise<void> {
  const random = seededRandom(SEED);
  const lane = async () => {
    while (!isOver.aborted) {
      const status = await attack.once(send).catch(() => 0);
      await pause(status === TOO_MANY ? REFUSED_MS * (0.5 + random()) : PAUSE_MS, isOver);
    }
  };
  await Promise.all(Array.from({ length: attack.lanes_count }, lane));
}

async function pause(ms: number, isOver: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal: isOver }).catch(() => {});
}

async function containersOf(send: Send): Promise<readonly { container_id: string }[]> {
  const { body } = await send("GET", "/api/containers?limit=1000", null);
  return (JSON.parse(body) as { containers: { container_id: string }[] }).containers;
}

/** Operations go on when nobody waits for them. */
async function ended(send: Send): Promise<void> {
  for (;;) {
    const { body } = await send("GET", "/api/operations?status=running&limit=1", null);
    if ((JSON.parse(body) as { operations: unknown[] }).operations.length === 0) return;
    await setTimeout(REFUSED_MS / 10);
  }
}

async function serve(): Promise<void> {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const orders = JSON.parse((await lines.next()).value ?? "") as Orders;
  const send = senderOf(orders.port, orders.key, new AbortController().signal);
  const attacks = await attacksOf(send, orders);
  const own = new Set((await containersOf(send)).map(({ container_id }) => container_id));
  console.log(JSON.stringify(attacks.map(({ label }) => label)));
  let over = new AbortController();
  let attacking = Promise.resolve();
  for (let line = await lines.next(); line.done !== true; line = await lines.next()) {
    if (line.value === "end") {
      over.abort();
      await attacking;
      await ended(send);
      // Whatever the aborted requests made.
      for (const { container_id } of await containersOf(send)) {
        if (!own.has(container_id)) await send("DELETE", `/api/containers/${container_id}`, null);
      }
    } else {
      over = new AbortController();
      const attack = attacks[Number(line.value)];
      if (attack === undefined) throw new Error(`no attack ${line.value}`);
      attacking = repeat(attack, senderOf(orders.port, orders.key, over.signal), over.signal);
    }
    console.log(line.value);
  }
  for (const { container_id } of await containersOf(send))
    await send("DELETE", `/api/containers/${container_id}`, null);
}

if (import.meta.main) await serve();
