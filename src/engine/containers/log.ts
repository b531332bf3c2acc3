/**
 * Reads what minit writes on the host about the main command of a container: its log, a ring of segment files, and its
 * exit record. runtimes/minit/protocol.h describes both; log.c writes them. Reading needs no minit.
 *
 * G1 A line is given only where its seal and its number fit: a torn end, a write under way and a segment that is
 *    reused while it is read end what is read of that segment, and nothing wrong is given.
 * G2 Numbers of lines only go up. A gap in them says that the ring went round in between.
 * G3 At most one segment and the lines of one answer are in memory, however large the files are: their writer is the
 *    container's first process, which is not trusted.
 */
import { type FileHandle, open } from "node:fs/promises";
import { giveBack } from "../../base/buffer-memory.ts";
import type { Clock, EpochMs } from "../../base/clock.ts";
import { AppError } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import { type TransferTurn, UNBOUNDED_TURN } from "../../base/transfer-turns.ts";
import type { ContainerLog, ExitRecord, LogLine, LogStream, TailOptions } from "../ports/containers.ts";

const HEAD_BYTES = 16;
const ENTRY_BYTES = 24;
const SEAL_BYTES = 4;
const PIECE_BYTES_MAX = 16 * 1024;
const LOG_MAGIC = 0x474f_4c48;
const LOG_VERSION = 1;
const FLAG_PARTIAL = 1;
const FLAG_GAP = 2;

/** ECMA-262, 21.4.1.1: the last moment that a Date has. */
const EPOCH_MS_MAX = 8.64e15;

const RECORD_BYTES = 32;
const RECORD_MAGIC = 0x5449_5845;
const RECORD_VERSION = 1;
const RECORD_ASKED = 1;
const RECORD_NO_COMMAND = 2;
const RECORD_NOT_STARTED = 4;

const STREAMS: readonly LogStream[] = ["minit", "stdout", "stderr"];

/** Returns the end of the entry at `at`. 0: there is none, or not yet a whole one, or not that number. */
function entryEnd(bytes: Buffer, at: number, seq: number): number {
  if (bytes.length - at < ENTRY_BYTES + SEAL_BYTES) return 0;
  const length = bytes.readUInt32LE(at);
  const end = at + ENTRY_BYTES + length + SEAL_BYTES;
  if (length > PIECE_BYTES_MAX || end > bytes.length || seqAt(bytes, at) !== seq) return 0;
  return bytes.readUInt32LE(end - SEAL_BYTES) === (length ^ (seq & 0xffff_ffff)) >>> 0 ? end : 0;
}

/** The file may have changed since its lines were found. */
function isEntry(bytes: Buffer, at: number): boolean {
  return bytes.length - at >= ENTRY_BYTES + SEAL_BYTES && entryEnd(bytes, at, seqAt(bytes, at)) !== 0;
}

/** As a number: it is exact up to 2^53, which no log reaches. */
function seqAt(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at + 8) + bytes.readUInt32LE(at + 12) * 2 ** 32;
}

/** Every number is a date. */
function timeAt(bytes: Buffer, at: number): EpochMs {
  return Math.min((bytes.readUInt32LE(at + 16) + bytes.readUInt32LE(at + 20) * 2 ** 32) / 1000, EPOCH_MS_MAX);
}

const isGap = (bytes: Buffer, at: number): boolean => ((bytes[at + 5] ?? 0) & FLAG_GAP) !== 0;

function lineAt(bytes: Buffer, at: number): LogLine {
  const begin = at + ENTRY_BYTES;
  return {
    seq: seqAt(bytes, at),
    at_ms: timeAt(bytes, at),
    stream: STREAMS[bytes[at + 4] ?? 0] ?? "minit",
    message: bytes.toString("utf8", begin, begin + bytes.readUInt32LE(at)),
    partial: ((bytes[at + 5] ?? 0) & FLAG_PARTIAL) !== 0,
    ...(isGap(bytes, at) ? { is_gap: true as const } : {}),
  };
}

/** The number of the segment's first line. 0: it holds none. */
function firstSeq(head: Buffer): number {
  const isHead =
    head.length >= HEAD_BYTES && head.readUInt32LE(0) === LOG_MAGIC && head.readUInt32LE(4) === LOG_VERSION;
  return isHead ? seqAt(head, 0) : 0;
}

async function readAt(file: FileHandle, at: number, bytes_max: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(bytes_max), 0, bytes_max, at);
  return buffer.subarray(0, bytesRead);
}

interface Segment {
  readonly file: FileHandle;
  readonly first_seq: number;
}

/** Reads a segment into `memory`, which its caller gives back. Empty where it was reused: its lines are newer than all others. */
async function bytesOf({ file, first_seq }: Segment, memory: Buffer): Promise<Buffer> {
  const { bytesRead } = await file.read(memory, 0, memory.length, 0);
  const bytes = memory.subarray(0, bytesRead);
  return firstSeq(bytes) === first_seq ? bytes : bytes.subarray(0, 0);
}

