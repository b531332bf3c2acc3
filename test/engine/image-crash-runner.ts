/** Pulls an image into the store at a directory, and is killed at the failpoint that its arguments name. */
import { armFailpoint } from "../../src/base/failpoints.ts";
import { ImageGround } from "./image-ground.ts";

const [root = "", name = "", host = "", reference = "", ...diff_ids] = process.argv.slice(2);
const held = new ImageGround(root);
await held.ground.start();
held.host = host;
armFailpoint(name);
await held.images.pull(held.of(reference, { diff_ids }));
process.stdout.write("pulled\n");
