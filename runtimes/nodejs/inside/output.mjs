/**
 * process.stdout and process.stderr: output goes to the call in whose asynchronous context it was written. Output outside of
 * any call in flight belongs to the instance.
 *
 * O1 What was written is out of the process when the write returns: it outlives whatever ends the process next.
 * O2 The only call of the process writes to descriptors 1 and 2 themselves, in order with whatever else writes to them. minit
 *    gives it what comes from there. Other output goes in frames, which name its call.
 */
import { writeSync } from "node:fs";
import { Writable } from "node:stream";
import { pause } from "./wire.mjs";

const STDOUT = 1;
const STDERR = 2;
/** Output bytes of one call that are passed on. minit and the daemon keep at most 1 MiB, and see that there was more. */
const BYTES_MAX = 1024 * 1024 + 64 * 1024;
/** Waits of a millisecond for a descriptor that a child process made non-blocking, and that is full. */
const WAITS_MAX = 1000;

export class Output {
  #wire;
  #contexts;

  constructor(wire, contexts) {
    this.#wire = wire;
    this.#contexts = contexts;
    this.#define("stdout", STDOUT);
    this.#define("stderr", STDERR);
  }

  /** Writes a text to the standard error of a call, or of the instance. */
  error(call, text) {
    this.#send(call, STDERR, Buffer.from(text));
  }

  /** Writes a text to the standard error of a call that was answered: the daemon adds it to the record. */
  late(call, text) {
    this.#wire.log(call.id, STDERR, Buffer.from(text));
  }

  #send(call, stream, bytes) {
    if (call === undefined || call.isDone) {
      this.#wire.log(0, stream, bytes);
      return;
    }
    const left = BYTES_MAX - call.log_bytes;
    if (left <= 0) return;
    const kept = bytes.length > left ? bytes.subarray(0, left) : bytes;
    call.log_bytes += kept.length;
    const written = call.isSole ? writeAll(stream, kept) : 0;
    if (written < kept.length) this.#wire.log(call.id, stream, kept.subarray(written));
  }

  /** The streams are made when they are used first. */
  #define(name, fd) {
    let stream;
    const get = () => {
      stream ??= this.#stream(fd);
      return stream;
    };
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get });
  }

  #stream(fd) {
    const write = (bytes, _encoding, done) => {
      this.#send(this.#contexts.getStore(), fd, bytes);
      done();
    };
    // As the streams of Node, they cannot be closed.
    const stream = new Writable({ write, decodeStrings: true, emitClose: false, autoDestroy: false });
    const stay = () => stream;
    stream.end = (chunk, encoding, done) => {
      const last = [chunk, encoding, done].find((value) => typeof value === "function");
      if (chunk !== null && chunk !== undefined && typeof chunk !== "function") stream.write(chunk, encoding);
      if (last !== undefined) process.nextTick(last);
      return stream;
    };
    return Object.assign(stream, { fd, _type: "pipe", _isStdio: true, destroy: stay, destroySoon: stay });
  }
}

/** O2. Returns how many bytes the descriptor took: fewer than all if the function closed it, or nobody reads it. */
function writeAll(fd, bytes) {
  let at = 0;
  for (let waits = 0; at < bytes.length && waits < WAITS_MAX; ) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") return at;
      pause();
      waits++;
    }
  }
  return at;
}
