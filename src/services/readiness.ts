/**
 * Tries whether the port of a service accepts connections, when a request asks for its status. The outcome counts for a
 * moment, so that a client that polls makes few connections.
 */
import { connect } from "node:net";
import type { Clock } from "../base/clock.ts";
import { LIMITS } from "../base/limits.ts";
import type { LiveContainer } from "../engine/ports.ts";

interface Outcome {
  readonly run: LiveContainer;
  readonly until_ms: number;
  readonly isListening: Promise<boolean>;
}

export class Readiness {
  readonly #clock: Clock;
  readonly #outcomes = new Map<string, Outcome>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** True if a process of the run accepts connections on the port. */
  async isListening(service_id: string, run: LiveContainer, port: number): Promise<boolean> {
    const now_ms = this.#clock.monotonicMs();
    const known = this.#outcomes.get(service_id);
    if (known?.run === run && now_ms < known.until_ms) return known.isListening;
    const isListening = probe(run.address, port, this.#clock);
    const note = (kept_ms: number) =>
      this.#outcomes.set(service_id, { run, until_ms: this.#clock.monotonicMs() + kept_ms, isListening });
    // Others that ask meanwhile wait for the same probe.
    note(LIMITS.service_probe_ms);
    const isReady = await isListening;
    if (this.#outcomes.has(service_id)) note(isReady ? LIMITS.service_ready_ms : LIMITS.service_pending_ms);
    return isReady;
  }

  forget(service_id: string): void {
    this.#outcomes.delete(service_id);
  }
}

function probe(host: string, port: number, clock: Clock): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (isListening: boolean) => {
      cancel();
      socket.destroy();
      resolve(isListening);
    };
    const cancel = clock.after(LIMITS.service_probe_ms, () => end(false));
    socket.once("connect", () => end(true));
    socket.on("error", () => end(false));
  });
}
