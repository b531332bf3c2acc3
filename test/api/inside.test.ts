/** What programs find inside of containers and instances: errors of refused calls, limits, names, files of /etc. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const containers = new ContainerUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(async () => {
  await daemon.stop("SIGTERM");
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const KINDS = [
  { name: "plain", fields: {} },
  { name: "strict", fields: { strict: true } },
];

describe.each(KINDS)("in a $name container", ({ name, fields }) => {
  const state = { id: "" };
  const python = (code: string) => containers.python(state.id, code);

  beforeAll(async () => {
    state.id = (await containers.create({ name, ...fields })).container_id;
  });
  afterAll(() => containers.delete(state.id));

  it("sockets that it cannot have fail as on a kernel without them", async () => {
    const asked = {
      audit: [16, 3, 9],
      audit_datagram: [16, 2, 9],
      vsock: [40, 1, 0],
      crypto: [38, 5, 0],
      packet: [17, 3, 0],
    };
    const out = await python(`import errno, socket
for name, kind in ${JSON.stringify(asked)}.items():
    for make in (socket.socket, socket.socketpair):
        try: make(*kind); print(name, "done")
        except OSError as error: print(name, errno.errorcode[error.errno])`);
    const lines = Object.keys(asked).flatMap((one) => {
      const code = one.startsWith("audit") ? "EINVAL" : "EAFNOSUPPORT";
      return [`${one} ${code}`, `${one} ${code}`];
    });
    expect(out.trim().split("\n")).toEqual(lines);
  });
});
