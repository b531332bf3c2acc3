/** The audit log: who changed what, and what was refused. */
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import type { Format } from "../output/terminal.ts";
import { stamp } from "../output/time.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Entry = ResponseOf<"GET /api/audit">["entries"][number];

/** Entries unless told: a screen or two. */
const ENTRIES_SHOWN = 50;

const FORMATS: Readonly<Record<Entry["result"], Format>> = { success: "green", refused: "yellow", failed: "red" };

/** Seconds since the epoch of a time ago or a date, as `moment` has read it. */
function epochOf(given: unknown, now: number): number | undefined {
  if (given === undefined) return undefined;
  return typeof given === "number" ? now - given : Math.floor(Date.parse(String(given)) / 1000);
}

export async function listAudit(session: Session, _words: Words, flags: Flags): Promise<void> {
  const client = session.client();
  const filter = {
    since: epochOf(flags.since, session.now),
    until: epochOf(flags.until, session.now),
    key_id: flags.keyId as string | undefined,
    route: flags.route as string | undefined,
    target: flags.target as string | undefined,
    result: flags.result as Entry["result"] | undefined,
    tenant_id: flags.tenant === undefined ? undefined : await session.tenantId(String(flags.tenant)),
  };
  if (flags.ndjson === true) {
    const { pieces } = await client.open("GET /api/audit", { query: { ...filter, format: "ndjson" } });
    for await (const piece of pieces) await session.terminal.pass("out", piece);
    return;
  }
  const limit = (flags.limit as number | undefined) ?? ENTRIES_SHOWN;
  const answer = await readList("entries", limit, (page) =>
    client.request("GET /api/audit", { query: { ...filter, ...page } }),
  );
  const columns: Column<Entry>[] = [
    { title: "AT", value: ({ at }) => stamp(at) },
    {
      title: "RESULT",
      value: ({ result, error_code }) => error_code ?? result,
      format: ({ result }) => FORMATS[result],
    },
    { title: "OPERATION", value: ({ operation }) => operation },
    { title: "TARGET", value: ({ target }) => target, isLong: true },
    { title: "KEY", value: ({ key_name, key_id }) => key_name ?? key_id },
    { title: "TENANT", value: ({ tenant_id }) => tenant_id, isSpare: true },
    { title: "ADDRESS", value: ({ address }) => address, isSpare: true },
  ];
  session.show(answer, () => session.table(columns, answer.entries, "no entries"));
  session.noteCut(answer.entries.length, limit, answer);
}
