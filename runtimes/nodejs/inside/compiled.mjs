/**
 * The code cache of a version: what V8 compiled of its modules, and TypeScript without its types. The first process of the
 * version answers its bind with the cache; the daemon sends it to later processes with theirs (envelope.ts). Node itself
 * exchanges caches with a directory, which exists while the module is loaded.
 *
 * C1 A cache is made before the process serves a call.
 * C2 Whatever is wrong with a cache, the module is loaded: Node compiles what it does not find. Node takes no cache of another
 *    version or another source.
 * C3 A cache is at most as large as the heap, and exists three times in memory. So a process has room for four heaps, or makes
 *    none. Its successors have the same limit.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

/** As large as an answer may be. */
const CACHE_BYTES_MAX = 1024 * 1024;
const ROOM_HEAPS = 4;
const MEGABYTE = 1024 * 1024;

/** Returns what Node names a directory after: its version, the processor, V8's version and flags. The uid comes last. */
const tagOf = (directory) => basename(directory).replace(/-\d+$/u, "");

/** Modules of Node that only versions with a cache load. An import of node:module takes a tenth of the start of a process. */
const builtin = (name) => process.getBuiltinModule(name);

/**
 * Makes Node look for the code cache in a directory from now on: one in `root`, whose name tells the version of Node. Undefined
 * if the function forbids it (NODE_DISABLE_COMPILE_CACHE). Throws errors of the file system.
 */
function enable(parent) {
  const root = mkdtempSync(join(parent, ".hearth-"));
  const { enableCompileCache, getCompileCacheDir } = builtin("node:module");
  enableCompileCache(root);
  return { root, directory: getCompileCacheDir() };
}

function unpack(cache, directory, memory_limit_mb) {
  const chunkSize = cache.readUInt32LE(0);
  const maxOutputLength = (memory_limit_mb * MEGABYTE) / ROOM_HEAPS;
  if (chunkSize > maxOutputLength) return;
  // One piece of output: many small ones take twice the time.
  const raw = builtin("node:zlib").zstdDecompressSync(cache.subarray(4), { chunkSize, maxOutputLength });
  const { tag, files } = builtin("node:v8").deserialize(raw);
  if (tag !== tagOf(directory)) return;
  for (const [name, content] of files) writeFileSync(join(directory, basename(name)), content);
}

function pack(directory, memory_limit_mb) {
  const { heapUsed, rss } = process.memoryUsage();
  if (heapUsed * ROOM_HEAPS > memory_limit_mb * MEGABYTE - rss) return null;
  builtin("node:module").flushCompileCache();
  const files = readdirSync(directory).map((name) => [name, readFileSync(join(directory, name))]);
  const raw = builtin("node:v8").serialize({ tag: tagOf(directory), files });
  const packed = Buffer.concat([Buffer.alloc(4), builtin("node:zlib").zstdCompressSync(raw)]);
  packed.writeUInt32LE(raw.length);
  return packed.length > CACHE_BYTES_MAX ? null : packed;
}

/** Runs `work` where it may fail: a process without a code cache serves as well. */
function attempt(work) {
  try {
    return work();
  } catch {
    return null;
  }
}

/**
 * Runs `load` with `cache`, the bytes of an earlier answer; with none, `isWanted` says if the process makes one. Resolves to what
 * `load` does, and the new cache or null. `cache` is read before the first await.
 */
export async function loadCompiled(load, cache, { isWanted, parent, memory_limit_mb }) {
  if (cache.length === 0 && !isWanted) return { loaded: await load(), made: null };
  const { root, directory } = attempt(() => enable(parent)) ?? {};
  try {
    if (cache.length > 0 && directory !== undefined) attempt(() => unpack(cache, directory, memory_limit_mb));
    const loaded = await load();
    const isMaker = cache.length === 0 && directory !== undefined;
    return { loaded, made: isMaker ? attempt(() => pack(directory, memory_limit_mb)) : null };
  } finally {
    if (root !== undefined) attempt(() => rmSync(root, { recursive: true, force: true }));
  }
}
