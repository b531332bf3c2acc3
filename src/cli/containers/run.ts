/** `hearth run`: a container, and with a command what it writes until it ends, whose exit code is then ours. */
import { randomBytes } from "node:crypto";
import { isIP } from "node:net";
import type { RequestOf } from "../../client/client.ts";
import { done } from "../daemon/operations.ts";
import { flagHint } from "../docker-words.ts";
import { environmentOf, pairs } from "../functions/function-fields.ts";
import { isReference, pullAsked } from "../images/pull-policy.ts";
import { shellWord, visible } from "../output/text.ts";
import { FIRST_USE_TIMEOUT_MS, profilesOf, withBuild } from "../profiles/first-use.ts";
import { EXIT, EXIT_READER_GONE, Failure, usage } from "../session/failure.ts";
import { type ContainerRecord, type Flags, isRefusal, type Session, type Words } from "../session/session.ts";
import { callersVariable } from "../session/target.ts";
import type { PublishedPort } from "../session/verb.ts";
import { endOf, followToEnd, pass, reportError } from "./container-log.ts";
import { sentence } from "./containers.ts";
import { commandOf } from "./exec.ts";
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
    environment: await environmentOf(flags, callersVariable),
    labels: flags.label === undefined ? undefined : pairs(flags.label as string[], "--label"),
    volumes: flags.volume as string[] | undefined,
    ports: flags.publish as PublishedPort[] | undefined,
    egress: egressOf(flags.egress as string[] | undefined),
    network: flags.network as string | undefined,
    dns: flags.dns as boolean | undefined,
    memory_limit_mb: flags.memory as number | undefined,
    cpu_limit_percent: (flags.cpus ?? flags.cpu) as number | undefined,
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
  const [first = ""] = words;
  if (flags.dns === true && isIP(first) !== 0) {
    throw usage(`--dns has no value: '${first}'`, flagHint("run", "--dns"));
  }
  if (flags.cpu !== undefined && flags.cpus !== undefined) {
    throw usage("--cpu and --cpus exclude each other", "leave one of them out");
  }
  if (flags.tty === true && isDetached) throw usage("-t and -d exclude each other", "give -t or -d");
  if (flags.interactive === true && flags.tty !== true) checkInput(flags);
  // An image may have a command of its own.
  const isAwaited = words.length > 0 || flags.tty === true || flags.oci === true;
  if (flags.rm === true && (isDetached || !isAwaited)) {
    throw usage("--rm needs a command to wait for", "use --ttl to delete the container after a time");
  }
}

/** Standard input is that of one run, which somebody waits for. */
function checkInput(flags: Flags): void {
  if (flags.detach === true) throw usage("-i and -d exclude each other", "give -i or -d");
  if (restarts(flags)) throw usage("-i and --restart exclude each other", "leave one of them out");
}

const restarts = ({ restart }: Flags): boolean => restart !== undefined && restart !== "no";

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
  const isInteractive = flags.interactive === true;
  const isLeft =
    !isTerminal && (flags.detach === true || (command.length === 0 && flags.rm !== true && !isInteractive));
  // Of a container that is restarted the log has the output of all runs.
  const streams = !isTerminal && !isLeft && !restarts(flags) ? { attach: true, stdin: isInteractive } : {};
  const body = { ...fields, ...streams, name, ...(isTerminal ? idle(fields) : ownCommand(command)) };
  const asked = client.request("POST /api/containers", { body });
  const doing = `creating ${visible(name)}`;
  const made = done(await withBuild(session, profiles, doing, asked));
  if (isLeft) {
    session.show(made, () => sentence(session, made));
    if (flags.detach === true) hintAtShell(session, command, flags);
    if (made.error_message === null) return;
    process.exitCode = exitCode(session, made);
    if (fields.image === undefined) hintAtImage(session, command, flags);
    return;
  }
  const params = { container_id: made.container_id };
  const remove = () =>
    client.request("DELETE /api/containers/:container_id", { params }).catch((error: unknown) => {
      if (!isRefusal(error, "NOT_FOUND")) throw error;
    });
  try {
    const inside = [...(fields.entrypoint ?? []), ...command];
    // Nobody waits for a container whose output nobody reads: only with --rm would it be left for nobody.
    session.terminal.onReaderGone = () => {
      const gone = () => process.exit(EXIT_READER_GONE);
      if (flags.rm !== true) gone();
      else void remove().then(gone, gone);
    };
    const isStillThere = isTerminal ? await inTerminal(session, made, inside) : await inFront(session, made, flags);
    if (process.exitCode !== 0 && fields.image === undefined) hintAtImage(session, command, flags);
    if (!isTerminal && !isInteractive) hintAtShell(session, command, flags);
    if (isStillThere) return;
  } catch (error) {
    session.terminal.note(`container ${visible(name)} was not removed`);
    throw error;
  }
  if (flags.rm === true) await remove();
}

