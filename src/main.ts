/** Process entry: settings, start, what a person needs to know, and the end on SIGTERM or SIGINT. */
import { startHearth } from "./app.ts";
import { type Config, readConfig, SETTINGS } from "./base/config.ts";
import { AppError, errorText } from "./base/errors.ts";

/** Exit codes: sysexits.h for a wrong setting, 1 for anything else. */
const EXIT_USAGE = 64;

/** What a person needs to go on: where, with which key, and a first call to paste. */
function greeting(config: Config, url: string, key: string | null): string {
  const file = `${config.data_dir}/key`;
  const shown = key ?? (config.bootstrap_key === null ? `$(cat ${file})` : "$HEARTH_BOOTSTRAP_KEY");
  const header = `-H "X-Api-Key: ${shown}"`;
  // What the command line would look for elsewhere.
  const elsewhere = [
    url === `http://${SETTINGS.listen.fallback}` ? "" : `HEARTH_URL=${url} `,
    config.data_dir === SETTINGS.data_dir.fallback ? "" : `HEARTH_DATA_DIR=${config.data_dir} `,
  ].join("");
  return `
hearth serves on ${url}
${key === null ? "" : `\nAPI key (shown once, kept in ${file}): ${key}\n`}
A first function:

  curl -s ${header} ${url}/api/functions -d '{"name":"hello","handler":"echo hello, $(cat)"}'
  ${elsewhere}npx hearth functions deploy hello
  curl -s ${header} ${url}/api/functions/invoke/hello -d '{"payload":"world"}'

`;
}

async function main(): Promise<void> {
  const config = readConfig(process.env, process.argv.slice(2));
  const hearth = await startHearth(config);
  process.stdout.write(greeting(config, hearth.url, hearth.new_key));
  const state = { isStopping: false };
  const stop = (signal: NodeJS.Signals): void => {
    if (state.isStopping) return;
    state.isStopping = true;
    process.stdout.write(`${signal}: answering what runs, then ending\n`);
    hearth.stop().then(
      () => process.exit(0),
      (error) => {
        process.stderr.write(`hearth: not stopped cleanly: ${errorText(error)}\n`);
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
}

main().catch((error) => {
  const text =
    error instanceof AppError
      ? `${error.message}${error.hint === null ? "" : ` (${error.hint})`}`
      : String(error?.stack ?? error);
  process.stderr.write(`hearth: ${text}\n`);
  process.exit(error instanceof AppError && error.code === "INVALID_ARGUMENT" ? EXIT_USAGE : 1);
});
