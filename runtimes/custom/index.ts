/**
 * The `custom` runtime: a handler is the command line of any program, which serves calls by HTTP or by the AWS Lambda
 * Runtime API. Each cell starts the adapter, a role of minit, before any function is known; it starts the command and
 * passes the calls on. README.md has the contract of a command.
 */
import { plainWords, textComplaint } from "../handlers.ts";
import { CODE_INSIDE, type Runtime } from "../runtime.ts";

/** Path of the helper in every instance. */
const MINIT_INSIDE = "/dev/init";
/** A file of the code that AWS Lambda runs, whatever the handler is. */
const BOOTSTRAP = "bootstrap";
const OPEN_TIMEOUT_MS = 10_000;

export const custom: Runtime = {
  name: "custom",
  aliases: [],
  profile: "prod",
  about:
    "a command line that listens on $PORT and takes each call as a request, by default POST /, or speaks the AWS Lambda Runtime API",
  foreign: { needs: [] },
  directory: null,
  // A command of the image may serve.
  hasProtocol: true,
  needsCode: false,
  serving: { kind: "resident", argv: [MINIT_INSIDE, "adapter", CODE_INSIDE], open_timeout_ms: OPEN_TIMEOUT_MS },
  program(handler, protocol) {
    const name = plainWords(handler)?.[0];
    if (name === undefined) return null;
    return { kind: "command", name, ...(protocol === "lambda" ? { instead: BOOTSTRAP } : {}) };
  },
  complaint: textComplaint,
};
