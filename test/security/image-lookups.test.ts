/** A tenant that names images that it does not have, many at once: no lookup may cost a process of the launcher. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon } from "../support/daemon.ts";

/** More than the launcher has processes for, which starts need. */
const NAMES_COUNT = 80;

const daemon = new Daemon();
const containers = new ContainerUser(daemon);

beforeAll(() => daemon.start({ HEARTH_CELLS: "1" }));
afterAll(() => daemon.dispose());

describe("a tenant that asks for many images that it does not have", () => {
  it("is refused each of them, and takes no start from another tenant", async () => {
    const { body: tenant } = await daemon.call("POST", "/api/tenants", { name: "greedy" });
    const { body: made } = await daemon.call("POST", `/api/tenants/${tenant.tenant_id}/api-keys`, { name: "greedy" });
    const ask = async (n: number) => {
      const fields = { name: `lacks-${n}`, oci: true, image: `no-such-image:${n}` };
      return (await daemon.call("POST", "/api/containers", fields, { "x-api-key": made.key })).body.error_code;
    };
    const asked = Promise.all(Array.from({ length: NAMES_COUNT }, (_, n) => ask(n)));
    for (const name of ["first", "second", "third"]) {
      const { container_id } = await containers.create({ name });
      expect((await daemon.call("DELETE", `/api/containers/${container_id}`)).status).toBe(200);
    }
    expect(new Set(await asked)).toEqual(new Set(["NOT_FOUND"]));
  });
});
