/** `hearth version`: which version answers the command, and which the requests. */
import { visible } from "../output/text.ts";
import { packageVersion } from "../package-version.ts";
import type { Session } from "../session/session.ts";

/** The command's own version is printed also where no daemon answers. */
export async function version(session: Session): Promise<void> {
  const command = packageVersion();
  const isJson = session.flags.json === true;
  if (!isJson) session.terminal.out(`command ${command}\n`);
  const daemon = (await session.client().request("GET /api/system/info")).version;
  session.show({ command, daemon }, () => `daemon  ${visible(daemon)}, at ${session.target.url}\n`);
}
