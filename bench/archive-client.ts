/**
 * Sends or takes an archive as a program would: `node bench/archive-client.ts` reads one `ArchiveJob` from standard input
 * and prints one `ArchiveResult`. A process of its own, so that its memory and its pauses are not the daemon's.
 *
 * What it sends costs it next to nothing: one block of text over and over, in gzip packed once and sent as members, which
 * one gzip stream may hold any number of (RFC 1952).
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { request } from "node:http";
import type { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { tarEnd, tarHeader } from "../src/engine/files/tar.ts";
import { seededRandom } from "./stats.ts";

export interface ArchiveJob {
  /** `unpack`: sent to `tar` in place of a daemon, into the directory `path`. */
  readonly kind: "upload" | "download" | "unpack";
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly is_gzip: boolean;
  readonly files_count: number;
  readonly file_mb: number;
}

export interface ArchiveResult {
  /** On the wire. */
  readonly byte_count: number;
  /** From the first byte of the request to the last of the answer. */
  readonly duration_ms: number;
}

const MIB = 1024 * 1024;
const SEED = 51;
/** 64 characters: gzip takes a quarter of them away. */
const FIRST_CHARACTER = 48;

function content(): Buffer {
  const random = seededRandom(SEED);
  return Buffer.from(Uint8Array.from({ length: MIB }, () => FIRST_CHARACTER + Math.floor(random() * 64)));
}

/** The archive in pieces: files of `file_mb` MiB, without padding because they are whole blocks. */
function* archive({ files_count, file_mb, is_gzip }: ArchiveJob): Generator<Buffer> {
  const block = is_gzip ? gzipSync(content(), { level: 1 }) : content();
  const packed = (bytes: Buffer): Buffer => (is_gzip ? gzipSync(bytes, { level: 1 }) : bytes);
  for (let i = 0; i < files_count; i++) {
    const entry = { type: "file", name: `data/file-${i}`, link: "", size: file_mb * MIB, mode: 0o644 } as const;
    yield packed(tarHeader({ ...entry, uid: 0, gid: 0, mtime_ms: 1.7e12 }));
    for (let j = 0; j < file_mb; j++) yield block;
  }
  yield packed(tarEnd());
}

async function write(job: ArchiveJob, to: Writable): Promise<number> {
  let byte_count = 0;
  for (const piece of archive(job)) {
    byte_count += piece.length;
    if (!to.write(piece)) await once(to, "drain");
  }
  to.end();
  return byte_count;
}

function upload(job: ArchiveJob): Promise<ArchiveResult> {
  const { port, path } = job;
  const type = job.is_gzip ? "application/gzip" : "application/x-tar";
  return new Promise((resolve, reject) => {
    const headers = { ...job.headers, "content-type": type };
    const begun_ms = performance.now();
    const sent = request({ host: "127.0.0.1", port, path, method: "POST", headers });
    const written = write(job, sent);
    sent.once("response", async (response) => {
      const words = await text(response);
      if (response.statusCode !== 200) return reject(new Error(`status ${response.statusCode}: ${words}`));
      resolve({ byte_count: await written, duration_ms: performance.now() - begun_ms });
    });
    sent.on("error", reject);
    written.catch(reject);
  });
}

function download({ port, path, headers }: ArchiveJob): Promise<ArchiveResult> {
  return new Promise((resolve, reject) => {
    const begun_ms = performance.now();
    const sent = request({ host: "127.0.0.1", port, path, headers }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
      let byte_count = 0;
      response.on("data", (chunk: Buffer) => {
        byte_count += chunk.length;
      });
      response.on("error", reject);
      response.on("end", () => resolve({ byte_count, duration_ms: performance.now() - begun_ms }));
    });
    sent.on("error", reject);
    sent.end();
  });
}

async function unpack(job: ArchiveJob): Promise<ArchiveResult> {
  const begun_ms = performance.now();
  const flags = job.is_gzip ? "-xzf" : "-xf";
  const tar = spawn("tar", ["-C", job.path, "--no-same-owner", flags, "-"], { stdio: ["pipe", "ignore", "inherit"] });
  const ended = once(tar, "close");
  const byte_count = await write(job, tar.stdin);
  const [code] = await ended;
  if (code !== 0) throw new Error(`tar exited with ${code}`);
  return { byte_count, duration_ms: performance.now() - begun_ms };
}

const job = JSON.parse(await text(process.stdin)) as ArchiveJob;
const work = { upload, download, unpack }[job.kind];
process.stdout.write(JSON.stringify(await work(job)));