/** Without a script a shell reads its commands from its standard input: without one it ends at once. */
const BARE_SHELL = /^(?:\S*\/)?(?:sh|bash|dash|ash|zsh|fish|ksh|busybox sh)(?: -[il]+| --login)*$/;

/** Users of Docker know that such a container exits at once, but not all of them why. */
function hintAtShell({ terminal }: Session, command: readonly string[], flags: Flags): void {
  if (!BARE_SHELL.test(command.join(" "))) return;
  const words = command.map(shellWord).join(" ");
  const image = flags.image === undefined ? "" : ` --image ${shellWord(flags.image as string)}`;
  const run = `hearth run -it${flags.rm === true ? " --rm" : ""}${image}${flags.oci === true ? " --oci" : ""}`;
  terminal.note(`${words} ended at once: it has no terminal and no input; for a shell: ${run} -- ${words}`);
}

/** A word with a tag, or of a repository, that no program of the profile has: it was meant as an image. */
const IMAGE_WORD = /^[a-z0-9][a-z0-9._-]*(?:\/[a-z0-9._-]+)*(?::[\w.-]+)?$/;

function hintAtImage({ terminal }: Session, [first = "", ...rest]: readonly string[], flags: Flags): void {
  const others = commandOf(rest);
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

/** Whether it was left. The first Ctrl-C stops it, the second kills it. */
async function inFront(session: Session, made: ContainerRecord, flags: Flags): Promise<boolean> {
  const { terminal } = session;
  const { container_id, name } = made;
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
    const print = (entry: Parameters<typeof pass>[1]) => pass(session, entry);
    const follow = () => followToEnd(session, container_id, { after_seq: 0, print, isStopped });
    const ended = restarts(flags) ? await follow() : await attached(session, made, { flags, follow });
    process.exitCode = typeof ended === "number" ? ended : exitCode(session, ended);
    if (isStopped()) process.exitCode = EXIT.interrupted;
    return ended === null;
  } finally {
    process.off("SIGINT", onInterrupt);
    session.interrupt_exit_code = EXIT.interrupted;
  }
}

interface Ending {
  readonly flags: Flags;
  readonly follow: () => Promise<ContainerRecord | null>;
}

/** Passes the output on as bytes. Resolves to the container's end, null once it is deleted; a number is the exit code alone. */
async function attached(session: Session, made: ContainerRecord, { flags, follow }: Ending) {
  const { container_id, name } = made;
  // It could not be started.
  if (made.state !== "running") return made;
  const { converse, Lost } = await import("./streams.ts");
  const hasInput = flags.interactive === true;
  const path = `/ws/containers/${container_id}/attach${hasInput ? "?stdin=true" : ""}`;
  try {
    const code = await converse(session, { path, hasInput });
    return (await endOf(session, container_id, () => true)) ?? code;
  } catch (error) {
    if (isRefusal(error, "WRONG_STATE")) return withoutCommand(session, made, flags);
    if (isRefusal(error, "NOT_RUNNING")) {
      session.terminal.note(`attached too late to ${visible(name)}: its output is from its log, as lines`);
      return follow();
    }
    if (!(error instanceof Lost)) throw error;
    const hint = `its output goes to its log: hearth logs -f ${shellWord(name)}`;
    throw new Failure(
      EXIT.unreachable,
      `lost the output of ${visible(name)}, which still runs: ${error.message}`,
      hint,
    );
  }
}

/** The image has no command but a shell, which ends at once: there is nothing to wait for. */
async function withoutCommand(session: Session, { container_id }: ContainerRecord, flags: Flags): Promise<number> {
  const params = { container_id };
  await session.client().request("POST /api/containers/:container_id/stop", { params, body: { timeout_ms: 0 } });
  const run = `hearth run -it${flags.rm === true ? " --rm" : ""} --image ${shellWord(String(flags.image))} --oci`;
  session.terminal.note(`the image has no command but a shell, and no terminal or input for it; for a shell: ${run}`);
  return EXIT.success;
}

function exitCode({ terminal }: Session, record: ContainerRecord | null): number {
  if (record === null) terminal.err("hearth: the container was deleted\n");
  if (record?.oom_killed === true) terminal.err("hearth: the container ran out of memory\n");
  if (record !== null) reportError(terminal, record);
  return record?.exit_code ?? EXIT.refused;
}
