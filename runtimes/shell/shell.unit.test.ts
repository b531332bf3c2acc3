/** The shell runtime: the command of a handler. */
import { describe, expect, it } from "vitest";
import { shell } from "./index.ts";

const command = (handler: string) => (shell.serving.kind === "process" ? shell.serving.command(handler) : null);

describe("the shell runtime", () => {
  it.each([
    ["cat", ["cat"]],
    ["  python3  -m http.server 80 ", ["python3", "-m", "http.server", "80"]],
    ["/usr/bin/env A=1", ["/usr/bin/env", "A=1"]],
    ["echo a:b,c@d", ["echo", "a:b,c@d"]],
  ])("runs %s without a shell", (line, argv) => {
    expect(command(line)).toEqual(argv);
  });

  it.each([
    "echo $HOME",
    "a; b",
    "a | b",
    "a > b",
    "a && b",
    "a &",
    "echo 'x'",
    'echo "x"',
    "echo a\\ b",
    "ls *.txt",
    "ls [ab]",
    "ls ~",
    "A=1 env",
    "cd /tmp",
    "exit 3",
    ". ./file",
    "if true",
    "echo #x",
    "a\nb",
    "echo {a,b}",
    "(a)",
    "`a`",
    "! true",
  ])("leaves %j to /bin/sh", (line) => {
    expect(command(line)).toEqual(["/bin/sh", "-c", line]);
  });
});

describe("a script", () => {
  it.each([
    ["#!/bin/sh\necho 1", ["/bin/sh"]],
    ["#! /usr/bin/env  python3 -u \nprint(1)", ["/usr/bin/env", "python3 -u"]],
    ["#!/bin/cat", ["/bin/cat"]],
  ])("%j is handed to the interpreter of its first line, which gets one argument", (script, words) => {
    const argv = command(script) ?? [];
    expect([argv[4], ...argv.slice(5)]).toEqual([script, ...words]);
    expect(shell.complaint(script)).toBe(null);
  });

  it.each(["#!", "#!\n/bin/sh", "#!python3\nprint(1)", "#!/\n", "#! /bin/sh\r\necho 1\r\n"])(
    "%j is refused: no interpreter could read it",
    (script) => {
      expect(shell.complaint(script)).toContain("name an interpreter by absolute path");
    },
  );
});
