/**
 * The daemon's process entry: nothing is loaded before what is compiled of it is looked up. JavaScript, since a first file of
 * TypeScript would load the compiler, a twentieth of a start.
 */
import { keepCompiled } from "./installation/compile-cache.js";

// Commands of the daemon have environments of their own.
keepCompiled(true);
await import("./daemon.ts");
