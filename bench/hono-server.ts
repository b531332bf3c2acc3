/**
 * A peer of the bench of functions with code: the echo in one process, on hono over @hono/node-server. No isolation, no
 * record, no authentication. `node bench/hono-server.ts` prints its port and serves until its standard input ends.
 */
import { serve } from "@hono/node-server";
import { Hono } from "hono";

const app = new Hono();
app.post("/", async (c) => c.json(await c.req.json()));
serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => process.stdout.write(`${port}\n`));
process.stdin.resume().once("end", () => process.exit(0));
