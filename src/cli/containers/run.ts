/** `hearth run`: a container, and with a command what it writes until it ends, whose exit code is then ours. */
import { randomBytes } from "node:crypto";
import type { RequestOf } from "../../client/client.ts";
import { done } from "../daemon/operations.ts";
import { environmentOf, pairs } from "../functions/function-fields.ts";
import { isReference, pullAsked } from "../images/pull-policy.ts";
import { shellWord, visible } from "../output/text.ts";
import { FIRST_USE_TIMEOUT_MS, profilesOf, withBuild } from "../profiles/first-use.ts";
import { EXIT, usage } from "../session/failure.ts";
import type { ContainerRecord, Flags, Session, Words } from "../session/session.ts";
import type { PublishedPort } from "../session/verb.ts";
import { followToEnd, pass, reportError } from "./container-log.ts";
import { sentence } from "./containers.ts";
import type { WantedGpus } from "./gpus.ts";

/** Exit code of a command that does not exist, as shells have it. */
const EXIT_NO_COMMAND = 127;

type Made = RequestOf<"POST /api/containers">["body"];

/** `on`, `off`, or what it may reach. */
export function egressOf(given: readonly string[] | undefined): Made["egress"] {
  if (given === undefined) return undefined;
  const rules = given.flatMap((one) => one.split(",")).filter((one) => one !== "");
  return rules.length === 1 && (rules[0] === "on" || rules[0] === "off") ? rules[0] : rules;
}

/** An empty text removes the entrypoint of the image. */
function entrypointOf({ entrypoint }: Flags): string[] | undefined {
  if (entrypoint === undefined) return undefined;
  return entrypoint === "" ? [] : [entrypoint as string];
}

/** Flags that are left out leave the parameters of the image's check as they are. */
export function healthOf(flags: Flags): Made["health"] {
  const health = {
    command: flags.healthCmd === undefined ? undefined : ["/bin/sh", "-c", flags.healthCmd as string],
    interval_seconds: flags.healthInterval as number | undefined,
    timeout_seconds: flags.healthTimeout as number | undefined,
    start_period_seconds: flags.healthStartPeriod as number | undefined,
    retries: flags.healthRetries as number | undefined,
    on_unhealthy: flags.healthRestart === true ? ("restart" as const) : undefined,
  };
  const isGiven = Object.values(health).some((value) => value !== undefined);
  if (flags.healthcheck !== false) return isGiven ? health : undefined;
  if (isGiven) throw usage("--no-healthcheck excludes the other --health flags", "leave one of them out");
  return "none";
}

/** The container that flags describe, but for its name and command. */
export async function fieldsOf(flags: Flags): Promise<Omit<Made, "name" | "command">> {
  return {
    image: flags.image as string | undefined,
    oci: isReference(flags) ? true : (flags.oci as boolean | undefined),
    environment: await environmentOf(flags),
    labels: flags.label === undefined ? undefined : pairs(flags.label as string[], "--label"),
    volumes: flags.volume as string[] | undefined,
    ports: flags.publish as PublishedPort[] | undefined,
    egress: egressOf(flags.egress as string[] | undefined),
    network: flags.network as string | undefined,
    dns: flags.dns as boolean | undefined,
    memory_limit_mb: flags.memory as number | undefined,
    cpu_limit_percent: flags.cpu as number | undefined,
    disk_limit_mb: flags.disk as number | undefined,
    ...(flags.gpus as WantedGpus | undefined),
    working_directory: flags.workdir as string | undefined,
    user: flags.user as string | undefined,
    entrypoint: entrypointOf(flags),
    stop_signal: flags.stopSignal as string | undefined,
    health: healthOf(flags),
    strict: flags.strict as boolean | undefined,
    read_only_root: flags.readOnly as boolean | undefined,
    restart: flags.restart as "no" | undefined,
    ttl_seconds: flags.ttl as number | undefined,
    idle_seconds: flags.idle as number | undefined,
  };
}

function check(words: Words, flags: Flags): void {
  const isDetached = flags.detach === true;
  if (flags.tty === true && isDetached) throw usage("-t and -d exclude each other", "give -t or -d");
  if (flags.interactive === true && flags.tty !== true) {
    throw usage("the main command of a container has no standard input", "use -it for a terminal, or hearth exec -i");
  }
  // An image may have a command of its own.
  const isAwaited = words.length > 0 || flags.tty === true || flags.oci === true;
  if (flags.rm === true && (isDetached || !isAwaited)) {
    throw usage("--rm needs a command to wait for", "use --ttl to delete the container after a time");
  }
}

const ownCommand = (command: readonly string[]) => (command.length === 0 ? {} : { command: command.slice() });

/** What runs on a terminal is not the container's own command: that has none, also where its image has one. */
const idle = ({ oci }: Pick<Made, "oci">) =>
  oci === true ? { entrypoint: [], command: [] } : { entrypoint: undefined, command: undefined };

