/**
 * The `hearth` command: a client of the HTTP API and nothing more. On the daemon's machine it needs no flag: the key
 * is read from the data directory.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

const USAGE = `hearth functions <verb>

  create <name> --handler <line> [--runtime shell] [--memory-limit-mb N] [--cpu-limit-percent N]
         [--timeout-seconds N] [--env NAME=VALUE]... [--min-instances N] [--max-instances N]
         [--working-directory PATH] [--description TEXT] [--concurrency-limit N] [--api-access]
         [--no-cleanup] [--deploy]
  update <name or id>               the flags of create: what is given makes the next version
  versions <name or id>
  rollback <name or id> <version>
  deploy <name or id>
  invoke <name or id> [payload]     a payload of '-' is read from standard input
         [--env NAME=VALUE]... [--timeout-seconds N]
  list
  get    <name or id>
  pause  <name or id>
  resume <name or id>
  delete <name or id>
  invocations <name or id> [--limit N]

Everywhere: --json prints the API's answer; --url (HEARTH_URL, http://127.0.0.1:8700), --key (HEARTH_KEY, or the
key file in HEARTH_DATA_DIR). invoke prints the handler's output and exits with 0 when it succeeded, else with 1.
`;

const OPTIONS = {
  json: { type: "boolean" },
  help: { type: "boolean", short: "h" },
  url: { type: "string" },
  key: { type: "string" },
  handler: { type: "string" },
  runtime: { type: "string" },
  description: { type: "string" },
  "memory-limit-mb": { type: "string" },
  "cpu-limit-percent": { type: "string" },
  "timeout-seconds": { type: "string" },
  "min-instances": { type: "string" },
  "max-instances": { type: "string" },
  "working-directory": { type: "string" },
  "concurrency-limit": { type: "string" },
  "api-access": { type: "boolean" },
  "no-cleanup": { type: "boolean" },
  deploy: { type: "boolean" },
  env: { type: "string", multiple: true },
  limit: { type: "string" },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof OPTIONS; allowPositionals: true }>>["values"];
type Answer = Record<string, unknown>;

const EXIT_USAGE = 2;
const EXIT_REFUSED = 1;

/** Ends the command with a message on standard error. */
function fail(message: string, exit_code: number): never {
  process.stderr.write(`hearth: ${message}\n`);
  process.exit(exit_code);
}

function key(values: Values): string {
  const given = values.key ?? process.env.HEARTH_KEY ?? process.env.HEARTH_BOOTSTRAP_KEY;
  if (given !== undefined) return given;
  const file = `${process.env.HEARTH_DATA_DIR ?? "/var/lib/hearth"}/key`;
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    return fail(`no key: set HEARTH_KEY, or start the daemon once (its key is kept in ${file})`, EXIT_USAGE);
  }
}

class Client {
  readonly #url: string;
  readonly #key: string;

  constructor(url: string, key: string) {
    this.#url = url.replace(/\/$/, "");
    this.#key = key;
  }

  async call(method: string, path: string, body?: object): Promise<Answer> {
    const headers: Record<string, string> = { "x-api-key": this.#key };
    if (body !== undefined) headers["content-type"] = "application/json";
    let response: Response;
    try {
      response = await fetch(this.#url + path, {
        method,
        headers,
        body: body === undefined ? null : JSON.stringify(body),
      });
    } catch {
      return fail(`nothing answers at ${this.#url}: start the daemon with 'npm start'`, EXIT_REFUSED);
    }
    const answer = (await response.json()) as Answer;
    if (response.ok) return answer;
    const hint = typeof answer.hint === "string" ? ` (${answer.hint})` : "";
    return fail(`${answer.error} [${answer.error_code}]${hint}`, EXIT_REFUSED);
  }

  /** The id behind an id or a name. */
  async functionId(nameOrId: string): Promise<string> {
    if (/^fn_[0-9a-z]{16}$/.test(nameOrId)) return nameOrId;
    return String((await this.call("GET", `/api/functions/by-name/${encodeURIComponent(nameOrId)}`)).id);
  }
}

function environment(pairs: readonly string[] | undefined): Record<string, string> | undefined {
  if (pairs === undefined) return undefined;
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf("=");
      if (at < 1) fail(`--env expects NAME=VALUE, got '${pair}'`, EXIT_USAGE);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

function number(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const parsed = Number(value);
  return Number.isNaN(parsed) ? fail(`expected a number, got '${value}'`, EXIT_USAGE) : parsed;
}

/** What the flags say of a function; what they do not say is left out of the request. */
function fields(values: Values): object {
  return {
    handler: values.handler,
    runtime: values.runtime,
    description: values.description,
    memory_limit_mb: number(values["memory-limit-mb"]),
    cpu_limit_percent: number(values["cpu-limit-percent"]),
    timeout_seconds: number(values["timeout-seconds"]),
    min_instances: number(values["min-instances"]),
    max_instances: number(values["max-instances"]),
    working_directory: values["working-directory"],
    concurrency_limit: number(values["concurrency-limit"]),
    api_access: values["api-access"],
    cleanup_on_exit: values["no-cleanup"] === true ? false : undefined,
    environment: environment(values.env),
  };
}

/** Rows as aligned columns, header first. */
function table(rows: readonly (readonly unknown[])[]): string {
  const cells = rows.map((row) => row.map((cell) => String(cell ?? "-")));
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => (row[column] ?? "").length)));
  return cells
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}

