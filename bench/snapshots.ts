/**
 * Snapshots and forks: the pause of a container, forks beside plain creates, many forks at once and their disk, the cost of many
 * snapshots for a start, and the comparison of two snapshots.
 *
 * The pause is the daemon's figure; every other time is the client's. What is deleted is deleted outside the timed part. Subjects
 * that are compared alternate. For the cost of snapshots, two daemons run side by side: one pool holds the snapshots, the other none.
 */
import { machineMs, pause } from "./clock.ts";
import { poolMb, poolMbAtRest, writeBack } from "./disk.ts";
import { timed } from "./images.ts";
import {
  type Bar,
  countBar,
  distribution,
  evidence,
  ratioBar,
  Samples,
  type Section,
  timeBar,
  timeComparison,
} from "./report.ts";
import { type SnapshotClient, type Taken, withSnapshotClient } from "./snapshot-client.ts";

/** As before cold calls, and for the same reason (cold.ts). */
const REST_MS = 50;
const WARMUP_COUNT = 2;
const FREED_MS = 120_000;
const FILES_DIRECTORY = "/root/files";
const SMALL_DIRECTORY = "/root/small";
const BUSY_DIRECTORY = "/root/busy";
const SMALL_BYTES = 16;
/** The process that writes replaces so many files of one megabyte in turn. */
const BUSY_FILES = 50;
const BUSY_WARMUP_MS = 500;
const DISK_BAR_MB = 20;

export interface SnapshotsPlan {
  readonly rounds_count: number;
  /** Own files of the container that is snapshotted and forked. */
  readonly files_count: number;
  readonly file_bytes: number;
  /** Snapshots at rest, and as many while a process writes. */
  readonly takes_per_round: number;
  /** Forks, and as many creates. */
  readonly forks_per_round: number;
  /** Forks of one request, one request a round. */
  readonly forks_at_once: number;
  /** Snapshots in the pool whose cost for a start is measured. */
  readonly snapshots_count: number;
  /** Starts of each kind, with and without these. */
  readonly starts_per_round: number;
  readonly small_files_count: number;
  readonly changes_count: number;
  readonly diffs_per_round: number;
}

interface Files {
  readonly directory: string;
  readonly count: number;
  readonly bytes: number;
  readonly per_directory: number;
}

/** Makes files of random bytes in directories d0, d1, …, each with files f000, f001, …. One command a directory. */
async function fill(client: SnapshotClient, id: string, { directory, count, bytes, per_directory }: Files) {
  for (let made = 0, i = 0; made < count; made += per_directory, i++) {
    const own_bytes = Math.min(per_directory, count - made) * bytes;
    const own = `${directory}/d${i}`;
    await client.shell(id, `mkdir -p ${own}; head -c ${own_bytes} /dev/urandom | split -d -a 3 -b ${bytes} - ${own}/f`);
  }
  writeBack();
}

/** The samples of snapshots of a container in one state. */
interface Takes {
  readonly pause: Samples;
  readonly request: Samples;
  /** Snapshots before which the container did not freeze in time: they have no pause. */
  unfrozen_count: number;
}

/** Takes and deletes snapshots, one after the other. */
async function takeBlock(client: SnapshotClient, id: string, count: number, takes: Takes, removal: Samples) {
  const samples = { pause: [] as number[], request: [] as number[], removal: [] as number[] };
  for (let i = 0; i < count; i++) {
    await pause(REST_MS);
    const taken = await timed<Taken>(() => client.take(id), takes.request, samples.request);
    if (taken === null) continue;
    const { pause_ms } = taken.metadata;
    if (pause_ms === null) takes.unfrozen_count++;
    else samples.pause.push(pause_ms);
    await timed(() => client.deleteSnapshot(taken.snapshot_id), removal, samples.removal);
  }
  takes.pause.rounds.push(samples.pause);
  takes.request.rounds.push(samples.request);
  removal.rounds.push(samples.removal);
}

/** Does work while a process in the container replaces files. Pushes the megabytes a second that it wrote. */
async function whileWriting(client: SnapshotClient, id: string, into: Samples, work: () => Promise<void>) {
  const stop = `${BUSY_DIRECTORY}/stop`;
  const loop =
    `mkdir -p ${BUSY_DIRECTORY}; n=0; while [ ! -e ${stop} ]; do ` +
    `head -c 1000000 /dev/urandom > ${BUSY_DIRECTORY}/$((n % ${BUSY_FILES})); n=$((n + 1)); done; ` +
    `echo $n > ${BUSY_DIRECTORY}/count.new; mv ${BUSY_DIRECTORY}/count.new ${BUSY_DIRECTORY}/count`;
  const begun_ms = machineMs();
  await client.shellInBackground(id, loop);
  await pause(BUSY_WARMUP_MS);
  await work();
  const duration_ms = machineMs() - begun_ms;
  const count = await client.shell(
    id,
    `touch ${stop}; while [ ! -e ${BUSY_DIRECTORY}/count ]; do sleep 0.01; done; ` +
      `cat ${BUSY_DIRECTORY}/count; rm -r ${BUSY_DIRECTORY}`,
  );
  into.rounds.push([(Number(count) * 1_000) / duration_ms]);
  writeBack();
}

