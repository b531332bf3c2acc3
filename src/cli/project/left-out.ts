/** Refusals of a handler whose file is in the folder, and not in the code because a rule leaves it out. */
import { posix } from "node:path";
import { ApiError } from "../../client/client.ts";
import { Failure } from "../session/failure.ts";
import type { Session } from "../session/session.ts";
import { ENVIRONMENT, ruleAgainst } from "./files.ts";
import { HEARTH_IGNORE } from "./ignore-rules.ts";
import type { Project, ProjectFunction } from "./project.ts";

/** Words of a handler that are looked at: a script of many lines names its files early or not at all. */
const HANDLER_WORDS_MAX = 64;

/** The refusal as `project.refusal` has it, with the rule that left out a file of the handler as its hint. */
export function withRuleAgainst(session: Session, project: Project, error: unknown): unknown {
  const refusal = project.refusal(error);
  if (!(error instanceof ApiError) || error.body === null) return refusal;
  const { error: text, error_code } = error.body;
  if (error_code !== "HANDLER_FAILED" && !/^(functions\.\d+\.|.*: )handler: /.test(text)) return refusal;
  const isRefused = ({ name }: ProjectFunction, i: number) =>
    text.startsWith(`functions.${i}.`) || text.startsWith(`function '${name}': `);
  const named = project.functions.filter(isRefused);
  const [rule] = (named.length > 0 ? named : project.functions).flatMap((one) => told(one) ?? []);
  if (rule === undefined) return refusal;
  session.advice = { ...session.advice, [error_code]: rule };
  return refusal instanceof Failure ? new Failure(refusal.exit_code, refusal.message, rule, error) : refusal;
}

/** The rule that leaves out a file of the handler, in words; null: none does. */
function told({ described, directory }: ProjectFunction): string | null {
  for (const path of namedPaths(described.handler)) {
    const rule = ruleAgainst(directory, path);
    if (rule === null) continue;
    if (rule.text === ENVIRONMENT.text) {
      return `hearth leaves out '${path}' of a virtual environment; name a Python of the image, and install packages with --build`;
    }
    const by = rule.file === null ? "hearth" : `${rule.file}:${rule.line} ('${rule.text}')`;
    const isOwn = rule.file?.endsWith(HEARTH_IGNORE) === true;
    const kept = `!/${rule.path.replace(/[*?[\\]/g, "\\$&")}`;
    return `${by} leaves out '${path}'; to keep it, ${isOwn ? "change that line" : `write '${kept}' into ${HEARTH_IGNORE}`}`;
  }
  return null;
}

/** Paths in the folder that a handler may name: `dist/index.mjs#handler`, `main.py:handler`, `sh ./run.sh`. */
function namedPaths(handler: string): readonly string[] {
  const words = [handler.split("#")[0] ?? "", ...handler.split(/[\s#:'"=;|&<>()]+/)].slice(0, HANDLER_WORDS_MAX);
  const paths = words.map((word) => posix.normalize(word.replace(/^\/function\//, "")));
  return [...new Set(paths)].filter((path) => !/^(\.{0,2}|\/.*|\.\.\/.*)$/.test(path) && !path.includes("\0"));
}
