/**
 * The shape of the source, held by a test: who may import whom, what is named how, which calls have one home. Limits
 * here are never loosened; an exception is an entry with its reason.
 */
import { basename, dirname, join, normalize } from "node:path";
import { describe, expect, it } from "vitest";
import { SOURCES as code, PROJECT_FILES as files, GENERATED, readText as read } from "./support/project-files.ts";

/** What stands at the top level, beside dotfiles. */
const TOP = new Set("package.json package-lock.json tsconfig.json src pool runtimes test bench README.md".split(" "));

/** Ports: the one file of a folder that concerns import. */
const PORTS: Readonly<Record<string, string>> = {
  engine: "src/engine/ports.ts",
  pool: "pool/index.ts",
  runtimes: "runtimes/index.ts",
  store: "src/store/store.ts",
};

/** Concern → ports, packages, and concerns whose `service` and `schema` it imports, beside src/base and zod. */
const CONCERNS: Readonly<Record<string, readonly string[]>> = {
  system: ["engine"],
  audit: ["store", "lru-cache"],
  events: ["store"],
  operations: ["store", "events"],
  terminal: ["engine", "events", "containers", "lru-cache"],
  gui: ["engine", "containers", "lru-cache"],
  files: ["engine", "operations"],
  containers: ["engine", "store", "events", "operations", "volumes", "files", "lru-cache"],
  networks: ["engine", "store", "containers", "src/containers/network/membership.ts"],
  volumes: ["engine", "store", "events", "operations", "files"],
  code: ["engine", "store", "yauzl"],
  functions: ["engine", "pool", "runtimes", "store", "events", "operations", "code", "lru-cache"],
  snapshots: ["engine", "store", "events", "operations", "containers", "volumes", "files", "lru-cache"],
  secrets: ["store", "events"],
  icc: [
    "engine",
    "store",
    "events",
    "containers",
    "protobufjs/minimal.js",
    "lru-cache",
    "@nats-io/jetstream",
    "@nats-io/transport-node",
  ],
  services: ["engine", "store", "events", "containers", "secrets", "lru-cache"],
  nightly: ["engine", "operations", "lru-cache"],
  oci: ["engine", "store", "events", "operations", "secrets", "piscina"],
  users: ["store", "lru-cache"],
  tenants: [
    "store",
    "events",
    "operations",
    "functions",
    "code",
    "containers",
    "volumes",
    "snapshots",
    "oci",
    "secrets",
    "jose",
    "lru-cache",
  ],
};

/** Other folder → paths, packages, and with a slash at the end all below. A file may import all of its own folder. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  "src/base": ["pino", "zod"],
  "src/store": ["src/base/", "libsql", "@libsql/client/web", "piscina"],
  "src/engine": ["src/base/", "piscina", "lru-cache", "dns-packet", "yaml", "zod"],
  pool: ["src/base/"],
  runtimes: [],
  "src/http": ["src/base/", "src/store/store.ts", "hono", "@hono/", "zod", "ws"],
  "src/docs": ["src/base/", "src/http/", "zod"],
  "src/telemetry": [
    "src/base/",
    "src/http/route.ts",
    "src/functions/observer.ts",
    "src/functions/schema.ts",
    "src/icc/observer.ts",
    "src/store/store.ts",
    "pool/index.ts",
    "lru-cache",
    "prom-client",
    "@opentelemetry/",
  ],
  "src/installation": [],
  "src/setup": ["src/installation/"],
  // Types alone: see the test below.
  "src/client": ["src/api.ts", "src/base/errors.ts"],
  // The page has the shapes of the API from where they are made (wire.ts, types only), and no code of it.
  "src/page": [
    "src/base/",
    "src/http/route.ts",
    "src/functions/schema.ts",
    "src/functions/versions/schema.ts",
    "src/functions/pool-schema.ts",
    "src/functions/groups.ts",
    "src/containers/schema.ts",
    "src/containers/exec/schema.ts",
    "src/containers/network/schema.ts",
    "src/files/schema.ts",
    "src/icc/schema.ts",
    "src/networks/schema.ts",
    "src/nightly/schema.ts",
    "src/oci/schema.ts",
    "src/secrets/schema.ts",
    "src/volumes/schema.ts",
    "src/operations/schema.ts",
    "src/snapshots/schema.ts",
    "src/system/schema.ts",
    "src/terminal/schema.ts",
    "src/services/schema.ts",
    "pool/index.ts",
    "zod",
  ],
  "src/cli": [
    "src/client/",
    "src/base/certificate-failures.ts",
    "src/base/clock.ts",
    "src/base/concurrency.ts",
    "src/base/limit-texts.ts",
    "src/base/limits.ts",
    "src/base/settings.ts",
    "src/base/plurals.ts",
    "src/base/suggest.ts",
    "src/base/tenant-limits.ts",
    "src/base/tree-digest.ts",
    "@balena/dockerignore",
    "commander",
    "smol-toml",
    "ws",
    "yocto-spinner",
  ],
};

/** The files that a call crosses, in the order in which it does: README has the one list. */
const HOT_PATH = [...read("README.md").matchAll(/^\| (\d+) \| \[([^\]]+)\]\(\2\) \|/gm)].map((row) => row[2] ?? "");