interface ForkSubjects {
  readonly fork: Samples;
  readonly create: Samples;
}

/** Forks of a container and creates in turn. */
async function forkRound(client: SnapshotClient, id: string, count: number, into: ForkSubjects): Promise<void> {
  const samples = { fork: [] as number[], create: [] as number[] };
  const fork = async (): Promise<void> => {
    await pause(REST_MS);
    const made = await timed(() => client.fork(id, 1), into.fork, samples.fork);
    for (const one of made ?? []) await client.checkReady(one);
    for (const one of made ?? []) await client.delete(one);
  };
  const create = async (): Promise<void> => {
    await pause(REST_MS);
    const made = await timed(() => client.create(), into.create, samples.create);
    if (made !== null) await client.delete(made);
  };
  for (let i = 0; i < count; i++) for (const side of i % 2 === 0 ? [fork, create] : [create, fork]) await side();
  into.fork.rounds.push(samples.fork);
  into.create.rounds.push(samples.create);
}

/** Many forks in one request, and the disk that they add before they write. */
async function crowdRound(client: SnapshotClient, id: string, count: number, into: Subjects): Promise<void> {
  const samples: number[] = [];
  const before_mb = await poolMbAtRest(client.daemon, FREED_MS);
  const made = await timed(() => client.fork(id, count), into.crowd, samples);
  into.crowd.rounds.push(samples);
  if (made === null) return;
  into.disk.rounds.push([poolMb(client.daemon) - before_mb]);
  for (const one of made) await client.checkReady(one);
  for (const one of made) await client.delete(one);
}

/** A daemon with a container, and the samples of its starts and creates. */
interface Side {
  readonly client: SnapshotClient;
  readonly id: string;
  readonly start: Samples;
  readonly create: Samples;
}

/** Starts of the container and creates on all sides in turn. */
async function startRound(sides: readonly Side[], count: number): Promise<void> {
  const all = sides.map((side) => ({ ...side, starts: [] as number[], creates: [] as number[] }));
  for (let i = 0; i < count; i++) {
    const order = i % 2 === 0 ? all : all.toReversed();
    for (const { client, id, start, starts } of order) {
      await client.stop(id);
      await pause(REST_MS);
      await timed(() => client.start(id), start, starts);
    }
    for (const { client, create, creates } of order) {
      await pause(REST_MS);
      const made = await timed(() => client.create(), create, creates);
      if (made !== null) await client.delete(made);
    }
  }
  for (const { start, create, starts, creates } of all) {
    start.rounds.push(starts);
    create.rounds.push(creates);
  }
}

async function measureStarts(plan: SnapshotsPlan, into: Subjects): Promise<void> {
  await withSnapshotClient((without) =>
    withSnapshotClient(async (crowded) => {
      const [one, other] = [await without.create(), await crowded.create()];
      const rounds = async (subjects: StartSubjects): Promise<void> => {
        const sides = [
          { client: without, id: one, start: subjects.start_without, create: subjects.create_without },
          { client: crowded, id: other, start: subjects.start_beside, create: subjects.create_beside },
        ];
        const warmup = sides.map((side) => ({
          ...side,
          start: new Samples("warm-up"),
          create: new Samples("warm-up"),
        }));
        await startRound(warmup, WARMUP_COUNT);
        for (let i = 0; i < plan.rounds_count; i++) await startRound(sides, plan.starts_per_round);
      };
      await rounds({
        start_without: into.control_start_without,
        start_beside: into.control_start_beside,
        create_without: into.control_create_without,
        create_beside: into.control_create_beside,
      });
      const taken: number[] = [];
      for (let i = 0; i < plan.snapshots_count; i++) {
        const made = await timed(() => crowded.take(other), into.small_request, taken);
        if (made === null) throw new Error(`snapshot ${i + 1} of ${plan.snapshots_count} was not taken`);
      }
      into.small_request.rounds.push(taken);
      writeBack();
      await rounds(into);
    }),
  );
}

