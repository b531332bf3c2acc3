/**
 * Archives of a gigabyte into a volume and into a container that runs, and out again: how fast, and how much the daemon
 * grows meanwhile. Its peak is the kernel's own (VmHWM, set back before each transfer), so none is missed between two
 * looks. All growths are from one moment: when a smaller archive has been uploaded, which pays for what comes once and
 * stays. What a transfer leaves in the heap so counts for those after it, too.
 */
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { ArchiveJob, ArchiveResult } from "./archive-client.ts";
import { runClient } from "./baselines.ts";
import { createContainer } from "./containers.ts";
import { type Daemon, withDaemon } from "./daemon.ts";
import { Connection } from "./http.ts";
import { daemonPeakMb, daemonRssMb, resetPeak } from "./memory.ts";
import { type Comparison, countBar, evidence, Samples, type Section } from "./report.ts";

const BAR_MB = 64;
const FILE_MB = 16;
const WARM_UP = "into a volume, tar";
/** Files are of MiB, rates of MB. */
const MB_PER_MIB = (1024 * 1024) / 1e6;

export interface ArchivePlan {
  readonly rounds_count: number;
  readonly files_count: number;
  readonly warmup_files_count: number;
}

/** One way of an archive. `unpack` is the peer: the same bytes to `tar`. */
class Way {
  readonly rate: Samples;
  readonly growth: Samples;
  readonly #job: Omit<ArchiveJob, "files_count">;

  constructor(label: string, job: Pick<ArchiveJob, "kind" | "path" | "is_gzip">, daemon: Daemon) {
    const name = `${label}, ${job.is_gzip ? "tar.gz" : "tar"}`;
    this.rate = new Samples(name, "MB/s");
    this.growth = new Samples(`growth of the daemon: ${name}`, "MB");
    this.#job = { ...job, port: daemon.port, headers: daemon.headers, file_mb: FILE_MB };
  }

  get isPeer(): boolean {
    return this.#job.kind === "unpack";
  }

  /** Resolves to MB a second of the files' content, whatever the archive makes of it. */
  async run(files_count: number): Promise<number> {
    const result = await runClient<ArchiveResult>("archive-client.ts", { ...this.#job, files_count });
    const content_mb = files_count * FILE_MB * MB_PER_MIB;
    if (!this.#job.is_gzip && result.byte_count < content_mb * 1e6) throw new Error(`${result.byte_count} bytes came`);
    return content_mb / (result.duration_ms / 1_000);
  }

  async measure(daemon: Daemon, files_count: number, before_mb: number): Promise<void> {
    resetPeak(daemon);
    try {
      this.rate.rounds.push([await this.run(files_count)]);
      if (!this.isPeer) this.growth.rounds.push([daemonPeakMb(daemon) - before_mb]);
    } catch (error) {
      this.rate.fail(String(error));
    }
  }
}

function waysOf(daemon: Daemon, container_id: string, directory: string): Way[] {
  const places = [
    ["volume", "/api/volumes/archive/archive"],
    ["container", `/api/containers/${container_id}/archive`],
  ] as const;
  return [false, true].flatMap((is_gzip) => [
    new Way("unpacked by tar", { kind: "unpack", path: directory, is_gzip }, daemon),
    ...places.flatMap(([place, path]) => {
      const up = `${path}?execution=sync&path=/data`;
      const down = `${path}?path=/data&format=${is_gzip ? "tar.gz" : "tar"}`;
      return [
        new Way(`into a ${place}`, { kind: "upload", path: up, is_gzip }, daemon),
        new Way(`out of a ${place}`, { kind: "download", path: down, is_gzip }, daemon),
      ];
    }),
  ]);
}

async function measure(daemon: Daemon, plan: ArchivePlan): Promise<Way[]> {
  const connection = await Connection.open(daemon.port);
  const container_id = await createContainer(daemon, connection, "archive");
  connection.close();
  await daemon.call("POST", "/api/volumes", { name: "archive" });
  const directory = join(daemon.data_dir, "unpacked");
  mkdirSync(directory);
  const ways = waysOf(daemon, container_id, directory);
  await ways.find(({ rate }) => rate.label === WARM_UP)?.run(plan.warmup_files_count);
  const before_mb = daemonRssMb(daemon);
  for (let round = 0; round < plan.rounds_count; round++) {
    // What is taken out has to be there, so the order of the ways of a place stays.
    for (const way of ways) await way.measure(daemon, plan.files_count, before_mb);
  }
  rmSync(directory, { recursive: true });
  return ways;
}

/** How what goes into a volume fares beside tar. */
function comparison(ways: readonly Way[], format: string): Comparison {
  const find = (name: string) =>
    ways.find(({ rate }) => rate.label === `${name}, ${format}`)?.rate ?? new Samples(name);
  const [own, theirs] = [find("into a volume"), find("unpacked by tar")];
  const rounds = own.rounds.map(([rate = 0], i) => rate / (theirs.rounds[i]?.[0] ?? Number.NaN));
  const value = own.summary().p50 / theirs.summary().p50;
  return { label: `into a volume, ${format}, rate, of tar -x`, value, better: "higher", rounds };
}

export async function benchArchive(plan: ArchivePlan): Promise<Section> {
  const ways = await withDaemon({ cells: 0 }, (daemon) => measure(daemon, plan));
  const growths = ways.filter(({ isPeer }) => !isPeer).map(({ growth }) => growth);
  const largest_mb = Math.max(...growths.map((growth) => growth.summary().max));
  const subjects = [...ways.map(({ rate }) => rate), ...growths];
  const size = `${plan.files_count * FILE_MB} MiB`;
  return {
    title: `Archives (MB/s of content): ${size} in files of ${FILE_MB} MiB`,
    method:
      "POST and GET …/archive; the client is a process of its own, which sends one block of text over and over (gzip " +
      "takes a quarter of it). The time runs from the request to the end of the answer, which comes when all is there. " +
      "Growth: the kernel's peak of the daemon's resident memory over what it was after a first, small upload. `tar -x` is " +
      "sent the same bytes by the same client and writes to the file system that the storage pool lies on.",
    rows: subjects.map((samples) => samples.row()),
    bars: [countBar(`growth of the daemon at ${size}, the largest of all ways`, largest_mb, " MB", BAR_MB)],
    comparisons: [comparison(ways, "tar"), comparison(ways, "tar.gz")],
    ...evidence(subjects),
  };
}
