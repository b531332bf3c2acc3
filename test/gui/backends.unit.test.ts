/** Connections to RFB servers of containers, which answer whatever they want. */
import { describe, expect, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Backends } from "../../src/gui/backends.ts";
import { HandClock, settled } from "../pool/hand-clock.ts";
import { type Connection, FakeContainer, GREETING } from "../support/fake-backend.ts";

const RUN = { environment: [], working_directory: "/", timeout_ms: 0, grace_ms: 0 };

const complain = (connection: Connection) =>
  void Array.from({ length: 3 }, () => connection.complain(Buffer.alloc(LIMITS.gui_complaint_bytes_max / 2)));

function made() {
  const container = new FakeContainer();
  const clock = new HandClock();
  return { container, clock, backends: new Backends({ containers: container.port, clock }) };
}

describe("a check of a desktop", () => {
  it("is true if the server greets, and holds for a second", async () => {
    const { container, clock, backends } = made();
    container.serve = (connection) => connection.send(GREETING);
    expect(backends.wasReachable("ctr_a")).toBe(false);
    expect(await Promise.all([backends.isReachable("ctr_a"), backends.isReachable("ctr_a")])).toEqual([true, true]);
    expect(await backends.isReachable("ctr_a")).toBe(true);
    expect(container.connections).toHaveLength(1);
    expect(container.connections[0]?.isClosed).toBe(true);
    await clock.pass(LIMITS.gui_check_cached_ms);
    container.serve = (connection) => connection.end();
    expect(await backends.isReachable("ctr_a")).toBe(false);
    expect(container.connections).toHaveLength(2);
  });

  it("does not hold for another run of the container", async () => {
    const { container, backends } = made();
    container.serve = (connection) => connection.send(GREETING);
    expect(await backends.isReachable("ctr_a")).toBe(true);
    container.pid = 4_712;
    expect(backends.wasReachable("ctr_a")).toBe(false);
    container.pid = null;
    expect(await backends.isReachable("ctr_a")).toBe(false);
  });

  const WRONG: readonly (readonly [string, (connection: Connection) => void])[] = [
    ["ends at once", (connection) => connection.end()],
    ["greets otherwise", (connection) => connection.send(Buffer.from("HTTP/1.1 400\r\n"))],
    ["has another version", (connection) => connection.send(Buffer.from("RFB 003.003\n"))],
    ["floods its standard error", (connection) => complain(connection)],
    ["floods", (connection) => void Array.from({ length: 200 }, () => connection.send(Buffer.alloc(65_536, "x")))],
  ];
  it.each(WRONG)("is false for a server that %s", async (_, serve) => {
    const { container, backends } = made();
    container.serve = serve;
    expect(await backends.isReachable("ctr_a")).toBe(false);
    expect(container.connections[0]?.isClosed).toBe(true);
  });

  it("is false for a server that hangs or drips, after its deadline", async () => {
    for (const drip of ["", "RFB 003"]) {
      const { container, clock, backends } = made();
      container.serve = (connection) => connection.send(Buffer.from(drip));
      const asked = backends.isReachable("ctr_a");
      await settled();
      await settled();
      await clock.pass(LIMITS.gui_check_ms);
      expect(await asked).toBe(false);
      expect(container.connections[0]?.isClosed).toBe(true);
    }
  });
});

describe("a connection to a desktop", () => {
  it("passes bytes behind the handshake to its listener, and the early ones too", async () => {
    const container = new FakeContainer();
    const backends = new Backends({ containers: container.port, clock: systemClock });
    container.serve = (connection) => connection.send(GREETING);
    container.answer = (connection) => {
      if (connection.received.length === 1) connection.send(Buffer.from([1, 1]));
      if (connection.received.length === 2) connection.send(Buffer.concat([Buffer.alloc(4), Buffer.from("early")]));
    };
    const backend = await backends.connect("ctr_a", RUN);
    const [connection] = container.connections;
    expect(connection?.isPaused).toBe(true);
    const heard: string[] = [];
    backend.begin({
      onBytes: (bytes) => heard.push(bytes.toString()) > 0,
      onDrain: () => {},
      onClosed: () => heard.push("closed"),
    });
    expect([heard, connection?.isPaused]).toEqual([["early"], false]);
    connection?.send(Buffer.from("later"));
    connection?.end();
    await new Promise(setImmediate);
    expect(heard).toEqual(["early", "later", "closed"]);
  });

  it("ends, before its handshake and behind it, when the command floods its standard error", async () => {
    const { container, backends } = made();
    container.serve = complain;
    await expect(backends.connect("ctr_a", RUN)).rejects.toMatchObject({ code: "NOT_RESPONDING" });
    container.behave();
    const backend = await backends.connect("ctr_a", RUN);
    const heard: string[] = [];
    backend.begin({ onBytes: () => true, onDrain: () => {}, onClosed: () => heard.push("closed") });
    const [, connection] = container.connections;
    connection?.complain(Buffer.from("a few words"));
    expect(heard).toEqual([]);
    if (connection !== undefined) complain(connection);
    await new Promise(setImmediate);
    expect([heard, container.connections.map(({ isClosed }) => isClosed)]).toEqual([["closed"], [true, true]]);
  });

  const REFUSING: readonly (readonly [string, readonly Buffer[]])[] = [
    ["another version", [Buffer.from("RFB 004.001\n")]],
    ["no security type", [GREETING, Buffer.from([0, 0, 0, 0, 2, 0x6e, 0x6f])]],
    ["a password", [GREETING, Buffer.from([1, 2])]],
    ["a failure", [GREETING, Buffer.from([1, 1]), Buffer.from([0, 0, 0, 1])]],
    ["types without end", [GREETING, Buffer.alloc(LIMITS.gui_handshake_bytes_max, 255), Buffer.alloc(512, 255)]],
  ];
  it.each(REFUSING)("is refused by %s", async (_, answers) => {
    const container = new FakeContainer();
    const backends = new Backends({ containers: container.port, clock: systemClock });
    container.serve = (connection) => void answers.map((bytes) => connection.send(bytes));
    await expect(backends.connect("ctr_a", RUN)).rejects.toMatchObject({ code: "NOT_RESPONDING" });
    expect(container.connections[0]?.isClosed).toBe(true);
  });

  it("is given up when the server hangs within the handshake", async () => {
    const { container, clock, backends } = made();
    container.serve = (connection) => connection.send(GREETING);
    const connecting = backends.connect("ctr_a", RUN).catch((error) => error.code);
    await settled();
    await settled();
    await clock.pass(LIMITS.gui_handshake_ms);
    expect(await connecting).toBe("NOT_RESPONDING");
    expect(container.connections[0]?.isClosed).toBe(true);
  });
});
