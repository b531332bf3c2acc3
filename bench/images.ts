/**
 * Images of registries: how long a pull takes, what a container costs by its image, and how much disk containers of one image add.
 *
 * Both sides pull the same image from one registry on loopback, in turn. Images are removed between rounds, and dirty pages are
 * written before each sample, so that nobody waits for what the other side wrote. A container's time is the client's, as in
 * containers.ts; samples of different images alternate.
 */
import { execFileSync } from "node:child_process";
import { machineMs, pause } from "./clock.ts";
import { type Daemon, installedImages, withDaemon } from "./daemon.ts";
import { poolMb, writeBack } from "./disk.ts";
import { Connection } from "./http.ts";
import { type BenchImages, serveImages } from "./image-content.ts";
import { BuildahPeer } from "./image-peer.ts";
import { measureRebuilds, type RebuildSubjects } from "./rebuilds.ts";
import { distribution, evidence, pairedBar, ratioBar, Samples, type Section, timeComparison } from "./report.ts";
import { median } from "./stats.ts";

/** As before cold calls, and for the same reason (cold.ts). */
const REST_MS = 50;
const WARMUP_COUNT = 2;

export interface ImagesPlan {
  readonly rounds_count: number;
  readonly layers_count: number;
  readonly layer_mb: number;
  readonly stacked_count: number;
  readonly starts_per_round: number;
  /** Containers of one image whose disk is measured. */
  readonly shared_count: number;
}

/** The API as the section calls it. */
class Client {
  readonly daemon: Daemon;
  #connection: Connection | null = null;
  #made_count = 0;

  constructor(daemon: Daemon) {
    this.daemon = daemon;
  }

