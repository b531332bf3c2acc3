/** Attaching to the main command of `minit container`, on real processes. */
import { rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { systemClock as clock } from "../../src/base/clock.ts";
import { readExitRecord, SegmentedLog } from "../../src/engine/containers/log.ts";
import { openAttach, openExec, shutdown } from "../../src/engine/minit/container-client.ts";
import { FRAME, FrameWriter } from "../../src/engine/minit/frames.ts";
import type { ExecListener, OutputStream } from "../../src/engine/ports.ts";
import { type Container, children, ENVIRONMENT, eventually, Native, readText } from "../support/native.ts";

const HELD = ["--hold", "600000"];

let native: Native;
beforeAll(async () => {
  native = await Native.start();
});
afterAll(() => native?.stop());

/** Keeps what it is given; with `isSlow` it takes nothing after the first piece until `exec.resume()`. */
function attach({ path }: Pick<Container, "path">, { has_stdin = false, isSlow = false } = {}) {
  const parts: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  const listener: ExecListener = {
    onOutput: (stream, chunk) => {
      parts[stream].push(Buffer.from(chunk));
      return !isSlow;
    },
  };
  const exec = openAttach(path, { has_stdin }, listener, clock);
  const bytes = (stream: OutputStream = "stdout") => Buffer.concat(parts[stream]);
  return { exec, bytes, text: (stream?: OutputStream) => bytes(stream).toString("utf8") };
}

const numbers = (size: number) => Array.from({ length: size }, (_, i) => `${i + 1}\n`).join("");
const logOf = ({ log_paths }: Container) => new SegmentedLog(async () => log_paths, clock).tail({ limit: 10_000 });
const isOver = ({ pid }: Container) => children(pid).length === 0;

describe("the reader that is attached", () => {
  it("gets all output of a command that has ended before, and its end; the log has it too", async () => {
    const container = await native.container(["sh", "-c", "seq 1 5000; echo oops >&2; exit 7"], { flags: HELD });
    await eventually("the command has ended", () => isOver(container));
    expect(readText(container.exit_path)).toBe("");
    const { exec, text } = attach(container);
    expect((await exec.exited).exit_code).toBe(7);
    expect([text(), text("stderr")]).toEqual([numbers(5000), "oops\n"]);
    await native.endSpawn(container.ended);
    expect(await readExitRecord(container.exit_path)).toMatchObject({ exit_code: 7, asked: false });
    expect(await logOf(container)).toHaveLength(5001);
  });

  it("holds the command back, and the end of the container, until it has taken the output", async () => {
    const container = await native.container(["seq", "1", "400000"], { flags: HELD });
    const { exec, text } = attach(container, { isSlow: true });
    await exec.started;
    expect(isOver(container)).toBe(false);
    const pushing = setInterval(() => exec.resume(), 1);
    expect((await exec.exited.finally(() => clearInterval(pushing))).exit_code).toBe(0);
    expect(text() === numbers(400_000)).toBe(true);
  });

  it("that nobody waited for is detached where it takes nothing; one that takes goes on", async () => {
    const script = "until [ -e $0 ]; do sleep 0.05; done; yes | head -c 20000000; echo over; exec sleep 1000";
    const go = `/var/tmp/hearth-go-${process.pid}`;
    const container = await native.container(["sh", "-c", script, go], { flags: ["--stall", "200"] });
    const { exec, bytes } = attach(container, { isSlow: true });
    const ended = exec.exited.catch((error: unknown) => error);
    await exec.started;
    writeFileSync(go, "");
    try {
      // The command goes on, with the log as its reader.
      await eventually("the command is over", async () => (await logOf(container)).at(-1)?.message === "over");
      // What it took in the end is whole up to where it was cut, and it is told.
      const pushing = setInterval(() => exec.resume(), 1);
      expect(await ended).toMatchObject({ code: "REQUEST_TIMEOUT", message: expect.stringContaining("is detached") });
      clearInterval(pushing);
      expect(bytes().length).toBeLessThan(20_000_000);
      expect(bytes().every((byte, i) => byte === (i % 2 === 0 ? 0x79 : 0x0a))).toBe(true);
      const next = attach(container);
      await next.exec.started;
      next.exec.close();
    } finally {
      rmSync(go, { force: true });
      await shutdown(container.path, 20_000, clock);
    }
  });

  it("does not hold up a container that is asked to end", async () => {
    const container = await native.container(["yes"], { flags: HELD });
    const { exec } = attach(container, { isSlow: true });
    exec.exited.catch(() => {});
    await exec.started;
    await shutdown(container.path, 20_000, clock);
    expect(await readExitRecord(container.exit_path)).toMatchObject({ exit_code: 137, asked: true });
    exec.close();
  });

  it("writes the standard input, which ends with the reader", async () => {
    const container = await native.container(["sh", "-c", "cat; echo over"], { flags: [...HELD, "--stdin"] });
    const first = attach(container, { has_stdin: true });
    await first.exec.started;
    const sent = Buffer.alloc(3_000_000, "x\n");
    first.exec.write(sent);
    await eventually("it comes back", () => first.bytes().length === sent.length);
    first.exec.close();
    await native.endSpawn(container.ended);
    expect((await logOf(container)).at(-1)).toMatchObject({ message: "over" });
  });

  it("ends or writes no input that it did not ask for, and leaves it to the next one", async () => {
    const container = await native.container(["sh", "-c", "echo up; cat; echo over"], { flags: [...HELD, "--stdin"] });
    const looking = attach(container);
    await eventually("it looks", () => looking.text() === "up\n");
    looking.exec.write(Buffer.from("forged\n"));
    looking.exec.endStdin();
    looking.exec.close();
    looking.exec.exited.catch(() => {});
    const writing = await eventually("the next is let in", async () => {
      const next = attach(container, { has_stdin: true });
      return next.exec.started.then(
        () => next,
        () => null,
      );
    });
    writing.exec.write(Buffer.from("own\n"));
    await eventually("it comes back", () => writing.text() === "own\n");
    writing.exec.endStdin();
    await writing.exec.exited;
    expect(writing.text()).toBe("own\nover\n");
  });

  it("is one, and its place is free after it", async () => {
    const container = await native.container(["sh", "-c", "echo up; exec sleep 1000"], { flags: HELD });
    const first = attach(container);
    await eventually("the first has it", () => first.text() === "up\n");
    await expect(attach(container).exec.started).rejects.toMatchObject({ code: "IN_USE" });
    first.exec.close();
    first.exec.exited.catch(() => {});
    const next = await eventually("the next is let in", async () => {
      const { exec } = attach(container);
      return exec.started.then(
        () => exec,
        () => null,
      );
    });
    await shutdown(container.path, 20_000, clock);
    expect((await next.exited).exit_code).toBe(137);
    const idle = await native.container(null);
    await expect(attach(idle).exec.started).rejects.toMatchObject({ code: "WRONG_STATE" });
    await shutdown(idle.path, 20_000, clock);
  });

  it("is not waited for beyond the time of the start, nor once the container is asked to end", async () => {
    const late = await native.container(["echo", "hello"], { flags: ["--hold", "50"] });
    await native.endSpawn(late.ended);
    expect(await logOf(late)).toMatchObject([{ message: "hello" }]);
    const asked = await native.container(["echo", "hello"], { flags: HELD });
    await eventually("the command has ended", () => isOver(asked));
    await shutdown(asked.path, 20_000, clock);
    expect(await logOf(asked)).toMatchObject([{ message: "hello" }]);
  });
});

describe("a container of an earlier minit", () => {
  it("is sent nothing that it does not know, and its clients are told", async () => {
    const path = `/var/tmp/hearth-earlier-${process.pid}`;
    const received: Buffer[] = [];
    // The greeting of that version, which knows no later flag.
    const greeting = new FrameWriter(FRAME.READY, 0, 24).u32(2).raw(Buffer.alloc(16)).u32(0).buffer;
    const server = createServer((socket) => {
      socket.on("data", (bytes: Buffer) => received.push(bytes)).on("error", () => {});
      socket.write(greeting);
    }).listen(path);
    const request = {
      ...{ argv: ["id"], environment: ENVIRONMENT, working_directory: "/", timeout_ms: 0, grace_ms: 0 },
      ...{ output_bytes_max: null, is_stream: true, user: "nobody" },
    };
    const refused = { code: "WRONG_STATE", hint: expect.stringContaining("stop and start") };
    try {
      await expect(attach({ path }).exec.started).rejects.toMatchObject(refused);
      const exec = openExec(path, request, { onOutput: () => true }, clock);
      await expect(exec.exited).rejects.toMatchObject(refused);
      expect(received).toEqual([]);
    } finally {
      server.close();
    }
  });
});