export async function run(session: Session, words: Words, flags: Flags): Promise<void> {
  check(words, flags);
  const isTerminal = flags.tty === true;
  const command = words as readonly string[];
  const name = (flags.name as string | undefined) ?? `run-${randomBytes(4).toString("hex")}`;
  const fields = await fieldsOf(flags);
  if (isTerminal) (await import("./attach.ts")).checkTerminal();
  await pullAsked(session, flags);
  session.advice = { NAME_TAKEN: `to remove the existing one: hearth rm -f ${shellWord(name)}` };
  if (fields.volumes !== undefined)
    session.advice = { ...session.advice, NOT_FOUND: "to create a volume: hearth volumes create <name>" };
  const profiles = profilesOf([fields]);
  const client = session.client(profiles.length === 0 ? undefined : FIRST_USE_TIMEOUT_MS);
  const body = { ...fields, name, ...(isTerminal ? idle(fields) : ownCommand(command)) };
  const asked = client.request("POST /api/containers", { body });
  const doing = `creating ${visible(name)}`;
  const made = done(await withBuild(session, profiles, doing, asked));
  if (!isTerminal && (flags.detach === true || (command.length === 0 && flags.rm !== true))) {
    session.show(made, () => sentence(session, made));
    if (made.error_message === null) return;
    process.exitCode = exitCode(session, made);
    if (fields.image === undefined) hintAtImage(session, command, flags);
    return;
  }
  try {
    const inside = [...(fields.entrypoint ?? []), ...command];
    const isLeft = isTerminal ? await inTerminal(session, made, inside) : await inFront(session, made);
    if (process.exitCode !== 0 && fields.image === undefined) hintAtImage(session, command, flags);
    if (isLeft) return;
  } catch (error) {
    if (flags.rm !== true) session.terminal.note(`container ${visible(name)} was not removed`);
    throw error;
  }
  const params = { container_id: made.container_id };
  if (flags.rm === true) await client.request("DELETE /api/containers/:container_id", { params });
}

/** A word with a tag, or of a repository, that no program of the profile has: it was meant as an image. */
const IMAGE_WORD = /^[a-z0-9][a-z0-9._-]*(?:\/[a-z0-9._-]+)*(?::[\w.-]+)?$/;

function hintAtImage({ terminal }: Session, [first = "", ...others]: readonly string[], flags: Flags): void {
  if (process.exitCode !== EXIT_NO_COMMAND || !IMAGE_WORD.test(first)) return;
  const given = [
    flags.detach === true ? "-d" : "",
    flags.tty === true ? "-it" : "",
    flags.rm === true ? "--rm" : "",
  ].filter((flag) => flag !== "");
  const words = others.length === 0 ? [] : ["--", ...others.map(shellWord)];
  const command = ["hearth run", ...given, "--image", first, "--oci", ...words].join(" ");
  terminal.note(`if ${first} is an image: ${command}`);
}

/** Whether it was left running. */
async function inTerminal(session: Session, { container_id, name }: ContainerRecord, command: readonly string[]) {
  const { attach, noteLeft } = await import("./attach.ts");
  const ended = await attach(session, { container_id, command });
  if (ended.exit_code === null) {
    noteLeft(session, ended);
    return true;
  }
  process.exitCode = ended.exit_code;
  const params = { container_id };
  // Nothing asks for a grace: what the terminal did not end was started beside it.
  const stopping = session
    .client()
    .request("POST /api/containers/:container_id/stop", { params, body: { timeout_ms: 0 } });
  await session.terminal.progress(`stopping ${visible(name)}`, stopping);
  return false;
}

/** The first Ctrl-C stops it, the second kills it. */
async function inFront(session: Session, { container_id, name }: ContainerRecord): Promise<boolean> {
  const { terminal } = session;
  const params = { container_id };
  const interrupts = { count: 0 };
  session.interrupt_exit_code = null;
  const onInterrupt = (): void => {
    interrupts.count += 1;
    if (interrupts.count > 2) process.exit(EXIT.interrupted);
    const client = session.client();
    const asked =
      interrupts.count === 1
        ? client.request("POST /api/containers/:container_id/stop", { params, body: {} })
        : client.request("POST /api/containers/:container_id/kill", { params });
    if (interrupts.count === 1) terminal.note(`stopping ${visible(name)}; Ctrl-C again kills it`);
    // It may have ended by itself; if it lives on, the next Ctrl-C tries again.
    asked.catch((error: unknown) => terminal.note(visible(String(error))));
  };
  process.on("SIGINT", onInterrupt);
  try {
    const isStopped = () => interrupts.count > 0;
    const record = await followToEnd(session, container_id, { print: (entry) => pass(session, entry), isStopped });
    process.exitCode = exitCode(session, record);
    if (isStopped()) process.exitCode = EXIT.interrupted;
    return record === null;
  } finally {
    process.off("SIGINT", onInterrupt);
    session.interrupt_exit_code = EXIT.interrupted;
  }
}

function exitCode({ terminal }: Session, record: ContainerRecord | null): number {
  if (record === null) terminal.err("hearth: the container was deleted\n");
  if (record?.oom_killed === true) terminal.err("hearth: the container ran out of memory\n");
  if (record !== null) reportError(terminal, record);
  return record?.exit_code ?? EXIT.refused;
}
