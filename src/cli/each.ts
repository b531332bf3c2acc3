/** Commands with several names: one that fails does not keep the others from their turn. */
import { ApiError } from "../client/client.ts";
import { report } from "./report.ts";
import { EXIT, Failure } from "./session/failure.ts";
import type { Session, Words } from "./session/session.ts";

/**
 * Acts on each name, one after the other. What is refused is reported at once, and the exit code of the first refusal stands at the
 * end. Throws what a single name is refused with, and what would meet all names alike: a usage failure, an unreachable daemon.
 */
export async function each(session: Session, names: Words, act: (name: string) => Promise<void>): Promise<void> {
  for (const name of names) {
    session.sought = null;
    try {
      await act(name ?? "");
    } catch (error) {
      if (names.length === 1 || !isOfOne(error)) throw error;
      const exit_code = await report(error, session, session.terminal, session.flags.json === true);
      process.exitCode ??= exit_code;
    }
  }
}

/** Statuses of refusals that are of the key, or of the daemon, and not of what a name stands for. */
const OF_ALL: ReadonlySet<number> = new Set([401, 429, 503]);

const isOfOne = (error: unknown): boolean =>
  error instanceof ApiError ? error.body !== null && !OF_ALL.has(error.status) : isRefused(error);

const isRefused = (error: unknown): boolean => error instanceof Failure && error.exit_code === EXIT.refused;
