/** The helper as set-up compiled it: its machine code contains the checks that the compiler's flags ask for. */
import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { helperPath, readDirectories } from "../../src/installation/paths.js";

const binary = helperPath(readDirectories(process.env, []).data_dir);

/** The functions of the C library that the machine code of `name` calls. */
function callsOf(name: string): string[] {
  const code = execFileSync("objdump", ["-d", "--no-show-raw-insn", `--disassemble=${name}`, binary]).toString();
  return [...code.matchAll(/\s(?:call|bl|b|jmp)\s+[0-9a-f]+ <([A-Za-z_]\w*)>/g)].map((match) => match[1] ?? "");
}

// The static C library contains the checked functions anyway, so only a call of one proves a flag.
describe("the compiled helper", () => {
  it("checks the stack guard at the end of functions with arrays", () => {
    for (const name of ["server_watch", "jail_seal", "proc_start"]) {
      expect([name, callsOf(name)]).toEqual([name, expect.arrayContaining(["__stack_chk_fail"])]);
    }
  });

  it("formats text through the C library's checked functions", () => {
    expect(callsOf("fatal")).toContainEqual(expect.stringMatching(/^_+dprintf_chk$/));
    expect(callsOf("proc_failure")).toContainEqual(expect.stringMatching(/^_+snprintf_chk$/));
  });

  it("needs no shared library, so it runs in any image", () => {
    expect(execFileSync("objdump", ["-p", binary]).toString()).not.toMatch(/INTERP|NEEDED/);
  });
});
