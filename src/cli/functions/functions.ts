/** The verbs of a function's life: made, deployed, changed, looked at, ended. */
import { LIMITS } from "../../base/limits.ts";
import { isReference, pullAsked } from "../images/pull-policy.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import type { Format } from "../output/terminal.ts";
import { shellWord, visible } from "../output/text.ts";
import { relative } from "../output/time.ts";
import { FIRST_USE_TIMEOUT_MS, profilesOf, withBuild } from "../profiles/first-use.ts";
import { usage } from "../session/failure.ts";
import { readList } from "../session/pages.ts";
import type { Flags, FunctionRecord, Session, Words } from "../session/session.ts";
import { environmentChange, fieldsOf, variablesOf } from "./function-fields.ts";

const STATE_FORMATS: Readonly<Record<string, Format>> = { active: "green", paused: "yellow", error: "red" };

function stateFormat({ state }: { readonly state: string }): Format {
  return STATE_FORMATS[state] ?? "dim";
}

export function sentence(session: Session, record: FunctionRecord): string {
  const { paint } = session.terminal;
  const state = paint(stateFormat(record), record.state);
  return `${visible(record.name)} is ${state}, version ${record.current_version} (${record.id})\n`;
}

/** The fields that flags give, with the OCI image of an `--image` pulled as `--pull` says. An image without `--oci` is a profile. */
async function pulledFields(session: Session, flags: Flags): Promise<Record<string, unknown>> {
  const fields = await fieldsOf(flags);
  if (flags.image === false || (flags.image ?? flags.pull) === undefined) return fields;
  await pullAsked(session, flags);
  return { ...fields, oci: isReference(flags) };
}

export async function create(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const { handler, ...fields } = await pulledFields(session, flags);
  if (typeof handler !== "string") throw usage("a function needs a handler", "give --handler or --handler-file");
  const environment = await variablesOf(flags);
  const profiles = profilesOf([fields]);
  const client = session.client(profiles.length === 0 ? undefined : FIRST_USE_TIMEOUT_MS);
  session.advice = { NAME_TAKEN: `to change it: hearth update ${shellWord(name)}` };
  const asked = client.request("POST /api/functions", { body: { name, handler, ...fields, environment } });
  const made = await withBuild(session, profiles, `creating ${visible(name)}`, asked);
  if (flags.deploy !== true) {
    session.show(made, () => sentence(session, made));
    if (session.flags.json !== true) session.terminal.note(`to deploy it: hearth deploy ${shellWord(name)}`);
    return;
  }
  const params = { function_id: made.id };
  try {
    const deployed = await session.terminal.progress(
      `deploying ${visible(name)}`,
      client.request("POST /api/functions/:function_id/deploy", { params }),
    );
    session.show(deployed, () => sentence(session, deployed));
  } catch (error) {
    session.terminal.note(
      `${visible(name)} was created but not deployed; to try again: hearth deploy ${shellWord(name)}`,
    );
    throw error;
  }
}

export async function update(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const fields = await pulledFields(session, flags);
  const change = await environmentChange(flags);
  if (change === null && Object.keys(fields).length === 0) {
    throw usage("nothing to update: no field given", "list the flags with: hearth update --help");
  }
  // A smoke call takes as long as any other call.
  const client = session.client(LIMITS.cli_call_timeout_ms);
  const params = { function_id: await session.functionId(name) };
  if (change !== null) {
    // The API takes the environment as a whole.
    const { environment } = await client.request("GET /api/functions/:function_id", { params });
    const kept = Object.entries(change.isCleared ? {} : environment).filter(([one]) => !change.unset.includes(one));
    fields.environment = { ...Object.fromEntries(kept), ...change.set };
  }
  const asked = client.request("PUT /api/functions/:function_id", { params, body: fields });
  const updated = await withBuild(session, profilesOf([fields]), `warming the next version of ${visible(name)}`, asked);
  session.show(updated, () => sentence(session, updated));
}

/** Deploys a function that exists; `smoke`: payload of a call that must succeed before. */
export async function deployFunction(session: Session, name: string, smoke: string | undefined): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  const body = smoke === undefined ? {} : { smoke: { payload: smoke } };
  const client = session.client(LIMITS.cli_call_timeout_ms);
  const record = await session.terminal.progress(
    `deploying ${visible(name)}`,
    client.request("POST /api/functions/:function_id/deploy", { params, body }),
  );
  session.show(record, () => sentence(session, record));
}

export async function resume(session: Session, [name = ""]: Words): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  const record = await session.terminal.progress(
    `resuming ${visible(name)}`,
    session.client().request("POST /api/functions/:function_id/resume", { params }),
  );
  session.show(record, () => sentence(session, record));
}

export async function pause(session: Session, [name = ""]: Words): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  const answer = await session.terminal.progress(
    `pausing ${visible(name)}`,
    session.client().request("POST /api/functions/:function_id/pause", { params }),
  );
  session.show(answer, () => `${visible(name)} is paused\n`);
}

export async function remove(session: Session, [name = ""]: Words): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  const answer = await session.terminal.progress(
    `deleting ${visible(name)}`,
    session.client().request("DELETE /api/functions/:function_id", { params }),
  );
  session.show(answer, () => `${visible(name)} is deleted\n`);
}

export async function list(session: Session, _words: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const answer = await readList("functions", limit, (query) => client.request("GET /api/functions", { query }));
  const { now } = session;
  const columns: Column<FunctionRecord>[] = [
    { title: "NAME", value: ({ name }) => name },
    { title: "STATE", value: ({ state }) => state, format: stateFormat },
    { title: "VERSION", value: ({ current_version }) => current_version, side: "right" },
    { title: "CALLS", value: ({ invocation_count }) => invocation_count, side: "right" },
    {
      title: "FAILED",
      value: ({ error_count }) => error_count,
      side: "right",
      format: ({ error_count }) => (error_count > 0 ? "red" : null),
    },
    { title: "LAST CALL", value: ({ last_invoked_at }) => relative(last_invoked_at, now) },
    { title: "ID", value: ({ id }) => id, format: () => "dim", isSpare: true },
    { title: "HANDLER", value: ({ handler }) => handler, isLong: true },
  ];
  const empty = "no functions yet: hearth create hello --handler 'echo hello, $(cat)' --deploy";
  session.show(answer, () => session.table(columns, answer.functions, empty));
  session.noteCut(answer.functions.length, limit, answer);
}

export async function get(session: Session, [name = ""]: Words): Promise<void> {
  const params = { function_id: await session.functionId(name) };
  const record = await session.client().request("GET /api/functions/:function_id", { params });
  session.show(record, () => session.list(entriesOf(record, session.now)));
}