function folderOf(file: string): string {
  return file.startsWith("src/") ? file.split("/").slice(0, 2).join("/") : (file.split("/")[0] ?? "");
}

/** Returns the folder inside the engine or the command line, or the file directly in it; for other files the folder. */
function innerPartOf(file: string): string {
  return /^src\/(engine|cli)\//.test(file) ? file.split("/").slice(0, 3).join("/") : folderOf(file);
}

function imports(file: string): string[] {
  const found = [...read(file).matchAll(/(?:^|\n)\s*(?:import|export)\s[^;]*?from\s+"([^"]+)"|import\("([^"]+)"\)/g)];
  return found
    .map((match) => match[1] ?? match[2] ?? "")
    .map((name) => (name.startsWith(".") ? normalize(join(dirname(file), name)) : name));
}

/** Files that may import src/http: routes, the description of all routes, and the composition of the daemon. */
const HTTP_USERS =
  /[/-]routes\.ts$|^src\/(http|docs)\/|^src\/(app|access|state|api|periodic|publishing|inside|messaging|reached)\.ts$/;

/** Files of a concern that describe it. */
const DESCRIPTIONS = /\/(routes|guide|examples)\.ts$/;

/** The roots, which compose the daemon of everything. */
const ROOTS = [
  "src/app.ts",
  "src/access.ts",
  "src/container-parts.ts",
  "src/copies.ts",
  "src/reached.ts",
  "src/images.ts",
  "src/inside.ts",
  "src/profiles.ts",
  "src/instances.ts",
  "src/publishing.ts",
  "src/messaging.ts",
  "src/bound-functions.ts",
  "src/state.ts",
  "src/periodic.ts",
  "src/api.ts",
  "src/daemon.ts",
  "src/main.js",
];

/** Returns the entry of the table that permits an import, or null. */
function permission(file: string, name: string): string | null {
  const folder = folderOf(file);
  const allowed = ALLOWED[folder];
  if (allowed !== undefined) {
    return allowed.find((entry) => (entry.endsWith("/") ? name.startsWith(entry) : name === entry)) ?? null;
  }
  const found = CONCERNS[folder.slice("src/".length)]?.find((entry) => {
    if (PORTS[entry] !== undefined) return name === PORTS[entry];
    // A concern with files builds its routes with the builder of src/files.
    const files = entry === "files" ? "service|schema|routes" : "service|schema";
    return name === entry || new RegExp(`^src/${entry}/(${files})\\.ts$`).test(name);
  });
  return found ?? null;
}

