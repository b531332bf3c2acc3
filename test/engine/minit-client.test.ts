/** The client against a peer that is not minit: what it may be sent, and what ends the connection. */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { bareFrame, FRAME, FrameReader, FrameWriter } from "../../src/engine/minit/frames.ts";
import { MinitClient } from "../../src/engine/minit/instance-client.ts";
import type { CallOutcome, ExecOutcome, ExecRequest } from "../../src/engine/ports.ts";

const CAP_BYTES = 1_000;

const request: ExecRequest = {
  argv: ["true"],
  environment: [],
  working_directory: "",
  timeout_ms: 1_000,
  stdout_bytes_max: CAP_BYTES,
  stderr_bytes_max: CAP_BYTES,
  wipe: true,
  payload: "",
};

let folder: string;
let server: Server;
let client: MinitClient;
/** The peer's end. */
let peer: Socket;
/** Those of the peer's READY. */
let flags = 0;
/** Ids of the commands and calls that the peer was sent. */
let asked: (id: number) => void;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "hearth-client-"));
  const path = join(folder, "socket");
  server = createServer((socket) => {
    peer = socket;
    socket.on("error", () => {});
    const reader = new FrameReader((type, id) => {
      if (type === FRAME.EXEC || type === FRAME.CALL_BEGIN) asked(id);
    });
    socket.on("data", (chunk) => reader.push(chunk));
    socket.write(new FrameWriter(FRAME.READY, 0, 24).u32(2).raw(Buffer.alloc(16, 0xab)).u32(flags).buffer);
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const connected = await MinitClient.connect(path, 5_000, systemClock);
  expect([connected.nonce, connected.isIdle]).toEqual(["ab".repeat(16), true]);
  client = connected.client;
});

