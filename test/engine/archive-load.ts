/** Moves one large archive through a process of its own, and prints how long that took and how its memory grew. */
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { giveBack } from "../../src/base/buffer-memory.ts";
import { systemClock } from "../../src/base/clock.ts";
import { extract, pack } from "../../src/engine/files/archive.ts";
import { HelperSession } from "../../src/engine/files/file-sessions.ts";
import { type TarEntry, tarEnd, tarHeader } from "../../src/engine/files/tar.ts";
import { LauncherClient, LauncherProcess } from "../../src/engine/launcher/launcher.ts";

const MIB = 2 ** 20;
const FILES = 16;
const FILE_BYTES = 64 * MIB;
const ENTRIES = 100_000;
const ENTRY: TarEntry = { type: "file", name: "", link: "", size: 0, mode: 0o644, uid: 0, gid: 0, mtime_ms: 1e12 };

const [minit = "", directory = "", mode = ""] = process.argv.slice(2);
const root = join(directory, "load");

/** As a body comes from a socket: a new piece of 64 KiB each. */
async function* content() {
  for (let file = 0; file < FILES; file++) {
    yield tarHeader({ ...ENTRY, name: `d/f${file}`, size: FILE_BYTES });
    for (let at = 0; at < FILE_BYTES; at += 64 * 1024) {
      const piece = Buffer.allocUnsafeSlow(64 * 1024).fill(`${at} `);
      // A socket gives other work a turn between two reads.
      await new Promise((resolve) => setImmediate(resolve));
      yield piece;
    }
  }
  yield tarEnd();
}

async function* entries() {
  for (let i = 0; i < ENTRIES; i += 100) {
    const batch = Buffer.allocUnsafeSlow(100 * 512);
    for (let j = 0; j < 100; j++) tarHeader({ ...ENTRY, name: `d${i % 1000}/entry-${i + j}` }).copy(batch, j * 512);
    await new Promise((resolve) => setImmediate(resolve));
    yield batch;
  }
  yield tarEnd();
}

async function* small() {
  yield tarHeader({ ...ENTRY, name: "warm" });
  yield tarEnd();
}

const memory_kb = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);

if (mode === "source") {
  await pipeline(Readable.from(content()), createGzip({ level: 1 }), process.stdout);
  process.exit(0);
}

mkdirSync(root, { recursive: true });
const socket_path = join(directory, "load.sock");
const launching = await LauncherProcess.start(minit, socket_path, false, systemClock);
const launcher = new LauncherClient(socket_path, systemClock);
// In memory, so that the measure is not the disk's.
const mount = ["mount", "-t", "tmpfs", "-o", "size=2g", "none", root];
await launcher.run(mount, 5_000);
const session = await HelperSession.open({
  launcher,
  minit,
  root,
  socket_path: `${socket_path}.f`,
  clock: systemClock,
});
// What is loaded and compiled for the first archive is not what a large one takes.
await extract(session, small(), { path: "/" });
for (let i = 0; i < FILES && mode === "pack"; i++) {
  await launcher.run(["truncate", "-s", String(FILE_BYTES), join(root, `f${i}`)], 5_000);
}

const before_kb = memory_kb();
let peak_kb = before_kb;
const timer = setInterval(() => {
  peak_kb = Math.max(peak_kb, memory_kb());
}, 5);
const started = performance.now();
let bytes = 0;
if (mode === "tar") bytes = (await extract(session, content(), { path: "/" })).byte_count;
else if (mode === "gzip") {
  // Packed by another process, whose memory is not counted.
  const packer = spawn(process.execPath, [import.meta.filename, "", "", "source"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  bytes = (await extract(session, packer.stdout, { path: "/" })).byte_count;
} else if (mode === "entries") bytes = (await extract(session, entries(), { path: "/" })).entry_count;
else {
  for await (const piece of pack(session, "/")) {
    bytes += piece.length;
    // As an answer does with what it has sent: V8 alone looks at such memory when it is some 64 MB.
    giveBack(piece);
  }
  bytes = Math.floor(bytes / MIB) * MIB;
}
const seconds = (performance.now() - started) / 1000;
clearInterval(timer);
peak_kb = Math.max(peak_kb, memory_kb());
if (mode === "tar" && (await session.stat("d/f0")).size !== FILE_BYTES) bytes = -1;
session.close();
launcher.close();
await launching.stop(systemClock);
rmSync(root, { recursive: true });
process.stdout.write(JSON.stringify({ growth_mb: (peak_kb - before_kb) / 1024, seconds, bytes }));