  /** By fetch: the answer of a long pull comes in chunks, which `Connection` does not read. */
  async pull(reference: string): Promise<true> {
    const { port, headers } = this.daemon;
    const answer = await fetch(`http://127.0.0.1:${port}/api/oci/images/pull`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify({ reference }),
    });
    const text = await answer.text();
    if (answer.status !== 200 || JSON.parse(text).success !== true) throw new Error(`pull of ${reference}: ${text}`);
    return true;
  }

  async removeImage(reference: string): Promise<void> {
    await this.#call("DELETE", `/api/oci/images?reference=${encodeURIComponent(reference)}`, null);
  }

  /** `image`: a reference, or null for the profile `prod`. */
  async create(image: string | null): Promise<string> {
    const of = image === null ? { image: "prod" } : { image, oci: true, command: [], entrypoint: [] };
    const body = { name: `i-${this.#made_count++}`, ...of };
    const record = (await this.#call("POST", "/api/containers", body)) as { container_id: string; exec_ready: boolean };
    if (!record.exec_ready) throw new Error(`container of ${image ?? "prod"} was answered and is not ready`);
    return record.container_id;
  }

  async delete(id: string): Promise<void> {
    await this.#call("DELETE", `/api/containers/${id}`, null);
  }

  close(): void {
    this.#connection?.close();
  }

  async #call(method: string, path: string, body: object | null): Promise<unknown> {
    // The server ends one that was not used for a minute.
    if (this.#connection?.isOpen !== true) this.#connection = await Connection.open(this.daemon.port);
    return this.daemon.callOn(this.#connection, method, path, body);
  }
}

/** Puts the milliseconds of `work` into `samples`, or its failure into the subject's books. Null: it failed. */
export async function timed<T>(work: () => Promise<T>, into: Samples, samples: number[]): Promise<T | null> {
  const begun_ms = machineMs();
  try {
    const result = await work();
    samples.push(machineMs() - begun_ms);
    return result;
  } catch (error) {
    into.fail(String(error));
    return null;
  }
}

interface PullSubjects {
  readonly hearth: Samples;
  readonly buildah: Samples;
  readonly first: Samples;
  readonly second: Samples;
}

/** Pulls by both sides, and the first two containers of the image that hearth pulled. The image is removed at the end. */
async function pullRound(client: Client, peer: BuildahPeer, reference: string, into: PullSubjects, isEven: boolean) {
  const own = async (): Promise<void> => {
    const samples = { pull: [] as number[], first: [] as number[], second: [] as number[] };
    writeBack();
    const pulled = await timed(() => client.pull(reference), into.hearth, samples.pull);
    into.hearth.rounds.push(samples.pull);
    if (pulled === null) return;
    const ids: string[] = [];
    for (const [subject, list] of [
      [into.first, samples.first],
      [into.second, samples.second],
    ] as const) {
      await pause(REST_MS);
      const id = await timed(() => client.create(reference), subject, list);
      if (id !== null) ids.push(id);
      subject.rounds.push(list);
    }
    for (const id of ids) await client.delete(id);
    await client.removeImage(reference);
  };
  const theirs = async (): Promise<void> => {
    writeBack();
    // The launcher's own time.
    const duration_ms = await peer.pull(reference).catch((error) => into.buildah.fail(String(error)));
    into.buildah.rounds.push(typeof duration_ms === "number" ? [duration_ms] : []);
    if (typeof duration_ms === "number") await peer.remove(reference);
  };
  for (const side of isEven ? [own, theirs] : [theirs, own]) await side();
}

/** Images, null for the profile, with their samples. */
type Starts = readonly (readonly [image: string | null, into: Samples])[];

/** Containers of each image in turn, while one container of each lives: its image is cached. */
async function startRounds(client: Client, plan: ImagesPlan, starts: Starts): Promise<void> {
  const living: string[] = [];
  for (const [image] of starts) living.push(await client.create(image));
  const sample = async (image: string | null, into: Samples, samples: number[]): Promise<void> => {
    await pause(REST_MS);
    const id = await timed(() => client.create(image), into, samples);
    if (id !== null) await client.delete(id);
  };
  for (const [image] of starts) {
    for (let i = 0; i < WARMUP_COUNT; i++) await sample(image, new Samples("warm-up"), []);
  }
  for (let round = 0; round < plan.rounds_count; round++) {
    const rounds = starts.map(() => [] as number[]);
    for (let i = 0; i < plan.starts_per_round; i++) {
      const order = starts.map((one, at) => ({ one, samples: rounds[at] ?? [] }));
      for (const { one, samples } of (round + i) % 2 === 0 ? order : order.toReversed()) {
        await sample(one[0], one[1], samples);
      }
    }
    for (const [at, [, into]] of starts.entries()) into.rounds.push(rounds[at] ?? []);
  }
  for (const id of living) await client.delete(id);
}

/** Megabytes that the storage pool and the store of images take on the disk. */
function diskMb(daemon: Daemon): number {
  const store_bytes = Number(execFileSync("du", ["-sxB1", installedImages()]).toString().split("\t")[0]);
  return poolMb(daemon) + store_bytes / 1e6;
}

/** What containers of one image add to the disk. One lives before, which mounts the image. */
async function diskRound(client: Client, image: string, { shared_count }: ImagesPlan, into: Samples): Promise<void> {
  const ids = [await client.create(image)];
  const before_mb = diskMb(client.daemon);
  while (ids.length <= shared_count) ids.push(await client.create(image));
  into.rounds.push([diskMb(client.daemon) - before_mb]);
  for (const id of ids) await client.delete(id);
}

async function measure(client: Client, peer: BuildahPeer, images: BenchImages, plan: ImagesPlan, into: Subjects) {
  const { large, single, stacked } = images;
  // The first of each side is warm-up: it pays for the first time of both.
  await client.pull(single);
  await peer.pull(single);
  for (let i = 0; i < plan.rounds_count; i++) await pullRound(client, peer, large, into, i % 2 === 0);
  for (const reference of [large, stacked]) await client.pull(reference);
  const starts: Starts = [
    [null, into.prod],
    [single, into.single],
    [stacked, into.stacked],
    [large, into.large],
  ];
  await startRounds(client, plan, starts);
  await diskRound(client, large, plan, into.disk);
  await measureRebuilds(client.daemon, peer, plan, into);
  for (const reference of [large, stacked, single]) await client.removeImage(reference);
}

interface Subjects extends PullSubjects, RebuildSubjects {
  readonly prod: Samples;
  readonly single: Samples;
  readonly stacked: Samples;
  readonly large: Samples;
  readonly disk: Samples;
}

export async function benchImages(plan: ImagesPlan): Promise<Section> {
  const { layers_count, layer_mb, stacked_count, shared_count } = plan;
  const shape = `${Math.round(layers_count * layer_mb)} MB, ${layers_count} layers`;
  const into: Subjects = {
    hearth: new Samples(`pull, ${shape}`),
    buildah: new Samples(`buildah pull, ${shape}`),
    first: new Samples("first container after the pull"),
    second: new Samples("second container after the pull"),
    prod: new Samples("container of prod"),
    single: new Samples("container of an image of 1 layer"),
    stacked: new Samples(`container of an image of ${stacked_count} layers`),
    large: new Samples(`container of the image of ${shape}`),
    disk: new Samples(`disk that ${shared_count} containers of one image add`, "MB"),
    rebuilt: new Samples("second build of an unchanged file of ten steps"),
    buildah_rebuilt: new Samples("buildah build --layers of the same"),
  };
  const images = await serveImages(plan);
  try {
    await withDaemon({ cells: 0 }, async (daemon) => {
      const peer = await BuildahPeer.open();
      const client = new Client(daemon);
      try {
        await measure(client, peer, images, plan, into);
      } finally {
        client.close();
        await peer.close();
      }
    });
  } finally {
    await images.registry.dispose();
  }
  const subjects = Object.values(into) as Samples[];
  return {
    title: "Images (ms unless said otherwise): pulls from a registry on loopback, containers of images",
    method:
      `hearth: POST /api/oci/images/pull with the operator's key until the answer: every layer checked, the row committed. ` +
      "buildah: `buildah pull`, the same driver of the store, timed by a C process from fork to exit. Both from Debian's " +
      `docker-registry, over plain HTTP, in alternating order; ${images.layers_mb.toFixed(0)} MB of files of /usr/lib in gzip, images ` +
      `removed between rounds, dirty pages written before each pull. Containers: POST /api/containers until the 201, ${REST_MS} ms ` +
      "of rest before each, those of different images in turn while another container of each image runs. Disk: what is in " +
      "use of the storage pool's file system, and du of the store of images. Builds: five COPY of twenty files each and five settings, " +
      "no RUN; hearth's time includes the upload of the folder, buildah reads it from the disk.",
    rows: subjects.map((samples) => samples.row()),
    bars: [
      pairedBar(`pull of ${shape}, of buildah pull`, into.hearth, into.buildah, "p50", 1.2),
      pairedBar("first container after a pull, of the second", into.first, into.second, "p50", 1.5),
      ratioBar("container of a cached image, p50, of one of prod", into.single, into.prod, "p50", 1.1),
      ratioBar(`container of ${stacked_count} layers, p50, of one of 1 layer`, into.stacked, into.single, "p50", 1.2),
      {
        label: `disk that ${shared_count} containers of one image add`,
        value: median(into.disk.rounds.flat()),
        bar: 20,
        compare: "at most",
        unit: " MB",
        rounds: into.disk.rounds.flat(),
      },
      pairedBar("second build of ten steps, of buildah build --layers", into.rebuilt, into.buildah_rebuilt, "p50", 1.2),
    ],
    comparisons: [timeComparison(`container of ${shape}, p50, of one of 1 layer`, into.large, into.single, "p50")],
    plots: [
      distribution("Pull", [into.hearth, into.buildah]),
      distribution("Container by its image", [into.prod, into.single, into.stacked, into.large]),
    ],
    ...evidence(subjects),
  };
}
