/** Loopback addresses of services: chosen where no other process listens, and given back. */
import { createServer, type Server } from "node:net";
import { afterEach, expect, it } from "vitest";
import type { Ids } from "../../src/base/ids.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { Listeners } from "../../src/services/listeners.ts";
import { freePort } from "../support/daemon.ts";

const others: Server[] = [];
afterEach(async () => {
  for (const one of others.splice(0)) await new Promise((resolve) => one.close(resolve));
});

/** Listens in the place of another process. */
function occupy(host: string, port: number): Promise<void> {
  const server = createServer();
  others.push(server);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port, exclusive: true }, () => resolve());
  });
}

/** Listeners whose addresses have these last octets in turn, the last one again and again. */
async function made(...octets: readonly number[]) {
  const port = await freePort();
  let asked = 0;
  const next = () => {
    const [at, isLast] = [asked >> 1, asked % 2 === 1];
    asked++;
    return isLast ? (octets[Math.min(at, octets.length - 1)] ?? 1) : 1;
  };
  const ids = { hex: () => (next() - 1).toString(16).padStart(4, "0") } as unknown as Ids;
  const listeners = new Listeners({ ids, host_tag: "000000a0", take: () => {}, port: () => port });
  return { listeners, port, address: (octet: number) => `127.176.1.${octet}` };
}

it("a service gets the next address if another process, another service or a row of the store has the first", async () => {
  const { listeners, port, address } = await made(10, 11, 12, 12);
  await occupy(address(10), port);
  expect(await listeners.choose((one) => one === address(11))).toBe(address(12));
  await expect(listeners.choose(() => false)).rejects.toMatchObject({ code: "CAPACITY_FULL" });
  listeners.release(address(12));
  expect(await listeners.listen(address(12))).toBeNull();
  expect(await listeners.listen(address(10))).toMatch(/EADDRINUSE/);
  listeners.close();
});

it("a service is refused after a bounded number of attempts if all addresses are in use", async () => {
  const { listeners } = await made(20);
  let asked = 0;
  const isTaken = () => {
    asked++;
    return true;
  };
  await expect(listeners.choose(isTaken)).rejects.toMatchObject({
    code: "CAPACITY_FULL",
    message: "no free loopback address for a service",
  });
  expect(asked).toBe(LIMITS.service_address_attempts_max);
});
