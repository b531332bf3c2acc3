/** A process that starts instances, says which, and waits to be killed: what it leaves is what the tests look at. */
import type { CallRequest, InstanceClass } from "../../src/engine/ports.ts";
import { command, engineConfig, engineOf, standardClass } from "../support/engine.ts";

/** One instance, and what is done to it before the kill. */
export interface Step {
  readonly id: string;
  readonly mark?: string;
  /** Id of a subvolume of the kind `code`, made here; the instance gets it with `egress` off. */
  readonly code?: string;
  /** Other than that of most instances. */
  readonly class?: Partial<InstanceClass>;
  readonly argv?: readonly string[];
  readonly timeout_ms?: number;
  /** Payload of a call to its resident process. */
  readonly call?: string;
  /** Neither its start nor its command is waited for. */
  readonly isHalfDone?: boolean;
}

export interface Left {
  readonly id: string;
  readonly nonce: string;
  readonly address: string;
  readonly uid: number;
}

async function leave(flags: readonly string[], steps: readonly Step[]): Promise<void> {
  const engine = engineOf(engineConfig(flags));
  await engine.boot();
  for (const { id, mark, code, class: of = {}, argv, timeout_ms, call, isHalfDone } of steps) {
    const starting = engine.instances.start(id, standardClass(engine, of));
    if (isHalfDone === true && argv === undefined && call === undefined) continue;
    const instance = await starting;
    const { nonce, address, uid } = instance;
    if (code !== undefined) {
      await engine.storage.create("code", code, null);
      await engine.instances.attach(instance, { code, secrets: new Map([["A", Buffer.from("a")]]), egress: "off" });
    }
    if (mark !== undefined) engine.instances.mark(instance, mark);
    engine.instances.limit(instance, { memory_limit_mb: 256, cpu_limit_percent: null });
    if (argv !== undefined) {
      const running = instance.minit.execSole(command(argv, timeout_ms === undefined ? {} : { timeout_ms }));
      if (isHalfDone !== true) await (await running).idle;
    }
    if (call !== undefined) {
      const calling = instance.resident?.call(residentCall(call));
      if (isHalfDone !== true) await calling;
    }
    process.stdout.write(`${JSON.stringify({ id, nonce, address, uid } satisfies Left)}\n`);
  }
  process.stdout.write("done\n");
  setInterval(() => {}, 60_000);
}

export function residentCall(text: string): CallRequest {
  return { payload: Buffer.from(text), timeout_ms: 60_000, result_bytes_max: 65_536, log_bytes_max: 65_536 };
}

const [, script = "", flags, steps] = process.argv;
if (import.meta.filename === script && flags !== undefined && steps !== undefined) {
  await leave(JSON.parse(flags), JSON.parse(steps));
}
