/** The stream of events over a real listener whose bounds are small. */
import { describe, it } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { eventRoutes } from "../../src/events/routes.ts";
import { Events } from "../../src/events/service.ts";
import { MemoryBudget } from "../../src/http/memory-budget.ts";
import { KEY, rawClient, serving } from "../http/test-server.ts";
import { quietLog } from "../store/scratch.ts";
import { eventually } from "../support/daemon.ts";

const STALL_MS = 300;

describe("GET /api/events", () => {
  const serve = serving();

  it("cuts a reader that takes nothing, and keeps one to whom nothing happens", async () => {
    // The events of a listener are those of its store, which is there only once it listens.
    const made: { events: Events | null } = { events: null };
    const events = new Proxy({} as Events, {
      get: (_, name) => Reflect.get(made.events ?? {}, name).bind(made.events),
    });
    const { server, store, keys } = await serve(
      eventRoutes({ events }),
      {},
      { budget: new MemoryBudget(1_000_000, STALL_MS) },
    );
    made.events = new Events({ store, clock: systemClock, log: quietLog });
    await store.write([{ sql: "INSERT INTO tenants (id, name, created_at) VALUES ('other', 'other', 0)" }]);
    const other = await keys.create("other", { name: "k" }, await keys.caller(KEY));
    const get = (key: string) => `GET /api/events HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n\r\n`;
    const [stalled, quiet] = [await rawClient(server.port), await rawClient(server.port)];
    stalled.socket.write(get(KEY));
    quiet.socket.write(get(other.key));
    for (const client of [stalled, quiet]) await client.until(/event: ready\nid: \d+\ndata: .*\n\n/);
    stalled.socket.pause();
    await store.write([
      {
        sql: `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
          INSERT INTO events (tenant_id, number, at_ms, name, event_type, data)
          SELECT 'default', 1000 + i, 0, 'container_update', 'planted', json_object('text', ?) FROM n`,
        args: ["x".repeat(3_500)],
      },
    ]);
    made.events.published();
    const begun = performance.now();
    await eventually("it is cut", () => {
      // Nothing but its being cut is seen by a socket that does not read: it tries to write.
      stalled.socket.write("x");
      return stalled.socket.destroyed;
    });
    await eventually("the other one was silent for longer", () => performance.now() - begun > STALL_MS * 3);
    await made.events.emit("other", { name: "container_update", event_type: "started" });
    await quiet.until(/"event_type":"started"/);
    quiet.socket.destroy();
  });
});