afterEach(() => {
  client.close();
  peer.destroy();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

const output = (type: number, id: number, text: string): Buffer =>
  new FrameWriter(type, id, Buffer.byteLength(text)).text(text).buffer;
const exit = (id: number): Buffer => new FrameWriter(FRAME.EXIT, id, 44).raw(Buffer.alloc(44)).buffer;
const idle = (id: number): Buffer => bareFrame(FRAME.IDLE, id);

/** Runs a command that the peer answers with these frames, in one write. */
function exec(answer: (id: number) => readonly Buffer[]): Promise<ExecOutcome> {
  asked = (id) => peer.write(Buffer.concat(answer(id)));
  return client.execSole(request);
}

/** Calls a resident process whose result the peer answers with these texts, in one write. */
function callResident(texts: readonly string[]): Promise<CallOutcome> {
  const process = { argv: ["true"], environment: [], working_directory: "", concurrency: 1, open_timeout_ms: 1_000 };
  const call = { payload: Buffer.alloc(0), timeout_ms: 0, result_bytes_max: CAP_BYTES, log_bytes_max: 0 };
  asked = (id) => {
    const chunks = texts.map((text) => output(FRAME.CALL_CHUNK, id, text));
    peer.write(Buffer.concat([...chunks, new FrameWriter(FRAME.CALL_RESULT, id, 16).raw(Buffer.alloc(16)).buffer]));
  };
  return client.serve(process, () => {}).call(call);
}

describe("a client of minit", () => {
  it("hands over output up to the caps, in however many pieces, and says when the instance is idle", async () => {
    const outcome = await exec((id) => [
      ...Array.from({ length: CAP_BYTES }, (_, i) => output(FRAME.STDOUT, id, String(i % 10))),
      ...Array.from({ length: 1_000 }, () => output(FRAME.STDOUT, id, "")),
      output(FRAME.STDERR, id, "e".repeat(CAP_BYTES)),
      exit(id),
      idle(id),
    ]);
    expect(outcome.stdout).toBe("0123456789".repeat(CAP_BYTES / 10));
    expect(outcome.stderr).toBe("e".repeat(CAP_BYTES));
    await outcome.idle;
    expect(client.isOpen).toBe(true);
  });

  it("hands over the result of a call up to its cap, in however many pieces", async () => {
    const { result } = await callResident(Array.from({ length: CAP_BYTES }, (_, i) => String(i % 10)));
    expect(result.toString()).toBe("0123456789".repeat(CAP_BYTES / 10));
  });

  it("ends the connection and the call after a result above the cap", async () => {
    await expect(callResident(["x".repeat(CAP_BYTES), "x"])).rejects.toMatchObject({
      code: "INTERNAL",
      message: expect.stringContaining("minit violated the protocol"),
    });
    expect(client.isOpen).toBe(false);
  });

  it("puts characters together that two frames have cut", async () => {
    const bytes = Buffer.from("é");
    const half = (id: number, at: number) =>
      new FrameWriter(FRAME.STDOUT, id, 1).raw(bytes.subarray(at, at + 1)).buffer;
    const outcome = await exec((id) => [half(id, 0), half(id, 1), exit(id), idle(id)]);
    expect(outcome.stdout).toBe("é");
  });

  it.each<[string, (id: number) => readonly Buffer[]]>([
    [
      "more standard output than the cap",
      (id) => [output(FRAME.STDOUT, id, "x".repeat(CAP_BYTES)), output(FRAME.STDOUT, id, "x"), exit(id), idle(id)],
    ],
    ["more standard error than the cap", (id) => [output(FRAME.STDERR, id, "x".repeat(CAP_BYTES + 1)), exit(id)]],
    ["IDLE before EXIT", (id) => [idle(id), exit(id)]],
    ["an EXIT that is too short", (id) => [new FrameWriter(FRAME.EXIT, id, 43).raw(Buffer.alloc(43)).buffer]],
    ["an ERROR without its number", (id) => [bareFrame(FRAME.ERROR, id)]],
    ["another READY with another version", (id) => [new FrameWriter(FRAME.READY, id, 24).u32(1).buffer]],
  ])("ends the connection and the command after %s", async (_what, answer) => {
    const closed = new Promise<void>((resolve) => client.onClosed(resolve));
    await expect(exec(answer)).rejects.toMatchObject({
      code: "INTERNAL",
      message: expect.stringContaining("minit violated the protocol"),
    });
    await closed;
    expect(client.isOpen).toBe(false);
  });

  it.each<[string, (id: number) => Buffer]>([
    ["a second EXIT", exit],
    ["output", (id) => output(FRAME.STDOUT, id, "late")],
    ["an ERROR", (id) => new FrameWriter(FRAME.ERROR, id, 4).u32(5).buffer],
  ])("keeps the outcome but never calls the instance idle when %s follows the EXIT", async (_what, late) => {
    const outcome = await exec((id) => [output(FRAME.STDOUT, id, "out"), exit(id), late(id), idle(id)]);
    expect(outcome.stdout).toBe("out");
    await expect(outcome.idle).rejects.toThrow("minit violated the protocol");
    expect(client.isOpen).toBe(false);
  });

  it("refuses a command that minit refuses, and goes on", async () => {
    const refused = exec((id) => [new FrameWriter(FRAME.ERROR, id, 4).u32(16).buffer]);
    await expect(refused).rejects.toThrow("minit refused the command (errno 16)");
    expect((await exec((id) => [exit(id), idle(id)])).exit_code).toBe(0);
  });

  it.each([1, 2, 3])("knows from flags %i of READY that the instance is not idle and clean", async (bits) => {
    flags = bits;
    const other = await MinitClient.connect(join(folder, "socket"), 5_000, systemClock);
    flags = 0;
    expect(other.isIdle).toBe(false);
    other.client.close();
  });

  it("tells who listens only afterwards that the connection has ended", async () => {
    const first = new Promise<void>((resolve) => client.onClosed(resolve));
    peer.destroy();
    await first;
    await new Promise<void>((resolve) => client.onClosed(resolve));
  });

  it("drops answers to nothing", async () => {
    const outcome = await exec((id) => [idle(id + 1), exit(id + 1), output(FRAME.STDOUT, 99, "x"), exit(id), idle(id)]);
    await outcome.idle;
    expect(outcome.stdout).toBe("");
  });
});
