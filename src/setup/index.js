/**
 * Entry of set-up: `node src/setup/index.js start|test|heavy [flags]`. Checks that this Node can run the rest, in words
 * that an old one parses too, and hands over. Exit code 0: everything is in place; 1: it is not, and one message said
 * why; 129, 130, 143: interrupted.
 */
const major = Number(process.versions.node.split(".")[0]);
if (major < 20) {
  process.stderr.write(`hearth set-up: Node ${process.versions.node} is too old (at least Node 20)\n`);
  process.exit(1);
}
import("./setup.js").then((setup) => setup.main(process.argv[2], process.argv.slice(3)));
