/**
 * The program in a cell of the runtime nodejs: opens the connection on descriptor 3, takes on a function and serves its
 * calls. Arguments: the directory of the code, the paths of esbuild and of minit, then directories that cleanup empties.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { Calls } from "./calls.mjs";
import { Cleanup } from "./cleanup.mjs";
import { watchEnds } from "./ends.mjs";
import { limitGrowth } from "./memory.mjs";
import { Output } from "./output.mjs";
import { framesLeft } from "./restart.mjs";
import { Wire } from "./wire.mjs";

const [, , code_directory = "/function", compiler = "", helper = "", ...scratch] = process.argv;
const left = framesLeft();
const contexts = new AsyncLocalStorage();
const calls = new Calls(
  contexts,
  { code_directory, compiler, helper, scratch: scratch[0] },
  (binding) => {
    if (binding.cleanup) cleanup.start();
    limitGrowth(binding.memory_limit_mb);
  },
  left !== null,
);
const cleanup = new Cleanup(contexts, calls, scratch);
const wire = new Wire(
  (id, bytes, start, end) => calls.take(id, bytes, start, end),
  () => cleanup.afterFlush(),
);
calls.wire = wire;
calls.output = new Output(wire, contexts);
watchEnds(calls, wire);
wire.open(left);
