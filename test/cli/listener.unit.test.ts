/** Whose process listens on a port, as the kernel tells it. */
import { createServer } from "node:net";
import { userInfo } from "node:os";
import { expect, it } from "vitest";
import { strangerAt } from "../../src/cli/session/listener.ts";

it.each(["127.0.0.1", "::1"])(
  "the user who listens at %s is no stranger to itself, and one to others",
  async (host) => {
    const { uid } = userInfo();
    const server = createServer();
    const port = await new Promise<number>((resolve) => {
      server.listen(0, host, () => {
        const address = server.address();
        resolve(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
    try {
      expect(strangerAt(port, [uid])).toBeNull();
      expect(strangerAt(port, [uid + 1])).toBe(uid);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
    expect(strangerAt(port, [uid + 1])).toBeNull();
  },
);

it("who is connected from that port, or listens on another, is nobody", () => {
  const row = (local: string, state: string, uid: number) =>
    `   0: 0100007F:${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000  ${uid}        0 9 1 0 100 0\n`;
  const tables = row("21FC", "01", 1001) + row("21FD", "0A", 1002) + row("21FC", "0A", 0) + row("0050", "0A", 33);
  expect(strangerAt(8700, [0], tables)).toBeNull();
  expect(strangerAt(8701, [0], tables)).toBe(1002);
  expect(strangerAt(80, [0], tables)).toBe(33);
  expect(strangerAt(8700, [0], tables + row("21FC", "0A", 1003))).toBe(1003);
});
