/**
 * The peer of the bench of published services: hono's own proxy over @hono/node-server, in front of one address. No token, no
 * bounds, no records. `node bench/proxy-server.ts http://10.88.0.2:8080` prints its port and serves until its standard input ends.
 */
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { proxy } from "hono/proxy";

const backend = process.argv[2] ?? "";
const app = new Hono();
app.all("/*", (c) => proxy(`${backend}${c.req.path}`, { raw: c.req.raw }));
serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => process.stdout.write(`${port}\n`));
process.stdin.resume().once("end", () => process.exit(0));
