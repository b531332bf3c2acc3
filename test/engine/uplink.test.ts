/** Classes of the uplink by tenant. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { Uplink } from "../../src/engine/network/uplink.ts";

const make = () => new Uplink({ setting: null, host_tag: "0123abcd", run_dir: "/nowhere" });

describe("classes of the uplink", () => {
  it("are one for each tenant, with all its addresses", () => {
    const uplink = make();
    const a = uplink.enter("10.0.0.2", "a");
    expect(a).toMatch(/^[1-7][0-9a-f]{3}:10$/);
    expect(uplink.enter("10.0.0.3", "b")).not.toBe(a);
    expect(uplink.enter("10.0.0.4", "a")).toBe(a);
    uplink.leave("10.0.0.2");
    expect(uplink.enter("10.0.0.5", "a")).toBe(a);
  });

  it("are reused when the last address of a tenant is gone", () => {
    const uplink = make();
    const a = uplink.enter("10.0.0.2", "a");
    const b = uplink.enter("10.0.0.3", "b");
    uplink.leave("10.0.0.2");
    uplink.leave("10.0.0.2");
    expect(uplink.enter("10.0.0.4", "c")).toBe(a);
    // An address that another tenant has by now.
    expect(uplink.enter("10.0.0.3", "c")).toBe(a);
    expect(uplink.enter("10.0.0.5", "d")).toBe(b);
  });

  it("keep their number when there are more tenants, which share them evenly", () => {
    const uplink = make();
    const classes = Array.from({ length: LIMITS.uplink_classes * 2 }, (_, n) => uplink.enter(`10.0.0.${n}`, `t${n}`));
    expect(new Set(classes).size).toBe(LIMITS.uplink_classes);
    for (const one of classes) expect(classes.filter((other) => other === one)).toHaveLength(2);
  });
});
