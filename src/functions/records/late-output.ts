/**
 * What a call writes after its answer, such as the stack of an exception that comes late: it goes to the end of the standard
 * error of the call's record.
 *
 * T1 Output gathers for a moment: its record is committed by then, and pieces that come together cost one write.
 * T2 A call adds at most LIMITS.late_output_bytes_max, in at most LIMITS.late_outputs_max writes; the listener of its process counts
 *    both (engine). At most LIMITS.late_calls_max calls gather at a time; what comes above is dropped.
 */
import type { CancelTimer, Clock } from "../../base/clock.ts";
import { errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { Log } from "../../base/log.ts";
import type { Invocations } from "./invocations.ts";

interface Late {
  readonly function_seq: number;
  text: string;
}

export class LateOutput {
  readonly #invocations: Pick<Invocations, "addLate">;
  readonly #clock: Clock;
  readonly #log: Log;
  /** By id of the invocation. */
  readonly #gathered = new Map<string, Late>();
  #cancel: CancelTimer | null = null;

  constructor(invocations: Pick<Invocations, "addLate">, clock: Clock, log: Log) {
    this.#invocations = invocations;
    this.#clock = clock;
    this.#log = log;
  }

  /** Takes output of a call that was answered. Returns true if that begins a write. */
  add(function_seq: number, invocation_id: string, text: string): boolean {
    const late = this.#gathered.get(invocation_id);
    if (late !== undefined) {
      late.text += text;
      return false;
    }
    if (this.#gathered.size >= LIMITS.late_calls_max) return false;
    this.#gathered.set(invocation_id, { function_seq, text });
    this.#cancel ??= this.#clock.after(LIMITS.late_output_ms, () => this.#write());
    return true;
  }

  #write(): void {
    this.#cancel = null;
    const all = [...this.#gathered];
    this.#gathered.clear();
    for (const [id, { function_seq, text }] of all) {
      this.#invocations.addLate(function_seq, id, text).catch((error) => {
        this.#log.warn("cannot add late output to a record", { invocation_id: id, error: errorText(error) });
      });
    }
  }
}