/** A third of the changes each changes, adds and deletes a file. They are spread over all directories. */
function changesScript(count: number, directories_count: number): string {
  const lines = Array.from({ length: count }, (_, i) => {
    const directory = `d${i % directories_count}`;
    const file = `${directory}/f${String(Math.floor(i / directories_count)).padStart(3, "0")}`;
    return [`echo new > ${file}`, `echo new > ${directory}/new${i}`, `rm ${file}`][i % 3];
  });
  return [`cd ${SMALL_DIRECTORY}`, ...lines].join("; ");
}

async function measureDiffs(client: SnapshotClient, plan: SnapshotsPlan, into: Samples): Promise<void> {
  const { small_files_count: count, changes_count, rounds_count, diffs_per_round } = plan;
  const per_directory = 1_000;
  const id = await client.create();
  await fill(client, id, { directory: SMALL_DIRECTORY, count, bytes: SMALL_BYTES, per_directory });
  const before = await client.take(id);
  await client.shell(id, changesScript(changes_count, Math.ceil(count / per_directory)));
  const after = await client.take(id);
  const diff = async (): Promise<void> => {
    const found = await client.diff(before.snapshot_id, after.snapshot_id);
    const wanted = [0, 1, 2].map((kind) => Math.floor((changes_count + 2 - kind) / 3));
    const got = [found.changed_count, found.added_count, found.deleted_count];
    if (got.join() !== wanted.join()) throw new Error(`changed, added, deleted: ${got} instead of ${wanted}`);
  };
  for (let i = 0; i < WARMUP_COUNT; i++) await timed(diff, into, []);
  for (let round = 0; round < rounds_count; round++) {
    const samples: number[] = [];
    for (let i = 0; i < diffs_per_round; i++) {
      await pause(REST_MS);
      await timed(diff, into, samples);
    }
    into.rounds.push(samples);
  }
  for (const { snapshot_id } of [before, after]) await client.deleteSnapshot(snapshot_id);
  await client.delete(id);
}

async function measureForks(client: SnapshotClient, plan: SnapshotsPlan, into: Subjects): Promise<void> {
  const { rounds_count, files_count: count, file_bytes: bytes, takes_per_round } = plan;
  const id = await client.create();
  await fill(client, id, { directory: FILES_DIRECTORY, count, bytes, per_directory: 100 });
  const warmup = () => new Samples("warm-up");
  await takeBlock(client, id, WARMUP_COUNT, { pause: warmup(), request: warmup(), unfrozen_count: 0 }, warmup());
  await forkRound(client, id, WARMUP_COUNT, { fork: warmup(), create: warmup() });
  const blocks = [
    () => takeBlock(client, id, takes_per_round, into.resting, into.removal),
    () =>
      whileWriting(client, id, into.written, () => takeBlock(client, id, takes_per_round, into.writing, into.removal)),
  ];
  for (let i = 0; i < rounds_count; i++) {
    for (const block of i % 2 === 0 ? blocks : blocks.toReversed()) await block();
  }
  await poolMbAtRest(client.daemon, FREED_MS);
  for (let i = 0; i < rounds_count; i++) await forkRound(client, id, plan.forks_per_round, into);
  for (let i = 0; i < rounds_count; i++) await crowdRound(client, id, plan.forks_at_once, into);
  await client.delete(id);
}

interface StartSubjects {
  readonly start_without: Samples;
  readonly start_beside: Samples;
  readonly create_without: Samples;
  readonly create_beside: Samples;
}

interface Subjects extends ForkSubjects, StartSubjects {
  readonly resting: Takes;
  readonly writing: Takes;
  readonly removal: Samples;
  readonly written: Samples;
  readonly crowd: Samples;
  readonly disk: Samples;
  readonly small_request: Samples;
  readonly control_start_without: Samples;
  readonly control_start_beside: Samples;
  readonly control_create_without: Samples;
  readonly control_create_beside: Samples;
  readonly diff: Samples;
}

function takesOf(state: string): Takes {
  return {
    pause: new Samples(`pause, ${state}`),
    request: new Samples(`snapshot until the answer, ${state}`),
    unfrozen_count: 0,
  };
}