function mayImport(file: string, name: string): boolean {
  const folder = folderOf(file);
  if (name.startsWith("node:") || name.startsWith(`${folder}/`) || ROOTS.includes(file)) return true;
  if (file === "src/cli.ts") return name === "src/cli/main.ts";
  if (CONCERNS[folder.slice("src/".length)] !== undefined) {
    if (name.startsWith("src/base/") || name === "zod") return true;
    if (name.startsWith("src/http/")) return HTTP_USERS.test(file);
    if (name.startsWith("src/docs/")) return DESCRIPTIONS.test(file);
  }
  return permission(file, name) !== null;
}

/** Returns the nodes of a graph that lie in a cycle, or on a path between two. */
function inCycles(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const left = new Map(graph);
  for (let count = -1; count !== left.size; ) {
    count = left.size;
    const targets = new Set([...left.values()].flat());
    for (const [node, next] of left) {
      if (!targets.has(node) || !next.some((other) => left.has(other))) left.delete(node);
    }
  }
  return [...left.keys()];
}

/** A call that has one home: pattern, where it may stand, what to use instead. */
const BANS: readonly [RegExp, RegExp, string][] = [
  [
    /\bDate\.now\(|new Date\(\)/,
    /^src\/base\/clock\.ts$|^src\/setup\/|^src\/page\/assets\/clock\.js$/,
    "clock.epochMs()",
  ],
  [
    /\bperformance\.now\(/,
    // Programs of an image run alone.
    /^src\/base\/clock\.ts$|^src\/setup\/|^src\/page\/assets\/clock\.js$|^runtimes\/profiles\/[^/]+\/files\//,
    "clock.monotonicMs()",
  ],
  // A socket's own is none of the clock's: it knows of bytes on their way.
  [
    /(?<!\bsocket\.)\bset(Timeout|Interval)\(/,
    /^src\/base\/clock\.ts$|^src\/setup\/|^src\/page\/assets\/clock\.js$/,
    "clock.after()",
  ],
  [/\bPRAGMA\b|\bsqlite_[a-z]+\b|\bSAVEPOINT\b|\bBEGIN IMMEDIATE\b/, /^src\/store\//, "the store's port"],
  [
    /\bjson_\w+\(|->>|\browid\b|\bOR (IGNORE|REPLACE)\b|\bWITHOUT ROWID\b|\bAUTOINCREMENT\b/,
    /^src\/store\/|^src\/base\/sql-dialect\.ts$/,
    "src/base/sql-dialect.ts",
  ],
  [/\bMath\.random\(/, /^$/, "ids.random()"],
  [
    /\bprocess\.env\b/,
    /^src\/daemon\.ts$|^src\/cli\/session\/target\.ts$|^src\/setup\/|^src\/installation\/compile-cache\.js$/,
    "the configuration",
  ],
  [/\bconsole\./, /^$/, "the log"],
  [/\bthrow new Error\(/, /^src\/setup\//, "an AppError of the table, or invariant()"],
  [/(:|<|as) any\b/, /^$/, "a type"],
  [/^let |^export let /m, /^$/, "an object given through a constructor"],
  [/^export default/m, /^$/, "a named export"],
  [/\b(TODO|FIXME|XXX)\b/, /^$/, "an issue"],
];

describe("the source", () => {
  it("has nothing at the top level beside the agreed entries and dotfiles", () => {
    const top = new Set(files.map((file) => file.split("/")[0] ?? ""));
    expect([...top].filter((entry) => !entry.startsWith(".") && !TOP.has(entry))).toEqual([]);
  });

  it("imports only along the table", () => {
    const wrong = code.flatMap((file) =>
      imports(file)
        .filter((name) => !mayImport(file, name))
        .map((name) => `${file} → ${name}`),
    );
    expect(wrong).toEqual([]);
  });

  it("permits no import that no file makes", () => {
    const used = new Set(
      code.flatMap((file) => imports(file).map((name) => `${folderOf(file)}: ${permission(file, name)}`)),
    );
    const concerns = Object.entries(CONCERNS).map(([concern, entries]) => [`src/${concern}`, entries] as const);
    const entries = [...Object.entries(ALLOWED), ...concerns].flatMap(([folder, names]) =>
      names.map((name) => `${folder}: ${name}`),
    );
    expect(entries.filter((entry) => !used.has(entry))).toEqual([]);
  });

  it("imports src/http only into routes, their description and the composition of the daemon", () => {
    const wrong = code
      .filter((file) => !HTTP_USERS.test(file))
      .flatMap((file) =>
        imports(file)
          .filter((name) => name.startsWith("src/http/"))
          .map((name) => `${file} → ${name}`),
      );
    expect(wrong).toEqual([]);
  });

  it("has no import cycle between files, type imports included", () => {
    const modules = files.filter((file) => /\.(ts|js)$/.test(file));
    const graph = new Map(modules.map((file) => [file, imports(file)]));
    expect(inCycles(graph)).toEqual([]);
  });

  it("has no cycle of includes between the parts of the helper", () => {
    const parts = files.filter((file) => /^runtimes\/minit\/.*\.[ch]$/.test(file));
    const graph = new Map<string, string[]>();
    for (const file of parts) {
      const own = basename(file).slice(0, -2);
      const others = [...read(file).matchAll(/^#include "([^"]+)\.h"/gm)].map((match) => match[1] ?? "");
      graph.set(own, [...(graph.get(own) ?? []), ...others.filter((other) => other !== own)]);
    }
    expect(inCycles(graph)).toEqual([]);
  });

  it("has no import cycle between folders, nor between the folders inside the engine and the command line", () => {
    for (const partOf of [folderOf, innerPartOf]) {
      const graph = new Map<string, string[]>();
      for (const file of code) {
        const own = partOf(file);
        const others = imports(file).map(partOf);
        graph.set(own, [...(graph.get(own) ?? []), ...others.filter((other) => other !== own)]);
      }
      expect(inCycles(graph)).toEqual([]);
    }
  });

  it("loads nothing of the daemon into a client", () => {
    const loaded = code
      .filter((file) => /^src\/client\//.test(file))
      .flatMap((file) =>
        [...read(file).matchAll(/^import (?!type )[^;]*from "(\.\.\/[^"]+)"/gm)].map((match) => `${file}: ${match[1]}`),
      );
    expect(loaded).toEqual([]);
  });

  it("keeps time, randomness, environment and errors in their homes", () => {
    const wrong = code.flatMap((file) => {
      const text = read(file).replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, "");
      return BANS.filter(([pattern, home]) => pattern.test(text) && !home.test(file)).map(
        ([pattern, , instead]) => `${file}: ${pattern} — use ${instead}`,
      );
    });
    expect(wrong).toEqual([]);
  });

  it("has kebab-case file names without the empty words", () => {
    const named = files
      .filter((file) => /^(src|pool|runtimes|bench)\//.test(file))
      .map((file) => file.split("/").at(-1) ?? "")
      .filter((name) => name !== "README.md")
      // Names of Python modules have no hyphen.
      .map((name) => (name.endsWith(".py") ? name.replaceAll("_", "-") : name));
    const wrong = named.filter(
      (name) => !/^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z]+)*$/.test(name) || /^(utils?|helpers|manager|common)\./.test(name),
    );
    expect(wrong).toEqual([]);
  });

  it("has no file above 500 lines", () => {
    const sources = files.filter((file) => /\.(ts|js|c|h)$/.test(file) && !GENERATED.test(file));
    const long = sources
      .map((file) => [file, read(file).split("\n").length] as const)
      .filter(([, lines]) => lines > 500);
    expect(long).toEqual([]);
  });

  it("names each port of a single writer in the table of them, and no other", () => {
    const named = code.filter((file) => /\bSingle writer: /.test(read(file)));
    const section = read("src/README.md").split("## Single writer")[1]?.split("\n## ")[0] ?? "";
    const table = [...section.matchAll(/^\| `\w+` in \[([^\]]+)\]/gm)].map(([, file]) => `src/${file}`);
    expect(table.toSorted()).toEqual(named.toSorted());
  });

  it("names what each daemon keeps for itself, so that two on one store differ", () => {
    const secrets = [...read("src/tenants/daemon-secrets.ts").matchAll(/`\$\{data_dir\}\/([\w-]+-secret)`/g)];
    const section = read("src/README.md").split("## Single writer")[1]?.split("\n## ")[0] ?? "";
    expect(secrets.length).toBeGreaterThan(0);
    expect(secrets.map(([, name]) => name).filter((name) => !section.includes(`\`${name}\``))).toEqual([]);
  });

  it("names the node in each statement that inserts what a node holds or ran", () => {
    const held = [
      ...read("src/store/migrations.ts").matchAll(
        /\.\.\.\[([^\]]*)\]\.map\(\s*\(table\) => `ALTER TABLE \$\{table\} ADD COLUMN node_seq/g,
      ),
    ]
      .flatMap(([, names = ""]) => [...names.matchAll(/"(\w+)"/g)])
      .map(([, table]) => table);
    expect(held).toEqual(["functions", "invocations", "containers", "volumes"]);
    const insertion = new RegExp(`\\bINTO (?:${held.join("|")})\\s*\\(([^)]*)\\)`, "g");
    const appended = new RegExp(`appender\\("(?:${held.join("|")})", (\\w+)\\)`, "g");
    const files = code.filter((file) => file !== "src/store/migrations.ts");
    const lists = files.flatMap((file) => {
      const text = read(file);
      const constants = [...text.matchAll(appended)].map(
        ([, name]) => new RegExp(`const ${name} = \\[([^\\]]*)\\]`).exec(text)?.[1] ?? "",
      );
      return [...[...text.matchAll(insertion)].map(([, columns = ""]) => columns), ...constants].map(
        (columns) => [file, columns] as const,
      );
    });
    expect(lists.length).toBeGreaterThanOrEqual(held.length);
    expect(lists.filter(([, columns]) => !/\bnode_seq\b/.test(columns)).map(([file]) => file)).toEqual([]);
  });

  it("says hot path in the head of the files that a call crosses, and nowhere else", () => {
    const sources = files.filter((file) => /^(src|pool|runtimes)\/.*\.(ts|js|c|h)$/.test(file));
    const mentions = sources.filter((file) => /\bhot path\b/i.test(read(file)));
    expect(HOT_PATH).toHaveLength(13);
    expect(mentions.toSorted()).toEqual(HOT_PATH.toSorted());
    expect(HOT_PATH.filter((file) => !/^\/\*\*?[\s*]*Hot path\. /.test(read(file)))).toEqual([]);
  });

  it("documents a method of the engine's ports at the port alone", () => {
    const ports = code.filter((file) => /^src\/engine\/ports(\.ts$|\/)/.test(file)).map(read);
    const bodies = ports.flatMap((text) => [...text.matchAll(/^export interface (\w+)[^{]*\{\n([\s\S]*?)^\}/gm)]);
    const members = new Map(
      bodies.map(([, name = "", body = ""]) => [
        name,
        [...body.matchAll(/^ {2}(?:readonly )?(\w+)/gm)].map((match) => match[1] ?? ""),
      ]),
    );
    const repeated = code
      .filter((file) => file.startsWith("src/engine/"))
      .flatMap((file) =>
        [...read(file).matchAll(/^(?:export )?class \w+ implements ([\w, ]+) \{\n([\s\S]*?)^\}/gm)].flatMap(
          ([, names = "", body = ""]) => {
            const documented = /\*\/\n {2}(?:(?:async|readonly|get) )*\*?(\w+)/g;
            const known = new Set(names.split(", ").flatMap((name) => members.get(name) ?? []));
            return [...body.matchAll(documented)]
              .map((match) => match[1] ?? "")
              .filter((name) => known.has(name))
              .map((name) => `${file}: ${name}`);
          },
        ),
      );
    expect(repeated).toEqual([]);
  });

  it("opens every file with what it owns", () => {
    const sources = code.filter((file) => !/^#!/.test(read(file)) || /\.ts$/.test(file));
    expect(sources.filter((file) => !/^\/\*\*/.test(read(file)))).toEqual([]);
  });
});