/** Those that hold lines, oldest first. */
async function readHeads(files: readonly FileHandle[]): Promise<Segment[]> {
  const heads = await Promise.all(
    files.map(async (file) => ({ file, first_seq: firstSeq(await readAt(file, 0, HEAD_BYTES)) })),
  );
  return heads.filter((head) => head.first_seq > 0).sort((a, b) => a.first_seq - b.first_seq);
}

/** Lines of a segment that are asked for, as their places in it, oldest first. */
interface Wanted {
  readonly segment: Segment;
  readonly places: Uint32Array;
  /** Older segments hold none. */
  readonly isDone: boolean;
}

/** Finds the newest `limit` lines of a segment that are asked for. */
async function find(segment: Segment, limit: number, options: TailOptions): Promise<Wanted> {
  const { since_ms = 0, after_seq = 0, is_own = false, turn = UNBOUNDED_TURN } = options;
  const memory = Buffer.allocUnsafeSlow(LIMITS.log_segment_bytes_max);
  // A ring. An array of the places of all lines would be a megabyte of the heap.
  const ring = new Uint32Array(limit);
  let count = 0;
  let isDone = segment.first_seq <= after_seq + 1;
  try {
    const bytes = await bytesOf(segment, memory);
    let [begin, turn_end] = [HEAD_BYTES, 0];
    for (let seq = segment.first_seq; ; seq++) {
      if (begin >= turn_end) {
        // A segment of short lines has a hundred thousand.
        await turn.pass(LIMITS.turn_piece_bytes);
        turn_end = begin + LIMITS.turn_piece_bytes;
      }
      const end = entryEnd(bytes, begin, seq);
      if (end === 0) break;
      const isNew = timeAt(bytes, begin) >= since_ms;
      if (!isNew) isDone = true;
      const isWanted = !is_own || STREAMS[bytes[begin + 4] ?? 0] !== "minit" || isGap(bytes, begin);
      if (isNew && isWanted && seq > after_seq) ring[count++ % limit] = begin;
      begin = end;
    }
  } finally {
    giveBack(memory);
  }
  const oldest = count <= limit ? 0 : count % limit;
  const places = new Uint32Array(Math.min(count, limit));
  places.set(ring.subarray(oldest, places.length));
  places.set(ring.subarray(0, oldest), places.length - oldest);
  return { segment, places, isDone };
}

/** Yields lines that were found. The segment is read again: what is in memory meanwhile is bounded (G3). */
async function* read({ segment, places }: Wanted, turn: TransferTurn): AsyncGenerator<LogLine[], void, undefined> {
  if (places.length === 0) return;
  const memory = Buffer.allocUnsafeSlow(LIMITS.log_segment_bytes_max);
  try {
    const bytes = await bytesOf(segment, memory);
    if (bytes.length === 0) return;
    let piece: LogLine[] = [];
    let piece_bytes = 0;
    for (const place of places) {
      if (!isEntry(bytes, place)) break;
      piece.push(lineAt(bytes, place));
      piece_bytes += bytes.readUInt32LE(place) + LIMITS.turn_item_bytes;
      if (piece.length < LIMITS.turn_items && piece_bytes < LIMITS.turn_piece_bytes) continue;
      await turn.pass(piece_bytes);
      yield piece;
      piece = [];
      piece_bytes = 0;
    }
    if (piece.length > 0) yield piece;
  } finally {
    giveBack(memory);
  }
}

/** Finds the newest lines that are asked for, oldest segment first. */
async function findAll(files: readonly FileHandle[], options: TailOptions): Promise<Wanted[]> {
  let left = Math.min(options.limit, LIMITS.log_lines_max);
  const found: Wanted[] = [];
  for (const segment of (await readHeads(files)).reverse()) {
    if (left <= 0) break;
    const wanted = await find(segment, left, options);
    found.unshift(wanted);
    left -= wanted.places.length;
    if (wanted.isDone) break;
  }
  return found;
}

export class SegmentedLog implements ContainerLog {
  readonly #paths: () => Promise<readonly string[]>;
  readonly #clock: Clock;

  /** `paths`: the segments in the order in which minit got them. */
  constructor(paths: () => Promise<readonly string[]>, clock: Clock) {
    this.#paths = paths;
    this.#clock = clock;
  }

  async tail(options: TailOptions): Promise<LogLine[]> {
    const lines: LogLine[] = [];
    for await (const piece of this.tailPieces(options)) lines.push(...piece);
    return lines;
  }

