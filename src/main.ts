/** The daemon's process entry: nothing is loaded before what is compiled of it is looked up. */
import { keepCompiled } from "./installation/compile-cache.js";

keepCompiled();
await import("./daemon.ts");
