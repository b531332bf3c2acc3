/** How a command's failure is told, in words or as JSON, and the exit code that goes with it. */
import { CommanderError } from "commander";
import { didYouMean } from "../base/suggest.ts";
import { ApiError, Unreachable } from "../client/client.ts";
import { commandLineHint } from "./hints.ts";
import type { Terminal } from "./output/terminal.ts";
import { json, visible } from "./output/text.ts";
import { EXIT, Failure } from "./session/failure.ts";
import { isRefusal, type Session } from "./session/session.ts";
import { THIS_MACHINE } from "./session/target.ts";

/** Lines of a handler's output; the error is in the last ones. */
const OUTPUT_LINES_MAX = 40;

interface Told {
  readonly exit_code: number;
  readonly message: string;
  /** What else helps, a line each. */
  readonly lines: readonly string[];
  /** As the API would say it. */
  readonly body: object;
}

/** Tells what was thrown on standard error. Returns the exit code. */
export async function report(
  thrown: unknown,
  session: Session | null,
  terminal: Terminal,
  isJson: boolean,
): Promise<number> {
  if (thrown instanceof CommanderError && isHelp(thrown)) {
    return thrown.exitCode === 0 ? EXIT.success : EXIT.usage;
  }
  const told = await tell(thrown, session);
  if (isJson) terminal.err(`${json(told.body)}\n`);
  else {
    const { paintError } = terminal;
    terminal.err(`${paintError("red", "hearth:")} ${visible(told.message)}\n`);
    for (const line of told.lines) terminal.err(`  ${paintError("dim", visible(line))}\n`);
  }
  return told.exit_code;
}

/** Help that was asked for, a version, or help in place of a missing verb: all of them are already printed. */
function isHelp({ code }: CommanderError): boolean {
  return ["commander.help", "commander.helpDisplayed", "commander.version"].includes(code);
}

const body = (error: string, error_code: string, hint: string | null) => ({
  error,
  error_code,
  request_id: null,
  hint,
});

async function tell(thrown: unknown, session: Session | null): Promise<Told> {
  if (thrown instanceof ApiError) return tellRefusal(thrown, session);
  if (thrown instanceof Unreachable) return tellUnreachable(thrown, session);
  if (thrown instanceof CommanderError) {
    // "error: unknown command 'lits'\n(Did you mean list?)"
    const [first = "", meant] = thrown.message.replace(/^error: /, "").split("\n");
    const hint =
      meant === undefined
        ? "add --help to any command to see its arguments and flags"
        : meant.replace(/^\(D(.*)\)$/, "d$1");
    return { exit_code: EXIT.usage, message: first, lines: [hint], body: body(first, "USAGE", hint) };
  }
  if (thrown instanceof Failure) {
    const { message, hint, exit_code } = thrown;
    const code = exit_code === EXIT.usage ? "USAGE" : "FAILED";
    return { exit_code, message, lines: hint === null ? [] : [hint], body: body(message, code, hint) };
  }
  const message = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  return { exit_code: EXIT.refused, message, lines: [], body: body(message, "FAULT", null) };
}

async function tellRefusal(refusal: ApiError, session: Session | null): Promise<Told> {
  const exit_code = EXIT.refused;
  const said = refusal.body;
  if (said === null) {
    const message = `${session?.asked?.url ?? "the URL"} is not a hearth daemon (status ${refusal.status})`;
    return { exit_code, message, lines: sources(session), body: body(message, "NOT_HEARTH", null) };
  }
  const hint = session?.advice[said.error_code] ?? (said.hint === null ? null : commandLineHint(said.hint));
  const lines = hint === null ? [] : [hint];
  if (said.error_code === "UNAUTHORIZED" || said.error_code === "FORBIDDEN") lines.push(...sources(session));
  const meant = isRefusal(refusal, "NOT_FOUND") ? await meantName(session) : null;
  if (meant !== null) lines.push(meant);
  lines.push(...outputLines(said.details?.output ?? null));
  if (said.retry_after !== null) lines.push(`retry in ${said.retry_after} s`);
  lines.push(`request ${said.request_id}`);
  return { exit_code, message: `${said.error} [${said.error_code}]`, lines, body: said };
}

/** The end of the output of a handler that failed, a line each. */
function outputLines(output: string | null): string[] {
  if (output === null) return [];
  const lines = output.trimEnd().split("\n");
  const kept = lines.slice(-OUTPUT_LINES_MAX).map((line) => `| ${line.replaceAll("\t", "  ")}`);
  return lines.length > kept.length ? [`| … ${lines.length - kept.length} lines before`, ...kept] : kept;
}

/** The names nearest to one that is not there. */
async function meantName(session: Session | null): Promise<string | null> {
  const sought = session?.sought ?? null;
  if (sought === null) return null;
  const names = await sought.names();
  return names.includes(sought.word) ? null : didYouMean(sought.word, names);
}

function tellUnreachable(failure: Unreachable, session: Session | null): Told {
  const lines = sources(session).slice(0, 1);
  if (session?.asked?.url_source === THIS_MACHINE) lines.push("start the daemon with 'npm start'");
  else lines.push("check the URL, and that the daemon runs there ('npm start')");
  return {
    exit_code: EXIT.unreachable,
    message: failure.message,
    lines,
    body: body(failure.message, "UNREACHABLE", lines.join("; ")),
  };
}

/** Where the URL and the key came from. */
function sources(session: Session | null): string[] {
  const target = session?.asked ?? null;
  if (target === null) return [];
  return [`the URL came from ${target.url_source}`, `the key came from ${target.key_source}`];
}
