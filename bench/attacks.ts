/**
 * The warm calls of one tenant while another attacks: the same arrivals at rest and beside each attack, in turns. The attacker has a
 * tenant's default limits and a key of its own; it repeats its requests until the load has ended, refused or not.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { NODE_PATH } from "../src/installation/paths.js";
import type { Orders } from "./attacker.ts";
import { BusyFunction } from "./busy-function.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { distribution, evidence, pairedBar, Samples, type Section } from "./report.ts";
import { figure } from "./text.ts";

const SEED = 28_100;
/** The bar of the walls between tenants: p99 beside an attack, of p99 at rest. */
const BAR = 2;

export interface AttacksPlan extends Pick<Orders, "blob_mb" | "streams_count"> {
  readonly rounds_count: number;
  readonly warmup_ms: number;
  readonly length_ms: number;
}

/** Null: the end of input. */
type Ask = (line: string | null) => Promise<string>;

/** The process of `attacker.ts`. */
class Attacker {
  readonly labels: readonly string[];
  readonly #ask: Ask;

  private constructor(labels: readonly string[], ask: Ask) {
    this.labels = labels;
    this.#ask = ask;
  }

  static async start(orders: Orders): Promise<Attacker> {
    const file = new URL("attacker.ts", import.meta.url).pathname;
    const child = spawn("nice", ["-n", "19", NODE_PATH, file], { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const ask = async (line: string | null) => {
      if (line === null) child.stdin.end();
      else child.stdin.write(`${line}\n`);
      const { done, value } = await lines.next();
      if (done === true && line !== null) throw new Error("the attacker ended early");
      return value ?? "";
    };
    return new Attacker(JSON.parse(await ask(JSON.stringify(orders))) as string[], ask);
  }

  async begin(attack: number): Promise<void> {
    await this.#ask(String(attack));
  }

  /** Resolves when nothing of it is under way. */
  async end(): Promise<void> {
    await this.#ask("end");
  }

  /** Resolves when its containers are removed, which would outlive the daemon. */
  async leave(): Promise<void> {
    await this.#ask(null);
  }
}

interface Beside {
  readonly latency: Samples;
  /** Null: at rest. */
  readonly attack: number | null;
}

async function measure(
  daemon: Daemon,
  { blob_mb, streams_count, ...plan }: AttacksPlan,
): Promise<{ sides: readonly Beside[]; rate_per_second: number }> {
  const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name: "attacker" })) as { tenant_id: string };
  const made = await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "attacker" });
  const { key } = made as { key: string };
  const attacker = await Attacker.start({ port: daemon.port, key, blob_mb, streams_count });
  const sides: Beside[] = [
    { latency: new Samples("warm call at rest"), attack: null },
    ...attacker.labels.map((label, attack) => ({ latency: new Samples(`warm call beside ${label}`), attack })),
  ];
  const busy = await BusyFunction.start(daemon, plan, 4);
  for (let round = 0; round < plan.rounds_count; round++) {
    for (const { attack, latency } of round % 2 === 0 ? sides : [...sides].reverse()) {
      if (attack !== null) await attacker.begin(attack);
      await busy.measure(latency, SEED + round);
      if (attack !== null) await attacker.end();
      await daemon.quiet(0);
    }
  }
  await attacker.leave();
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
      "client runs on the same two cores at the lowest priority. The bars hold for the median of the rounds.",
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
