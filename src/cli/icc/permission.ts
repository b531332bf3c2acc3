/** `hearth icc permission`: the highest permission level of messages that a container sends. */
import type { RequestOf } from "../../client/client.ts";
import type { Session, Words } from "../session/session.ts";

type Level = RequestOf<"PUT /api/icc/containers/:container_id/permission">["body"]["permission_level"];

export async function permission(session: Session, [container = "", level]: Words): Promise<void> {
  const params = { container_id: await session.containerId(container) };
  const client = session.client();
  const answer =
    level === undefined
      ? await client.request("GET /api/icc/containers/:container_id/permission", { params })
      : await client.request("PUT /api/icc/containers/:container_id/permission", {
          params,
          body: { permission_level: level as Level },
        });
  session.show(answer, () => `${answer.permission_level}\n`);
}
