/** What the store holds of containers, and of what was run in them, where only SQL keeps a bound or a promise. */
import { beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { firstPage } from "../../src/base/paging.ts";
import type { JobEnd } from "../../src/containers/exec/events.ts";
import { Jobs, RUNNING } from "../../src/containers/exec/jobs.ts";
import { PROFILE_SETTINGS } from "../../src/containers/image-settings.ts";
import { type ContainerRow, ContainerRows } from "../../src/containers/rows.ts";
import { Events } from "../../src/events/service.ts";
import type { Store, StoredNode } from "../../src/store/store.ts";
import { quietLog, scratchStores } from "../store/scratch.ts";

const scratch = scratchStores();
const NODE: StoredNode = { id: "node_1", seq: 1 };
const OWNER = { tenant_id: "a", omitted_count: 0 };

const END: JobEnd = {
  status: "completed",
  exit_code: 0,
  duration_ms: 1,
  timed_out: false,
  error_message: null,
  stdout: "",
  stderr: "",
  stdout_truncated: false,
  stderr_truncated: false,
};

function rowOf(id: string, name: string): ContainerRow {
  return {
    id,
    tenant_id: "a",
    node_seq: 1,
    name,
    image: "x",
    image_id: "x",
    release: null,
    command: [],
    ...PROFILE_SETTINGS,
    working_directory: "/",
    strict: false,
    read_only_root: false,
    restart: "no",
    ttl_seconds: null,
    idle_seconds: null,
    disk_limit_mb: null,
    gpu_count: 0,
    gpu_ids: [],
    ports: [],
    egress: "on",
    network: null,
    dns: false,
    volumes: [],
    state: "running",
    is_wanted: true,
    memory_limit_mb: 256,
    cpu_limit_percent: null,
    labels: {},
    environment: {},
    exit_code: null,
    origin: null,
    head_snapshot_id: null,
    reserved_address: null,
    reserved_at: null,
    oom_killed: false,
    error_message: null,
    restart_count: 0,
    created_at_ms: 1,
    started_at_ms: 1,
    exited_at_ms: null,
  };
}

const beginOf = (i: number) => ({
  job_id: `job_${i}`,
  container_id: "ctr_1",
  command: ["true"],
  pid: 1,
  started_at_ms: i,
  ...OWNER,
});

describe("containers in the store", () => {
  let store: Store;
  let rows: ContainerRows;
  beforeEach(async () => {
    store = scratch().open();
    rows = new ContainerRows(store, NODE);
    await store.write([{ sql: "INSERT INTO tenants (id, name, created_at) VALUES ('a', 'a', 0)", args: [] }]);
  });

  it("can be deleted though another has their id as its name", async () => {
    await store.write([rows.insert(rowOf("ctr_1", "one"))]);
    await store.write([rows.insert(rowOf("ctr_2", "ctr_1"))]);
    expect((await store.write([rows.hide("ctr_1")])).conflict).toBeNull();
    expect(await rows.byName("a", "ctr_1")).toMatchObject({ id: "ctr_2" });
  });

  it("come back whole, and those of an earlier version with the reference as image and the settings of a profile", async () => {
    await store.write([rows.insert({ ...rowOf("ctr_1", "one"), image: "prod", image_id: "sha256:1" })]);
    const stored = await rows.byId("a", "ctr_1");
    expect(stored).toMatchObject({
      ...rowOf("ctr_1", "one"),
      image: "prod",
      image_id: "sha256:1",
      started_at_ms: null,
    });
    const settings = Object.keys(PROFILE_SETTINGS).map((name) => `, '$.${name}'`);
    const sql = `UPDATE containers SET make = json_remove(make, '$.image_id'${settings.join("")})`;
    await store.write([{ sql, args: [] }]);
    expect(await rows.byId("a", "ctr_1")).toEqual({ ...stored, image_id: "prod" });
  });

  it("are never more than may be, however many are made at once", async () => {
    const made = await Promise.all(
      [1, 2, 3, 4, 5].map((i) => store.write([rows.room("a", 3), rows.insert(rowOf(`ctr_${i}`, `n${i}`))])),
    );
    expect(made.map(({ conflict }) => conflict)).toEqual([null, null, null, 0, 0]);
  });

  it("keep a bounded number of jobs, also of those that nobody waited for", async () => {
    await store.write([rows.insert(rowOf("ctr_1", "one"))]);
    const jobs = new Jobs(store, NODE, new Events({ store, clock: systemClock, log: quietLog }));
    const end = END;
    for (let i = 0; i < LIMITS.jobs_per_container_max + 20; i++) {
      const begin = beginOf(i);
      await jobs.begin(begin);
      await jobs.end(begin, i, end);
    }
    const count = await store.readOne("SELECT count(*) AS count FROM exec_jobs");
    expect(count?.count).toBe(LIMITS.jobs_per_container_max);
    expect((await jobs.list("ctr_1", firstPage())).items[0]?.job_id).toBe(`job_${LIMITS.jobs_per_container_max + 19}`);
  });

  it("have an end, told as an event, for each job that ran when the daemon ended", async () => {
    await store.write([rows.insert(rowOf("ctr_1", "one"))]);
    const jobs = new Jobs(store, NODE, new Events({ store, clock: systemClock, log: quietLog }));
    const begin = { container_id: "ctr_1", command: ["true"], pid: 1, started_at_ms: 0, ...OWNER };
    await jobs.begin({ ...begin, job_id: "job_left" });
    await jobs.record({ ...begin, job_id: "job_done" }, 1, END);
    await jobs.boot(5_000);
    const ended = await Promise.all(["job_left", "job_done"].map((id) => jobs.get("ctr_1", id, false)));
    expect(ended.map(({ status, completed_at }) => [status, completed_at])).toEqual([
      ["failed", 5],
      ["completed", 0],
    ]);
    const events = await store.read("SELECT event_type, data FROM events ORDER BY seq");
    expect(events.map(({ event_type, data }) => [event_type, JSON.parse(String(data)).job_id])).toEqual([
      ["exec_started", "job_left"],
      ["exec_started", "job_done"],
      ["exec_died", "job_done"],
      ["exec_died", "job_left"],
    ]);
  });

  it("keep what was written by few of the jobs that write much", async () => {
    await store.write([rows.insert(rowOf("ctr_1", "one"))]);
    const jobs = new Jobs(store, NODE, new Events({ store, clock: systemClock, log: quietLog }));
    const large = { ...END, stdout: "é".repeat(LIMITS.job_output_bytes_small) };
    for (let i = 0; i < LIMITS.jobs_large_max + 3; i++) {
      const begin = beginOf(i);
      await jobs.record(begin, i, i === 1 ? { ...END, stdout: "little" } : large);
    }
    const output = async (i: number) => {
      const { stdout, stdout_truncated } = await jobs.get("ctr_1", `job_${i}`, true);
      return [stdout?.length, stdout_truncated];
    };
    expect(await Promise.all([0, 1, 2, 3, LIMITS.jobs_large_max + 2].map(output))).toEqual([
      [0, true],
      [6, false],
      [0, true],
      [large.stdout.length, false],
      [large.stdout.length, false],
    ]);
  });
});

it("finds the jobs that an earlier process left running by an index of these alone", async () => {
  const plan = await scratch().open().read(`EXPLAIN QUERY PLAN ${RUNNING}`, [NODE.seq]);
  const steps = plan.map(({ detail }) => String(detail));
  expect(steps.filter((step) => step.includes("exec_jobs"))).toEqual([
    expect.stringMatching(/^(SCAN|SEARCH) exec_jobs USING INDEX exec_jobs_running/),
  ]);
});