function subjectsOf(plan: SnapshotsPlan): Subjects {
  const { forks_at_once, snapshots_count, small_files_count, changes_count } = plan;
  const beside = `with ${snapshots_count} snapshots in the pool`;
  return {
    resting: takesOf("the container rests"),
    writing: takesOf("a process in it writes"),
    removal: new Samples("deletion of a snapshot"),
    written: new Samples("written by that process", "MB/s"),
    fork: new Samples("fork until ready"),
    create: new Samples("create until ready"),
    crowd: new Samples(`${forks_at_once} forks in one request`),
    disk: new Samples(`disk that ${forks_at_once} forks add before they write`, "MB"),
    start_without: new Samples("start, no snapshots"),
    start_beside: new Samples(`start ${beside}`),
    create_without: new Samples("create, no snapshots"),
    create_beside: new Samples(`create ${beside}`),
    small_request: new Samples(
      `snapshot until the answer, the 1st to the ${snapshots_count}th of an unchanged container`,
    ),
    control_start_without: new Samples("control: start, first daemon"),
    control_start_beside: new Samples("control: start, second daemon before the snapshots"),
    control_create_without: new Samples("control: create, first daemon"),
    control_create_beside: new Samples("control: create, second daemon before the snapshots"),
    diff: new Samples(`diff of ${small_files_count} files with ${changes_count} changes`),
  };
}

function barsOf(plan: SnapshotsPlan, into: Subjects): Bar[] {
  const { forks_at_once, snapshots_count } = plan;
  const beside = `with ${snapshots_count} snapshots in the pool, p50, of without`;
  const disk_mb = into.disk.rounds.flat();
  return [
    timeBar("pause, the container rests, p50", into.resting.pause, "p50", 50),
    timeBar("pause, a process in it writes, p50", into.writing.pause, "p50", 50),
    countBar("taken without a freeze", into.resting.unfrozen_count + into.writing.unfrozen_count, " snapshots"),
    ratioBar("fork until ready, p50, of a create", into.fork, into.create, "p50", 1.3),
    timeBar(`${forks_at_once} forks in one request, slowest round`, into.crowd, "max", 2_000),
    {
      label: `disk that ${forks_at_once} forks add, largest round`,
      value: disk_mb.length === 0 ? Number.NaN : Math.max(...disk_mb),
      bar: DISK_BAR_MB,
      compare: "at most",
      unit: " MB",
      rounds: disk_mb,
    },
    ratioBar(`start ${beside}`, into.start_beside, into.start_without, "p50", 1.1),
    ratioBar(`create ${beside}`, into.create_beside, into.create_without, "p50", 1.1),
    timeBar(`${into.diff.label}, p50`, into.diff, "p50", 1_000),
  ];
}

export async function benchSnapshots(plan: SnapshotsPlan): Promise<Section> {
  const into = subjectsOf(plan);
  await withSnapshotClient(async (client) => {
    await measureForks(client, plan, into);
    await measureDiffs(client, plan, into.diff);
  });
  await measureStarts(plan, into);
  const { files_count, file_bytes, snapshots_count, small_files_count } = plan;
  const megabytes = Math.round((files_count * file_bytes) / 1e6);
  const { resting, writing, ...others } = into;
  const subjects: Samples[] = [
    resting.pause,
    writing.pause,
    resting.request,
    writing.request,
    ...Object.values(others),
  ];
  return {
    title: `Snapshots (ms unless said otherwise): a container of prod with ${megabytes} MB of its own in ${files_count} files`,
    method:
      "Pause: metadata.pause_ms of the snapshot, as the daemon measures it from the freeze to the thaw; null, if the processes do not " +
      "freeze in time, and counted apart. The process that writes " +
      `replaces ${BUSY_FILES} files of 1 MB in turn without a rest. Until the answer: POST …/snapshot?execution=sync, with the files ` +
      "written, the bytes counted and the row committed. Each snapshot is deleted before the next. Fork: POST " +
      "…/fork?execution=sync with resume_policy immediate until the answer, which is sent when the fork runs, answers and has its " +
      "network; create: POST /api/containers until the same. Both on one kept-alive connection in turn, " +
      `${REST_MS} ms of rest before each, deleted outside the time. Disk: what is in use of the storage pool's file system, before ` +
      "the request, when deleted files are freed, and after it. Many snapshots: two daemons run side by side, and their samples " +
      `alternate; the second takes ${snapshots_count} snapshots of its container. The control is the same before that, so its figures differ by noise alone. A start is that ` +
      `of the container that was stopped. Diff: GET …/diff/… of two snapshots of a container with ${small_files_count} files of ` +
      `${SMALL_BYTES} bytes, 1,000 a directory; the changes, additions and deletions are spread over all directories and counted in ` +
      "each answer.",
    rows: subjects.map((samples) => samples.row()),
    bars: barsOf(plan, into),
    comparisons: [timeComparison("fork until ready, p99, of a create", into.fork, into.create, "p99")],
    plots: [
      distribution("Pause", [into.resting.pause, into.writing.pause]),
      distribution("Fork and create", [into.fork, into.create]),
      distribution("Start and create beside snapshots", [
        into.start_without,
        into.start_beside,
        into.create_without,
        into.create_beside,
      ]),
    ],
    ...evidence(subjects),
  };
}
