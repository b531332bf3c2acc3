/** The daemon as a process: settings, start, what a person needs to know, and the end on SIGTERM or SIGINT. */
import { startHearth } from "./app.ts";
import { systemClock } from "./base/clock.ts";
import { type Config, readConfig } from "./base/config.ts";
import { AppError } from "./base/errors.ts";
import { armFailpoint } from "./base/failpoints.ts";
import { LIMITS } from "./base/limits.ts";
import { SETTINGS, settingsText } from "./base/settings.ts";
import { flushCompiled } from "./installation/compile-cache.js";
import { InstallationError } from "./installation/installation-error.js";

/** Exit codes: those of sysexits.h for a wrong setting and for an end that was not whole, 1 for anything else. */
const EXIT_USAGE = 64;
const EXIT_FORCED = 70;
/** That of most logins. Under a narrower one, as hardened machines have it, users of containers could not read their files. */
const FILES_UMASK = 0o022;
/** Ctrl-C under `npm start` comes twice, from the terminal and from npm: so close together it counts once. */
const SIGNAL_REPEAT_MS = 1_000;
/** The drain, and as long again to take everything down. */
const STOP_WAIT_MS = LIMITS.drain_ms * 2;

/** What a person needs to go on: where, with which key, and a first call to paste. */
function greeting(config: Config, url: string, key: string | null): string {
  const isGiven = config.bootstrap_key !== null && config.bootstrap_key_file === null;
  const file = config.bootstrap_key_file ?? `${config.data_dir}/key`;
  const shown = key ?? (isGiven ? "$HEARTH_BOOTSTRAP_KEY" : `$(cat ${file})`);
  const header = `-H "X-Api-Key: ${shown}"`;
  // What the command line would look for elsewhere.
  const elsewhere = [
    isGiven ? "HEARTH_KEY=$HEARTH_BOOTSTRAP_KEY " : "",
    config.bootstrap_key_file === null ? "" : `HEARTH_BOOTSTRAP_KEY_FILE=${file} `,
    url === `http://${SETTINGS.listen.fallback}` ? "" : `HEARTH_URL=${url} `,
    config.data_dir === SETTINGS.data_dir.fallback ? "" : `HEARTH_DATA_DIR=${config.data_dir} `,
  ].join("");
  return `
hearth serves on ${url}
${key === null ? "" : `\nAPI key (shown once, kept in ${file}): ${key}\n`}
A first function:

  ${elsewhere}npx hearth create hello --handler 'echo hello, $(cat)' --deploy
  ${elsewhere}npx hearth invoke hello world

The same call with curl:

  curl -s ${header} ${url}/api/functions/invoke/hello -d '{"payload":"world"}'

Web page: ${url}/ (sign in with the key)
Documentation: ${url}/api/docs

`;
}

async function main(): Promise<void> {
  if (process.argv.includes("--help")) {
    process.stdout.write(`npm start -- [flags]\n\n${settingsText()}`);
    return;
  }
  // What users of containers read, as /etc/hosts and programs of runtimes, has modes of its own, and what they must not see too.
  process.umask(FILES_UMASK);
  // A reader of our output that goes away (`| head`) must not take the daemon along, least of all while it cleans up.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  const config = readConfig(process.env, process.argv.slice(2));
  armFailpoint(process.env.HEARTH_FAILPOINT ?? "");
  const asked = Promise.withResolvers<NodeJS.Signals>();
  const state = { asked_ms: Number.POSITIVE_INFINITY };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => {
      const now_ms = systemClock.monotonicMs();
      // Asked again: not waited for any more. What that leaves, the next start removes.
      if (now_ms - state.asked_ms > SIGNAL_REPEAT_MS) process.exit(EXIT_FORCED);
      state.asked_ms = Math.min(state.asked_ms, now_ms);
      asked.resolve(signal);
    });
  }
  // A signal during the start is obeyed as soon as there is something whole to take down.
  const hearth = await startHearth(config);
  process.stdout.write(greeting(config, hearth.url, hearth.new_key));
  flushCompiled();
  const signal = await asked.promise;
  process.stdout.write(`${signal}: finishing running requests, then shutting down\n`);
  systemClock.after(STOP_WAIT_MS, () => {
    process.stderr.write(
      `hearth: shutdown incomplete after ${STOP_WAIT_MS / 1000} s; the next start removes what is left\n`,
    );
    process.exit(EXIT_FORCED);
  });
  await hearth.stop();
  process.exit(0);
}

main().catch((error) => {
  const text =
    error instanceof AppError
      ? `${error.message}${error.hint === null ? "" : ` (${error.hint})`}`
      : error instanceof InstallationError || typeof error?.syscall === "string"
        ? error.message
        : String(error?.stack ?? error);
  process.stderr.write(`hearth: ${text}\n`);
  process.exit(error instanceof AppError && error.code === "INVALID_ARGUMENT" ? EXIT_USAGE : 1);
});
