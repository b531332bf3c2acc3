/**
 * `hearth build`: sends a folder to the daemon, builds an image of it there, and shows the log of the build as it grows. The
 * log goes to standard error, the built image to standard output.
 */
import { resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import { ApiError, type RequestOf } from "../../client/client.ts";
import { egressOf } from "../containers/run.ts";
import { serverEvents } from "../daemon/events.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { pairs } from "../functions/function-fields.ts";
import { shortId } from "../images/images.ts";
import { shellWord, visible } from "../output/text.ts";
import { bytes } from "../output/time.ts";
import { EXIT, usage } from "../session/failure.ts";
import { metered } from "../session/meter.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { type ContextFiles, scanContext } from "./build-context.ts";
import { tarOf } from "./tar-writer.ts";
import { gzipped } from "./upload.ts";

type Body = RequestOf<"POST /api/oci/images/build">["body"];

export async function build(session: Session, [folder = "."]: Words, flags: Flags): Promise<void> {
  const image_reference = flags.tag as string | undefined;
  if (image_reference === undefined) throw usage("the image needs a reference", "give -t <reference>, as -t app:1");
  const root = resolve(folder);
  const files = scanContext(root, (flags.file as string | undefined) ?? null, process.cwd());
  const { context_id } = await uploaded(session, files);
  const client = session.client();
  const interrupted = { is: false };
  try {
    const body: Body = {
      ...{ context_id, image_reference, buildfile_path: files.buildfile_path },
      build_args: flags.buildArg === undefined ? undefined : pairs(flags.buildArg as string[], "--build-arg"),
      target_stage: flags.target as string | undefined,
      egress: egressOf(flags.egress as string[] | undefined),
      no_cache: flags.cache === false ? true : undefined,
      secrets: flags.secret as string[] | undefined,
    };
    const after = await newestEvent(session);
    const query = { execution: "async" as const };
    const operation_id = accepted(await client.request("POST /api/oci/images/build", { query, body }));
    interrupted.is = await followed(session, operation_id, after);
    const ended = interrupted.is ? null : await succeeded(session, operation_id, "building");
    if (ended !== null) await showImage(session, String(ended.result?.reference ?? image_reference));
  } finally {
    // The daemon deletes it in an hour in any case.
    await client.request("DELETE /api/build-contexts/:context_id", { params: { context_id } }).catch(() => {});
  }
  if (interrupted.is) process.exitCode = EXIT.interrupted;
}

async function uploaded(session: Session, files: ContextFiles) {
  const { terminal } = session;
  if (files.size_bytes > LIMITS.cli_code_bytes_note) {
    terminal.note(`${visible(files.root)} has ${bytes(files.size_bytes)}; .dockerignore leaves files out`);
  }
  const [first] = files.skipped;
  if (first !== undefined) {
    const others = files.skipped.length === 1 ? "" : ` and ${counted(files.skipped.length - 1, "more")}`;
    terminal.note(`left out, because it is no file, folder or link: ${visible(first)}${others}`);
  }
  const pieces = metered(session, "uploading", tarOf(files), { bytes: files.size_bytes }, { bytes: 0 });
  const upload = { content_type: "application/gzip", pieces: gzipped(pieces) };
  return session.client(LIMITS.cli_call_timeout_ms).request("POST /api/build-contexts", { upload });
}

/** The id of the newest event: the log of what begins now comes after it. */
async function newestEvent(session: Session): Promise<number> {
  const abort = new AbortController();
  try {
    const { pieces } = await session.client().open("GET /api/events", { signal: abort.signal });
    for await (const { name, data } of serverEvents(pieces)) {
      if (name === "ready") return Number(data.newest_event_id);
    }
    return 0;
  } finally {
    abort.abort();
  }
}

/** Shows the log of a build until its operation has ended. Ctrl-C cancels it: resolves to true then. */
async function followed(session: Session, operation_id: string, after: number): Promise<boolean> {
  const interrupts = { count: 0 };
  session.interrupt_exit_code = null;
  const onInterrupt = (): void => {
    interrupts.count += 1;
    if (interrupts.count > 1) process.exit(EXIT.interrupted);
    session.terminal.note("cancelling the build; Ctrl-C again leaves it");
    const params = { operation_id };
    const asked = session.client().request("POST /api/operations/:operation_id/cancel", { params });
    // It may have ended by itself.
    asked.catch(() => {});
  };
  process.on("SIGINT", onInterrupt);
  try {
    const log = new LogView(session);
    await eachEvent(session, operation_id, after, (data) => log.show(data));
    log.end();
    return interrupts.count > 0;
  } finally {
    process.off("SIGINT", onInterrupt);
    session.interrupt_exit_code = EXIT.interrupted;
  }
}

/** States in which an operation ends, as its events name them. */
const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled", "timed_out"]);

type Data = Readonly<Record<string, unknown>>;

/** Passes on each piece of the log. A stream that breaks is continued behind its last event. */
async function eachEvent(session: Session, operation_id: string, after: number, onLog: (data: Data) => void) {
  let last_event_id = after;
  for (let failed_count = 0; ; ) {
    const abort = new AbortController();
    try {
      const query = { operation_id, last_event_id };
      const { pieces } = await session.client().open("GET /api/events", { query, signal: abort.signal });
      for await (const { name, id, data } of serverEvents(pieces)) {
        last_event_id = id ?? last_event_id;
        failed_count = 0;
        if (data.event_type === "build_log") onLog(data);
        else if (name === "operation_update" && ENDED.has(String(data.event_type))) return;
      }
    } catch (error) {
      failed_count += 1;
      if (error instanceof ApiError || failed_count > LIMITS.cli_reconnects_max) throw error;
    } finally {
      abort.abort();
    }
    await pause(LIMITS.cli_pull_poll_ms);
  }
}

/** Steps as headings, what commands write below them. */
class LogView {
  readonly #session: Session;
  /** The end of the output that is no whole line yet. */
  #rest = "";

  constructor(session: Session) {
    this.#session = session;
  }

  show({ stream, step, steps, text }: Data): void {
    const { terminal, flags } = this.#session;
    if (flags.json === true) return;
    const written = String(text);
    if (stream !== "step") {
      const lines = `${this.#rest}${written}`.split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) this.#line(line);
      return;
    }
    this.end();
    const what = visible(written.replace(/\s*\\?\n\s*/g, " "));
    const heading = what.startsWith("step ") ? what : `step ${Number(step)}/${Number(steps)}: ${what}`;
    terminal.err(`${terminal.paintError("bold", heading)}\n`);
  }

  end(): void {
    if (this.#rest !== "") this.#line(this.#rest);
    this.#rest = "";
  }

  #line(line: string): void {
    // Programs that draw bars overwrite a line: its last form stands.
    const last = line.replace(/\r+$/, "").split("\r").at(-1) ?? "";
    const { terminal } = this.#session;
    terminal.err(
      `${terminal.paintError("dim", "  |")} ${visible(stripVTControlCharacters(last).replaceAll("\t", "  "))}\n`,
    );
  }
}

async function showImage(session: Session, reference: string): Promise<void> {
  const { image } = await session.client().request("GET /api/oci/images/inspect", { query: { reference } });
  session.show(image, () => `${visible(image.reference)} is built: ${shortId(image.id)}, ${bytes(image.size_bytes)}\n`);
  const command = `hearth run --rm --image ${shellWord(reference)} --oci`;
  if (session.flags.json !== true) session.terminal.note(`to run it: ${command}`);
}
