/**
 * Private networks: a create in one, alone and beside members of others, against a create without a network; and names, asked of the
 * name server by a program in a container.
 *
 * A create's time is the client's, until the 201. Each sample stands beside one of a container without a network a moment later.
 */
import { machineMs, pause } from "./clock.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { distribution, evidence, pairedBar, Samples, type Section, timeComparison } from "./report.ts";

/** As before cold calls, and for the same reason (cold.ts). */
const REST_MS = 50;
const MEMBERS_PER_NETWORK = 20;
/** As for snapshots in the pool: what others have costs no more than a tenth. */
const BESIDE_BAR = 1.1;

export interface NetworksPlan {
  readonly rounds_count: number;
  readonly samples_per_round: number;
  /** Members of other networks. */
  readonly members_count: number;
  readonly queries_per_round: number;
}

type Create = (spec: object, name: string) => Promise<string>;

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun_ms = machineMs();
  await work();
  return machineMs() - begun_ms;
}

/** Asks for the name of a container `count` times. Prints the milliseconds of each query. */
const ASK = `import socket, sys, time
for _ in range(int(sys.argv[1])):
    begun = time.perf_counter()
    socket.gethostbyname("listed")
    print((time.perf_counter() - begun) * 1000)`;

class Round {
  readonly #daemon: Daemon;
  readonly #connection: Connection;
  readonly #plan: NetworksPlan;

  constructor(daemon: Daemon, connection: Connection, plan: NetworksPlan) {
    this.#daemon = daemon;
    this.#connection = connection;
    this.#plan = plan;
  }

  readonly #create: Create = async (spec, name) => {
    const body = { name, image: "prod", ...spec };
    const made = await this.#call("POST", "/api/containers", body);
    return (made as { container_id: string }).container_id;
  };

  /** Times creates in a network and without one, in turn. */
  async creates(prefix: string): Promise<{ member: number[]; plain: number[] }> {
    const times = { member: [] as number[], plain: [] as number[] };
    for (let i = 0; i < this.#plan.samples_per_round; i++) {
      const kinds = i % 2 === 0 ? (["member", "plain"] as const) : (["plain", "member"] as const);
      for (const kind of kinds) {
        await pause(REST_MS);
        let id = "";
        const spec = kind === "member" ? { network: "measured" } : {};
        times[kind].push(await timed(async () => (id = await this.#create(spec, `${prefix}-${kind}-${i}`))));
        await this.#call("DELETE", `/api/containers/${id}`, null);
      }
    }
    return times;
  }

  async addMembers(): Promise<void> {
    for (let i = 0; i < this.#plan.members_count; i++) {
      await this.#create({ network: `net-${Math.floor(i / MEMBERS_PER_NETWORK)}` }, `other-${i}`);
    }
  }

  async queries(): Promise<number[]> {
    await this.#create({ network: "measured" }, "listed");
    const asker = await this.#create({ network: "measured" }, "asker");
    const command = ["python3", "-c", ASK, String(this.#plan.queries_per_round)];
    const result = await this.#call("POST", `/api/containers/${asker}/exec`, { command, timeout_ms: 60_000 });
    const { exit_code, stdout, stderr } = result as { exit_code: number; stdout: string; stderr: string };
    if (exit_code !== 0) throw new Error(`the queries failed: ${stderr}`);
    return stdout.trim().split("\n").map(Number);
  }

  #call(method: string, path: string, body: object | null): Promise<unknown> {
    return this.#daemon.callOn(this.#connection, method, path, body);
  }
}

export async function benchNetworks(plan: NetworksPlan): Promise<Section> {
  const others = `${plan.members_count} members of other networks`;
  const plain = new Samples("create without a network");
  const member = new Samples("create in a network");
  const plainBeside = new Samples(`create without a network beside ${others}`);
  const memberBeside = new Samples(`create in a network beside ${others}`);
  const names = new Samples("name of another member, asked in a container");
  for (let i = 0; i < plan.rounds_count; i++) {
    await withDaemon({ cells: 0 }, async (daemon) => {
      const connection = await Connection.open(daemon.port);
      const round = new Round(daemon, connection, plan);
      const alone = await round.creates("alone");
      await round.addMembers();
      const beside = await round.creates("beside");
      plain.rounds.push(alone.plain);
      member.rounds.push(alone.member);
      plainBeside.rounds.push(beside.plain);
      memberBeside.rounds.push(beside.member);
      names.rounds.push(await round.queries());
      connection.close();
    });
  }
  const all = [plain, member, plainBeside, memberBeside, names];
  return {
    title: "Private networks (ms): creates and names",
    method:
      "Creates one after the other, of both kinds in turn. The names are asked through the C library of the container.",
    rows: all.map((subject) => subject.row()),
    bars: [
      pairedBar(`create in a network beside ${others}, p50, of one alone`, memberBeside, member, "p50", BESIDE_BAR),
    ],
    comparisons: [timeComparison("create in a network, p50, of one without", member, plain, "p50")],
    plots: [distribution("Creates", all.slice(0, 4)), distribution("Names", [names])],
    ...evidence(all),
  };
}
