/** System-call filters. */
import { describe, expect, it } from "vitest";
import { narrowProfile } from "../../src/engine/oci/seccomp.ts";

describe("the system-call filter", () => {
  const profile = {
    defaultAction: "SCMP_ACT_ERRNO",
    defaultErrnoRet: 38,
    syscalls: [
      { names: ["read", "unshare", "clone", "clone3", "socket"], action: "SCMP_ACT_ALLOW" },
      { names: ["bpf"], action: "SCMP_ACT_ALLOW", includes: { caps: ["CAP_SYS_ADMIN"] } },
      { names: ["bpf"], action: "SCMP_ACT_ERRNO", errnoRet: 1, excludes: { caps: ["CAP_SYS_ADMIN"] } },
      { names: ["arm_call"], action: "SCMP_ACT_ALLOW", includes: { arches: ["arm64"] } },
    ],
  };
  const named = (narrowed: ReturnType<typeof narrowProfile>, name: string) =>
    narrowed.syscalls.filter(({ names }) => names.includes(name));

  it("is for one architecture and the given capabilities", () => {
    const narrowed = narrowProfile(profile, "x64", []);
    expect(narrowed.architectures).toEqual(["SCMP_ARCH_X86_64"]);
    expect(named(narrowed, "arm_call")).toEqual([]);
    expect(named(narrowed, "bpf").map(({ action }) => action)).toEqual(["SCMP_ACT_ERRNO"]);
    expect(named(narrowProfile(profile, "arm64", []), "arm_call").length).toBe(1);
  });

  it("withholds namespaces, and lets clone through only without their flags", () => {
    const narrowed = narrowProfile(profile, "x64", []);
    expect(named(narrowed, "read").length).toBe(1);
    expect(named(narrowed, "unshare")).toEqual([]);
    expect(named(narrowed, "clone").map(({ args }) => args)).toEqual([
      [{ index: 0, value: 0x7e020000, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }],
    ]);
    expect(named(narrowed, "clone3")).toEqual([{ names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: 38 }]);
    expect(named(narrowed, "socket").every(({ args }) => (args?.length ?? 0) > 0)).toBe(true);
  });

  it("has no answer for an architecture that it does not know", () => {
    expect(() => narrowProfile(profile, "riscv64", [])).toThrow(/riscv64/);
  });
});