function showFunction(record: Answer): string {
  return `${record.name} (${record.id}) is ${record.state}, version ${record.current_version}\n`;
}

async function invoke(client: Client, name: string, payload: string, values: Values): Promise<void> {
  const path = /^fn_[0-9a-z]{16}$/.test(name) ? `${name}/invoke` : `invoke/${encodeURIComponent(name)}`;
  const record = await client.call("POST", `/api/functions/${path}`, {
    payload: payload === "-" ? readFileSync(0, "utf8") : payload,
    environment: environment(values.env),
    timeout_seconds: number(values["timeout-seconds"]),
  });
  if (values.json === true) process.stdout.write(`${JSON.stringify(record, null, 2)}\n`);
  else {
    process.stdout.write(String(record.stdout));
    process.stderr.write(String(record.stderr));
    if (record.error_message !== null) process.stderr.write(`hearth: ${record.status}: ${record.error_message}\n`);
  }
  process.exitCode = record.status === "success" ? 0 : EXIT_REFUSED;
}

async function run(verb: string, words: readonly string[], values: Values): Promise<void> {
  const client = new Client(values.url ?? process.env.HEARTH_URL ?? "http://127.0.0.1:8700", key(values));
  const show = (answer: Answer, text: string) =>
    process.stdout.write(values.json === true ? `${JSON.stringify(answer, null, 2)}\n` : text);
  if (verb === "list") {
    const answer = await client.call("GET", `/api/functions?limit=${values.limit ?? 1000}`);
    const columns = ["name", "id", "state", "current_version", "runtime", "invocation_count", "handler"];
    const rows = (answer.functions as Answer[]).map((record) => columns.map((column) => record[column]));
    show(answer, table([columns.map((column) => column.toUpperCase().replace("CURRENT_", "")), ...rows]));
    return;
  }
  const [name, payload = ""] = words;
  if (name === undefined) fail(`${verb} needs a function's name or id`, EXIT_USAGE);
  if (verb === "invoke") return invoke(client, name, payload, values);
  if (verb === "create") {
    if (values.handler === undefined) fail("create needs --handler", EXIT_USAGE);
    let record = await client.call("POST", "/api/functions", { name, ...fields(values) });
    if (values.deploy === true) record = await client.call("POST", `/api/functions/${record.id}/deploy`);
    show(record, showFunction(record));
    return;
  }
  const path = `/api/functions/${await client.functionId(name)}`;
  if (verb === "get") {
    const record = await client.call("GET", path);
    show(
      record,
      table(
        Object.entries(record).map(([field, value]) => [
          field,
          typeof value === "object" ? JSON.stringify(value) : value,
        ]),
      ),
    );
  } else if (verb === "deploy" || verb === "resume") {
    const record = await client.call("POST", `${path}/${verb}`);
    show(record, showFunction(record));
  } else if (verb === "update") {
    const record = await client.call("PUT", path, fields(values));
    show(record, showFunction(record));
  } else if (verb === "rollback") {
    const version = number(words[1]);
    if (version === undefined) fail("rollback needs a version", EXIT_USAGE);
    const record = await client.call("POST", `${path}/rollback`, { version });
    show(record, showFunction(record));
  } else if (verb === "versions") {
    const answer = await client.call("GET", `${path}/versions?limit=${values.limit ?? 100}`);
    const columns = ["version", "is_active", "runtime", "memory_limit_mb", "timeout_seconds", "handler"];
    const rows = (answer.versions as Answer[]).map((record) => columns.map((column) => record[column]));
    show(answer, table([columns.map((column) => column.toUpperCase()), ...rows]));
  } else if (verb === "pause") {
    show(await client.call("POST", `${path}/pause`), `${name} is paused\n`);
  } else if (verb === "delete") {
    show(await client.call("DELETE", path), `${name} is deleted\n`);
  } else if (verb === "invocations") {
    const answer = await client.call("GET", `${path}/invocations?limit=${values.limit ?? 20}`);
    const columns = ["invocation_id", "version", "status", "cold_start", "duration_ms", "exit_code"];
    const rows = (answer.invocations as Answer[]).map((record) => columns.map((column) => record[column]));
    show(answer, table([columns.map((column) => column.toUpperCase()), ...rows]));
  } else fail(`unknown verb '${verb}'\n\n${USAGE}`, EXIT_USAGE);
}

function main(): Promise<void> {
  let parsed: { values: Values; positionals: string[] };
  try {
    parsed = parseArgs({ options: OPTIONS, allowPositionals: true });
  } catch (error) {
    return fail(`${error instanceof Error ? error.message : error}\n\n${USAGE}`, EXIT_USAGE);
  }
  const [concern, verb, ...words] = parsed.positionals;
  if (parsed.values.help === true || concern === undefined) {
    process.stdout.write(USAGE);
    return Promise.resolve();
  }
  if (concern !== "functions" || verb === undefined)
    return fail(`unknown command '${concern}'\n\n${USAGE}`, EXIT_USAGE);
  return run(verb, words, parsed.values);
}

await main();
