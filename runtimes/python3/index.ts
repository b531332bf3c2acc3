/**
 * The `python3` runtime: a handler is a function of a Python file in the version's code. Each cell starts the image's
 * interpreter before any function is known; `inside` holds its program, README.md the contract of handlers.
 */
import { join } from "node:path";
import { pathComplaint } from "../handlers.ts";
import { CODE_INSIDE, RUNTIME_INSIDE, type Runtime } from "../runtime.ts";

/** `file.py:function`; the file relative to the code, the function a name. */
const HANDLER = /^(?<file>[^:]+\.py)(?::(?<name>[^:]*))?$/u;
const NAME = /^[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*$/u;
const OPEN_TIMEOUT_MS = 10_000;

/** Flags of the interpreter: isolated from the environment and the user, without `site`; writes no bytecode. */
const FLAGS = ["-I", "-S", "-B", "-u", "-X", "faulthandler"];

const ARGUMENTS = [...FLAGS, `${RUNTIME_INSIDE}/main.py`, CODE_INSIDE];
const PROFILE_INTERPRETER = "/usr/bin/python3";
const INTERPRETERS = ["/usr/local/bin/python3", PROFILE_INTERPRETER];

export const python3: Runtime = {
  name: "python3",
  aliases: ["python"],
  profile: "prod",
  about: "a Python function, file.py:function(payload, context), sync or async; the function is `handler` unless named",
  // The first one in PATH.
  foreign: {
    needs: [{ one_of: INTERPRETERS, complaint: `has no Python: neither ${INTERPRETERS.join(" nor ")}` }],
    argv: ["python3", ...ARGUMENTS],
  },
  directory: join(import.meta.dirname, "inside"),
  hasProtocol: false,
  needsCode: true,
  serving: {
    kind: "resident",
    argv: [PROFILE_INTERPRETER, ...ARGUMENTS],
    open_timeout_ms: OPEN_TIMEOUT_MS,
  },
  program(handler) {
    const { file } = HANDLER.exec(handler)?.groups ?? {};
    return file === undefined ? null : { kind: "file", path: file };
  },
  complaint(handler) {
    const { file, name } = HANDLER.exec(handler)?.groups ?? {};
    if (file === undefined || handler.includes("\0")) return "does not name a Python file: write file.py:function";
    if (name !== undefined && !NAME.test(name)) return "does not name a function after the colon";
    return pathComplaint(file);
  },
};
