/**
 * What a client knows of its containers and volumes from the answers that it got, held against the daemon after a crash.
 *
 * L1. What was answered stands: a container with its name, variables and files, running or ended; a volume.
 * L2. One that ran runs on as the same process. Its log has every line once.
 * L3. What was deleted is gone. What was under way has happened or has not; every operation that was accepted ends.
 */
import { expect } from "vitest";
import { ContainerUser, identityOf } from "../support/containers.ts";
import { type Answer, type Daemon, eventually } from "../support/daemon.ts";
import { StoreRows } from "../support/rows.ts";
import { ask } from "./ledger.ts";

type State = "absent" | "running" | "exited";

interface KnownContainer {
  readonly names: Set<string>;
  /** Null until its creation was answered. */
  id: string | null;
  states: Set<State>;
  /** Of its first process; null: it may be another by now. */
  identity: string | null;
  variables: Set<string>;
  /** What stands in its own file and in that of its volume. */
  files: Set<string>;
  /** Its command says numbers from 0 on, at each start anew. */
  readonly isCounting: boolean;
}

interface KnownVolume {
  readonly name: string;
  isThere: Set<boolean>;
}

const COUNT = ["python3", "-uc", "import time, itertools\nfor n in itertools.count(): print(n); time.sleep(0.05)"];
const OPEN = ["accepted", "queued", "running"];

