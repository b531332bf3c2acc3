/** Fields that say how a command of a container runs: arguments, user, stop signal. */
import { constants } from "node:os";
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { text, textBytes, whole } from "../base/schema.ts";

/** A part of an argv. */
export const argumentList = z
  .array(textBytes(LIMITS.argument_bytes_max))
  .max(LIMITS.arguments_max)
  .refine((all) => all.reduce((sum, one) => sum + Buffer.byteLength(one), 0) <= LIMITS.arguments_bytes_max, {
    error: `must not be larger than ${LIMITS.arguments_bytes_max} bytes`,
  });

/** One argv: the first element names the command. */
export const argv = argumentList
  .min(1, "must have at least one element")
  .refine((all) => all[0] !== "", { error: "must not start with an empty element" });

/** Highest id of a user or group: a user namespace of a container has 65,536 of each. */
const ID_MAX = 65_535;
const USER = /^[A-Za-z0-9_][\w.-]*\$?(?::[A-Za-z0-9_][\w.-]*\$?)?$/;

export const containerUser = text(LIMITS.user_length_max)
  .regex(USER, "must be <user> or <user>:<group>, each a name or a number")
  .refine((value) => value.split(":").every((part) => !/^\d+$/.test(part) || Number(part) <= ID_MAX), {
    error: `must not have an id above ${ID_MAX}`,
  });

/** SIGRTMIN and SIGRTMAX of Linux with glibc; musl's SIGRTMIN is 35. */
const REALTIME = { SIGRTMIN: 34, SIGRTMAX: 64 } as const;

/** Returns the number of a signal that is given as `SIGTERM`, `TERM`, `15` or `SIGRTMIN+3`; null for no signal. */
export function signalNumber(name: string): number | null {
  if (/^\d{1,2}$/.test(name)) return Number(name) >= 1 && Number(name) <= REALTIME.SIGRTMAX ? Number(name) : null;
  const full = name.toUpperCase().replace(/^(?!SIG)/, "SIG");
  const [, base = "", offset = "0"] = /^(SIGRTMIN|SIGRTMAX)([+-]\d{1,2})?$/.exec(full) ?? [];
  const known = constants.signals as Readonly<Record<string, number>>;
  if (base === "") return Object.hasOwn(known, full) ? (known[full] ?? null) : null;
  const number = REALTIME[base as keyof typeof REALTIME] + Number(offset);
  return number >= REALTIME.SIGRTMIN && number <= REALTIME.SIGRTMAX ? number : null;
}

export const stopSignal = z
  .union([text(16), whole(1, REALTIME.SIGRTMAX)])
  .transform(String)
  .refine((value) => signalNumber(value) !== null, {
    error: "must be a signal such as SIGTERM, SIGQUIT, SIGRTMIN+3 or 15",
  });

/** With an image the entrypoint and command of the image may stand before and behind what is given. */
export function complaintAboutCommand({ oci, entrypoint, command }: CommandFields) {
  const given = [...(entrypoint ?? []), ...(command ?? [])];
  const isEmpty = given.length === 0 && !oci && (command ?? null) !== null;
  const field = (entrypoint ?? []).length > 0 ? "entrypoint" : "command";
  if (isEmpty) return { field, message: "must not be empty" };
  const isOwn = !oci || (entrypoint ?? null) !== null;
  return isOwn && given[0] === "" ? { field, message: "must not start with an empty element" } : null;
}

interface CommandFields {
  readonly oci: boolean;
  readonly entrypoint?: readonly string[] | null | undefined;
  readonly command?: readonly string[] | null | undefined;
}

const SIGTERM = 15;

/** The signal that asks a container to end. Without a command minit itself ends, which it does at SIGTERM. */
export const stopSignalOf = ({ command, stop_signal }: { command: readonly string[]; stop_signal: string }): number =>
  command.length === 0 ? SIGTERM : (signalNumber(stop_signal) ?? SIGTERM);
