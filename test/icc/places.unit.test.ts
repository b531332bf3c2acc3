/** Places for actions on containers. */
import { describe, expect, it } from "vitest";
import { Places } from "../../src/icc/actions/places.ts";

const settle = () => new Promise((resolve) => setImmediate(resolve));

function ground(tenant_max: number, all_max: number) {
  const begun: string[] = [];
  const ends = new Map<string, (hasMore: boolean) => void>();
  const places = new Places({
    ...{ tenant_max, all_max },
    work: ({ inbox }) => {
      begun.push(inbox);
      return new Promise<boolean>((resolve) => ends.set(inbox, resolve));
    },
  });
  const add = async (tenant_id: string, ...inboxes: string[]) => {
    for (const inbox of inboxes) places.add({ tenant_id, inbox });
    await settle();
  };
  const end = async (inbox: string, hasMore = false) => {
    ends.get(inbox)?.(hasMore);
    await settle();
  };
  return { places, begun, add, end };
}

describe("places for actions", () => {
  it("are bounded of each tenant, one of each container, and inboxes take turns", async () => {
    const { begun, add, end } = ground(2, 10);
    await add("a", "a1", "a2", "a3", "a1");
    await add("a", "a1");
    expect(begun).toEqual(["a1", "a2"]);
    // The last call of a1 found it at work: it is due again, behind a3.
    await end("a1");
    expect(begun).toEqual(["a1", "a2", "a3"]);
    await end("a2");
    expect(begun.at(-1)).toBe("a1");
  });

  it("are bounded in all, except the first of a tenant", async () => {
    const { begun, add, end } = ground(2, 2);
    await add("a", "a1", "a2");
    await add("b", "b1", "b2");
    await add("c", "c1");
    expect(begun).toEqual(["a1", "a2", "b1", "c1"]);
    await end("a1");
    await end("c1");
    expect(begun).toHaveLength(4);
    await end("a2");
    expect(begun.at(-1)).toBe("b2");
  });

  it("end with their work: nothing begins after a close", async () => {
    const { places, begun, add, end } = ground(1, 1);
    await add("a", "a1", "a2");
    places.close();
    await end("a1", true);
    await add("b", "b1");
    expect(begun).toEqual(["a1"]);
  });
});