  async *tailPieces(options: TailOptions): AsyncGenerator<readonly LogLine[], void, undefined> {
    const files = await openAll(await this.#paths());
    try {
      const found = await findAll(files, options);
      for (const wanted of found) yield* read(wanted, options.turn ?? UNBOUNDED_TURN);
    } finally {
      await closeAll(files);
    }
  }

  async firstSeq(options: TailOptions): Promise<number | null> {
    const files = await openAll(await this.#paths());
    try {
      for (const { segment, places } of await findAll(files, options)) {
        const [place] = places;
        if (place === undefined) continue;
        const head = await readAt(segment.file, place, ENTRY_BYTES);
        // Null: its file was cut meanwhile.
        return head.length === ENTRY_BYTES ? seqAt(head, 0) : null;
      }
      return null;
    } finally {
      await closeAll(files);
    }
  }

  async *follow(
    after_seq: number,
    signal: AbortSignal,
    turn: TransferTurn = UNBOUNDED_TURN,
  ): AsyncGenerator<LogLine, void, undefined> {
    const files = await openAll(await this.#paths());
    try {
      const [first] = files;
      if (first === undefined) return;
      let place: Place | null = null;
      let seq = after_seq + 1;
      let pause_ms: number = LIMITS.log_poll_ms_min;
      while (!signal.aborted) {
        place ??= placeOf(await readHeads(files), seq);
        // One call for each look: there may be a thousand followers.
        const { size, nlink } = await (place?.file ?? first).stat();
        const lines: LogLine[] = place === null ? [] : await readOn(place, size, turn);
        for (const line of lines) {
          if (signal.aborted) return;
          if (line.seq < seq) continue;
          yield line;
          seq = line.seq + 1;
        }
        if (lines.length > 0) {
          pause_ms = LIMITS.log_poll_ms_min;
          continue;
        }
        if (place === null || size !== place.at || isFull(place)) {
          const next = placeOf(await readHeads(files), seq);
          if (next !== null && next.segment_seq !== place?.segment_seq) {
            place = next;
            continue;
          }
        }
        if (nlink === 0) return;
        await this.#pause(pause_ms, signal);
        pause_ms = Math.min(pause_ms * 2, LIMITS.log_poll_ms_max);
      }
    } finally {
      await closeAll(files);
    }
  }

  #pause(delay_ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const cancel = this.#clock.after(delay_ms, done);
      signal.addEventListener("abort", done);
    });
  }
}

/** Position of a follower: before the entry `seq` at `at` of a segment. */
interface Place {
  readonly file: FileHandle;
  readonly segment_seq: number;
  at: number;
  seq: number;
}

/**
 * Returns the segment that `seq` is in or will be in: the newest that begins at or before it, or the oldest if the ring
 * has wrapped since.
 */
function placeOf(segments: readonly Segment[], seq: number): Place | null {
  const found = segments.findLast((segment) => segment.first_seq <= seq) ?? segments[0];
  if (found === undefined) return null;
  return { file: found.file, segment_seq: found.first_seq, at: HEAD_BYTES, seq: found.first_seq };
}

/** Returns true if the next line may not fit into the segment any more. */
const isFull = ({ at }: Place): boolean =>
  at + ENTRY_BYTES + PIECE_BYTES_MAX + SEAL_BYTES > LIMITS.log_segment_bytes_max;

/** Lines behind a place of a segment that is `size` bytes long. */
async function readOn(place: Place, size: number, turn: TransferTurn): Promise<LogLine[]> {
  if (size <= place.at) return [];
  await turn.take(Math.min(size - place.at, LIMITS.log_read_bytes));
  const bytes = await readAt(place.file, place.at, Math.min(size - place.at, LIMITS.log_read_bytes));
  const lines: LogLine[] = [];
  let begin = 0;
  for (;;) {
    const end = entryEnd(bytes, begin, place.seq);
    if (end === 0) break;
    lines.push(lineAt(bytes, begin));
    begin = end;
    place.seq++;
  }
  place.at += begin;
  return lines;
}

async function openAll(paths: readonly string[]): Promise<FileHandle[]> {
  const files: FileHandle[] = [];
  try {
    for (const path of paths) files.push(await open(path, "r"));
    return files;
  } catch (error) {
    await closeAll(files);
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

async function closeAll(files: readonly FileHandle[]): Promise<void> {
  await Promise.all(files.map((file) => file.close()));
}

/**
 * Reads the end of the container's last run. Null: it runs, or its minit was killed before it wrote a record. Rejects with
 * INTERNAL if there is no such file and `isReached` says that its directory may be out of reach.
 */
export async function readExitRecord(path: string, isReached = () => true): Promise<ExitRecord | null> {
  let file: FileHandle;
  try {
    file = await open(path, "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    if (!isReached()) throw new AppError("INTERNAL", "the launcher exited while an exit record was read");
    return null;
  }
  const bytes = await readAt(file, 0, RECORD_BYTES).finally(() => file.close());
  const isRecord =
    bytes.length >= RECORD_BYTES && bytes.readUInt32LE(0) === RECORD_MAGIC && bytes.readUInt32LE(4) === RECORD_VERSION;
  if (!isRecord) return null;
  const flags = bytes.readUInt32LE(16);
  return {
    // As the kernel has them, whatever the file says.
    exit_code: bytes.readUInt32LE(8) & 0xff,
    signal: bytes.readUInt32LE(12) & 0x7f,
    ended_at_ms: Math.min(Number(bytes.readBigUInt64LE(24)) / 1000, EPOCH_MS_MAX),
    asked: (flags & RECORD_ASKED) !== 0,
    has_command: (flags & RECORD_NO_COMMAND) === 0,
    is_started: (flags & RECORD_NOT_STARTED) === 0,
  };
}
