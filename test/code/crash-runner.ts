/** Uploads code, prints its digest, collects it, and is killed at the failpoint that its arguments name, or at the end. */
import { armFailpoint, failpoint } from "../../src/base/failpoints.ts";
import { archive, inPieces } from "../support/file-helper.ts";
import { Ground } from "../support/storage-ground.ts";
import { CodeGround } from "./code-ground.ts";

const [root = "", name = ""] = process.argv.slice(2);
const held = new CodeGround(new Ground("d", root));
await held.open();
await held.tenant("t");
armFailpoint(name);
const { digest } = await held.code.put("t", inPieces(archive({ name: "index.mjs", content: "export const a = 1;\n" })));
process.stdout.write(`${digest}\n`);
failpoint("app.stop.begun");
await held.prune();
