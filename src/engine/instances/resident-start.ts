/** Starts the resident process of an instance, and explains a failed start. */
import type { Clock } from "../../base/clock.ts";
import { RESIDENT_ENVIRONMENT } from "../../base/container-environment.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { InstanceMinit, ResidentProgram } from "../ports/instances.ts";
import type { Resident, ResidentEnd } from "../ports/residents.ts";

/**
 * Starts the process and resolves once it takes calls. Rejects with START_FAILED if it does not: the message has the reason
 * and the end of its output. Waits for minit at most LIMITS.minit_answer_ms longer than for the process.
 */
export async function openResident(minit: InstanceMinit, program: ResidentProgram, clock: Clock): Promise<Resident> {
  const { argv, open_timeout_ms } = program;
  const resident = minit.serve({
    argv,
    environment: RESIDENT_ENVIRONMENT,
    working_directory: "",
    concurrency: LIMITS.resident_calls_max,
    open_timeout_ms,
  });
  const late = Promise.withResolvers<never>();
  const wait_ms = open_timeout_ms + LIMITS.minit_answer_ms;
  const cancel = clock.after(wait_ms, () => {
    late.reject(new AppError("START_FAILED", `minit did not start the resident process within ${wait_ms} ms`));
  });
  try {
    await Promise.race([resident.opened, late.promise]);
    return resident;
  } catch (cause) {
    const reason = await Promise.race([
      resident.ended.then((end) => endText(end, open_timeout_ms)),
      late.promise,
    ]).catch(errorText);
    const output = resident.tail.trim();
    const said = output === "" ? "" : `: ${output}`;
    throw new AppError("START_FAILED", `the resident process did not open: ${reason}${said}`, { cause });
  } finally {
    cancel();
  }
}

/** Describes the end of a process that was never open. */
function endText(end: ResidentEnd, open_timeout_ms: number): string {
  if (end.spawn_failed) return "it could not be started";
  if (end.timed_out) return `it was not open within ${open_timeout_ms} ms`;
  if (end.is_broken) return "it violated the protocol";
  return end.signal > 0 ? `it was killed by signal ${end.signal}` : `it exited with ${end.exit_code}`;
}
