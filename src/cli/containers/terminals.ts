/** Terminal sessions in containers: listed and closed. Attaching is attach.ts's. */
import type { ResponseOf } from "../../client/client.ts";
import { each } from "../each.ts";
import type { Column } from "../output/table.ts";
import { relative } from "../output/time.ts";
import type { Session, Words } from "../session/session.ts";

type Terminal = ResponseOf<"GET /api/terminal/sessions">["sessions"][number];

const COLUMNS = (now: number): Column<Terminal>[] => [
  { title: "SESSION", value: ({ session_id }) => session_id },
  { title: "CONTAINER", value: ({ container_id }) => container_id },
  { title: "STATE", value: ({ state }) => state, format: ({ state }) => (state === "active" ? "green" : "dim") },
  { title: "COMMAND", value: ({ shell }) => shell, isLong: true },
  { title: "LAST USE", value: ({ last_activity_at }) => relative(last_activity_at, now) },
  { title: "ENDS", value: ({ expires_at }) => relative(expires_at, now), isSpare: true },
];

/** Sessions that have not ended, newest first; of one container where it is named. */
export async function listTerminals(session: Session, [container]: Words): Promise<void> {
  const answer = await session.client().request("GET /api/terminal/sessions");
  const container_id = container === undefined ? null : await session.containerId(container);
  const sessions = answer.sessions.filter((one) => container_id === null || one.container_id === container_id);
  session.show({ ...answer, sessions }, () => session.table(COLUMNS(session.now), sessions, "no terminal sessions"));
}

export async function closeTerminals(session: Session, words: Words): Promise<void> {
  await each(session, words, async (session_id) => {
    const answer = await session
      .client()
      .request("DELETE /api/terminal/sessions/:session_id", { params: { session_id } });
    session.show(answer, () => `${session_id} is closed\n`);
  });
}
