/** Verbs that functions and containers share: which of them a name means. One that both have is asked about. */

import { didYouMean } from "../../base/suggest.ts";
import { containerLogs } from "../containers/container-log.ts";
import { remove as removeContainers } from "../containers/containers.ts";
import { each } from "../each.ts";
import { remove as removeFunction } from "../functions/functions.ts";
import { logs as functionLogs } from "../functions/records.ts";
import { shellWord } from "../output/text.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { type Flags, isRefusal, type Session, type Words } from "../session/session.ts";

type Kind = "function" | "container";

const found = async <T>(asked: Promise<T>): Promise<T | null> => {
  try {
    return await asked;
  } catch (error) {
    if (isRefusal(error, "NOT_FOUND")) return null;
    throw error;
  }
};

async function kindOf(session: Session, name: string, verbs: Readonly<Record<Kind, string>>): Promise<Kind> {
  if (session.isFunctionId(name)) return "function";
  if (session.isContainerId(name)) return "container";
  const client = session.client();
  const params = { name };
  const [ofFunction, ofContainer] = await Promise.all([
    found(client.request("GET /api/functions/by-name/:name", { params })),
    client.request("GET /api/containers/by-name/:name", { params }),
  ]);
  if (ofFunction !== null && ofContainer.found) {
    const word = shellWord(name);
    const hint = `hearth functions ${verbs.function} ${word}, or: hearth containers ${verbs.container} ${word}`;
    throw new Failure(EXIT.refused, `name '${name}' is ambiguous: a function and a container have it`, hint);
  }
  if (ofFunction !== null) return "function";
  if (ofContainer.found) return "container";
  const names = [...(await session.functionNames()), ...(await session.containerNames())];
  throw new Failure(EXIT.refused, `no function or container named '${name}'`, didYouMean(name, names));
}

export async function logs(session: Session, words: Words, flags: Flags): Promise<void> {
  const kind = await kindOf(session, words[0] ?? "", { function: "logs", container: "logs" });
  if (kind === "container") return containerLogs(session, words, flags);
  if (flags.since !== undefined || flags.timestamps === true) {
    throw usage("--since and --timestamps are for containers", "to list a function's records: hearth invocations");
  }
  return functionLogs(session, words, flags);
}

export async function remove(session: Session, names: Words, flags: Flags): Promise<void> {
  await each(session, names, async (name) => {
    const kind = await kindOf(session, name, { function: "delete", container: "rm" });
    if (kind === "container") await removeContainers(session, [name], flags);
    else await removeFunction(session, [name]);
  });
}
