/** `hearth gui`, `hearth screenshot`: the desktop of a container, in a browser or as a picture. */
import { spawn } from "node:child_process";
import { receiveArchive } from "../images/transfers.ts";
import { usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";

/** Opens an address with the program of the system for it, and does not wait for that. */
function open(address: string): void {
  const program = process.platform === "darwin" ? "open" : "xdg-open";
  const child = spawn(program, [address], { stdio: "ignore", detached: true });
  // Without such a program the address was printed all the same.
  child.on("error", () => {});
  child.unref();
}

export async function gui(session: Session, [container_id = ""]: Words, flags: Flags): Promise<void> {
  const client = session.client();
  const answer = await client.request("GET /api/containers/:container_id/gui-url", { params: { container_id } });
  const { href } = new URL(answer.gui_url, client.url);
  session.show({ ...answer, url: href }, () => `${href}\n`);
  if (flags.open === true) open(href);
}

export async function screenshot(session: Session, [container_id = ""]: Words, flags: Flags): Promise<void> {
  const file = flags.output as string | undefined;
  if (file === undefined && process.stdout.isTTY) {
    throw usage("a picture is not written to a terminal", "give --output <file>, or redirect standard output");
  }
  const { pieces } = await session
    .client()
    .open("POST /api/containers/:container_id/gui/screenshot", { params: { container_id } });
  await receiveArchive(session, pieces, file);
}