export class ContainerLedger {
  readonly #daemon: Daemon;
  readonly #user: ContainerUser;
  readonly #containers = new Set<KnownContainer>();
  readonly #volumes = new Set<KnownVolume>();
  #count = 0;

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
    this.#user = new ContainerUser(daemon);
  }

  /** One that is made once and lives through everything. */
  async steady(): Promise<void> {
    const known = this.#know("steady", true);
    await this.#create(known, {});
    await this.#write(known, "steady");
  }

  /** Every verb that changes something, on new containers and a new volume. */
  async round(): Promise<void> {
    const n = this.#count++;
    const volume: KnownVolume = { name: `volume-${n}`, isThere: new Set([true, false]) };
    this.#volumes.add(volume);
    await this.#ok(201, "POST", "/api/volumes", { name: volume.name });
    volume.isThere = new Set([true]);
    const known = this.#know(`box-${n}`, true);
    await this.#create(known, { volumes: [`${volume.name}:/data`] });
    await this.#write(known, `text-${n}`);
    await this.#stop(known);
    await this.#start(known);
    await this.#rename(known, `crate-${n}`);
    await this.#variable(known, "second");
    const others = await this.#batch([`first-${n}`, `last-${n}`]);
    for (const other of [known, ...others]) await this.#delete(other);
    volume.isThere.add(false);
    await this.#operation(202, "DELETE", `/api/volumes/${volume.name}`);
    this.#volumes.delete(volume);
  }

  /** Holds what is known against a daemon that has started again, and learns how what was under way ended. */
  async check(): Promise<void> {
    await eventually("every operation has ended", async () => {
      const { body } = await this.#daemon.call("GET", "/api/operations?limit=100");
      return body.operations.every(({ status }: { status: string }) => !OPEN.includes(status));
    });
    const store = new StoreRows(this.#daemon);
    try {
      // A stop that was under way is finished by the daemon, by and by.
      const unwanted = "SELECT id FROM containers WHERE state = 'running' AND is_wanted = 0";
      await eventually("what is not to run has ended", () => store.read(unwanted, []).length === 0);
    } finally {
      store.close();
    }
    for (const known of this.#containers) await this.#check(known);
    for (const volume of this.#volumes) await this.#checkVolume(volume);
    const { body } = await this.#daemon.call("GET", "/api/containers");
    const ids = body.containers.map(({ container_id }: { container_id: string }) => container_id);
    expect([...this.#containers].map(({ id }) => id)).toEqual(expect.arrayContaining(ids));
  }

  /** Deletes what is left but the steady one. */
  async clear(withSteady = false): Promise<void> {
    for (const known of this.#containers) if (withSteady || !known.names.has("steady")) await this.#delete(known);
    for (const volume of this.#volumes) {
      await this.#operation(202, "DELETE", `/api/volumes/${volume.name}`);
      this.#volumes.delete(volume);
    }
  }

  #know(name: string, isCounting: boolean): KnownContainer {
    const known: KnownContainer = {
      names: new Set([name]),
      id: null,
      states: new Set(["absent", "running", "exited"]),
      identity: null,
      variables: new Set(["first"]),
      files: new Set([""]),
      isCounting,
    };
    this.#containers.add(known);
    return known;
  }

  async #create(known: KnownContainer, more: object): Promise<void> {
    const [name] = known.names;
    const body = { name, command: COUNT, environment: { OWN: "first" }, ...more };
    const { container_id, pid } = (await this.#ok(201, "POST", "/api/containers", body)).body;
    known.id = container_id;
    this.#runs(known, pid);
  }

  async #write(known: KnownContainer, text: string): Promise<void> {
    known.files.add(text);
    const line = `[ ! -d /data ] || echo -n ${text} > /data/file; echo -n ${text} > /root/file`;
    const { body } = await this.#ok(200, "POST", `/api/containers/${known.id}/exec`, { command: ["sh", "-c", line] });
    expect(body).toMatchObject({ exit_code: 0, stderr: "" });
    known.files = new Set([text]);
  }

  async #stop(known: KnownContainer): Promise<void> {
    known.states.add("exited");
    known.identity = null;
    await this.#ok(200, "POST", `/api/containers/${known.id}/stop`, { timeout_ms: 0 });
    known.states = new Set(["exited"]);
  }

  async #start(known: KnownContainer): Promise<void> {
    known.states.add("running");
    const { body } = await this.#ok(202, "POST", `/api/containers/${known.id}/start`);
    // It is accepted: it will happen.
    known.states = new Set(["running"]);
    await this.#ended(body.operation_id);
    this.#runs(known, (await this.#ok(200, "GET", `/api/containers/${known.id}`)).body.pid);
  }

  async #rename(known: KnownContainer, name: string): Promise<void> {
    known.names.add(name);
    await this.#ok(200, "POST", `/api/containers/${known.id}/rename`, { new_name: name });
    known.names.clear();
    known.names.add(name);
  }

  async #variable(known: KnownContainer, value: string): Promise<void> {
    known.variables.add(value);
    await this.#ok(200, "PUT", `/api/containers/${known.id}/env`, { environment: { OWN: value } });
    known.variables = new Set([value]);
  }

  async #batch(names: readonly string[]): Promise<KnownContainer[]> {
    const all = names.map((name) => this.#know(name, false));
    const items = names.map((name) => ({ name, environment: { OWN: "first" } }));
    const { body } = await this.#ok(202, "POST", "/api/containers/batch", { items });
    for (const known of all) known.states = new Set(["running"]);
    await this.#ended(body.operation_id);
    for (const [i, known] of all.entries()) {
      const record = (await this.#ok(200, "GET", `/api/containers/by-name/${names[i]}`)).body;
      known.id = record.container_id;
      this.#runs(known, record.pid);
    }
    return all;
  }

  async #delete(known: KnownContainer): Promise<void> {
    known.states.add("absent");
    known.identity = null;
    await this.#ok(200, "DELETE", `/api/containers/${known.id}`);
    await this.#ok(404, "GET", `/api/containers/${known.id}`);
    this.#containers.delete(known);
  }

  #runs(known: KnownContainer, pid: number): void {
    known.states = new Set(["running"]);
    known.identity = identityOf(pid);
  }

  async #check(known: KnownContainer): Promise<void> {
    const record = await this.#find(known);
    const state = record?.state ?? "absent";
    expect([...known.names, ...known.states]).toContain(state);
    if (record === null) {
      this.#containers.delete(known);
      return;
    }
    known.id = record.container_id;
    known.states = new Set([state]);
    if (known.identity !== null) expect([known.names, identityOf(record.pid)]).toEqual([known.names, known.identity]);
    expect([...known.names]).toContain(record.name);
    known.names.clear();
    known.names.add(record.name);
    const { body } = await this.#ok(200, "GET", `/api/containers/${known.id}/env`);
    expect([...known.variables]).toContain(body.environment.OWN);
    known.variables = new Set([body.environment.OWN]);
    if (known.isCounting) expectWhole(await this.#user.logs(record.container_id));
    if (state !== "running") return;
    known.identity = identityOf(record.pid);
    const line = "cat /root/file 2>/dev/null";
    const read = await this.#ok(200, "POST", `/api/containers/${known.id}/exec`, { command: ["sh", "-c", line] });
    expect([...known.files]).toContain(read.body.stdout);
  }

  /** Waits until it is at rest. Null when there is none. */
  async #find(known: KnownContainer) {
    return eventually(`${[...known.names]} settles`, async () => {
      const paths = known.id === null ? [...known.names].map((name) => `by-name/${name}`) : [known.id];
      for (const path of paths) {
        const { status, body } = await this.#daemon.call("GET", `/api/containers/${path}`);
        if (status === 404 || body.found === false) continue;
        return ["running", "exited"].includes(body.state) ? { record: body } : null;
      }
      return { record: null };
    }).then(({ record }) => record);
  }

  async #checkVolume(volume: KnownVolume): Promise<void> {
    const { status } = await this.#daemon.call("GET", `/api/volumes/${volume.name}`);
    expect([200, 404]).toContain(status);
    expect([volume.name, ...volume.isThere]).toContain(status === 200);
    volume.isThere = new Set([status === 200]);
    if (status === 404) this.#volumes.delete(volume);
  }

  async #operation(expected: number, method: string, path: string, body?: unknown): Promise<void> {
    const accepted = await this.#ok(expected, method, path, body);
    await this.#ended(accepted.body.operation_id);
  }

  async #ended(id: string): Promise<void> {
    const record = await eventually(`operation ${id} ends`, async () => {
      const { body } = await this.#ok(200, "GET", `/api/operations/${id}`);
      return OPEN.includes(body.status) ? null : body;
    });
    expect(record).toMatchObject({ status: "succeeded" });
  }

  async #ok(expected: number, method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await ask(this.#daemon, method, path, body);
    expect([method, path, answer.status, answer.status === expected ? null : answer.body]).toEqual([
      method,
      path,
      expected,
      null,
    ]);
    return answer;
  }
}

/** Numbered without a gap, and each run's own numbers from 0 on. */
function expectWhole(
  lines: readonly { readonly seq: number; readonly stream: string; readonly message: string }[],
): void {
  const first = lines[0]?.seq ?? 1;
  expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, i) => first + i));
  const said = lines.filter(({ stream }) => stream === "stdout").map(({ message }) => Number(message));
  const wrong = said.filter((n, i) => i > 0 && n !== 0 && n !== (said[i - 1] ?? 0) + 1);
  expect(wrong).toEqual([]);
}
