/**
 * Six projects: `unit` (no containers), `api` (real containers through the real API), `clients` (the same, beside it),
 * `heavy` (minutes), `beside` (the same, beside it), `sanitized` (files of `api` and `heavy` once more, on a
 * helper with ASan and UBSan).
 */
import { defineConfig } from "vitest/config";
import { EitherEnd } from "./support/either-end.ts";

const UNIT = ["test/*.test.ts", "test/**/*.unit.test.ts", "runtimes/*/*.unit.test.ts"];

/**
 * Tests on daemons or processes of their own that look at nothing of the machine, and so run in the thread of the unit
 * tests, beside the other tests on containers.
 */
const CLIENTS = [
  "test/api/{cli,cli-build,cli-containers,cli-dev,cli-icc,cli-keys,cli-project,cli-snapshots,cli-streams,cli-users,clients,docs-page,events,guides,lists,openapi,operations}.test.ts",
  "test/api/{audit,container-answers,container-key-messages,container-keys,idempotency,jetstream,rotation,runtimes,secrets,telemetry,tenancy,tenants,users}.test.ts",
  "test/api/{chains,documents,functions,refusals,tenant-limits,versions}.test.ts",
  "test/api/{terminal,terminal-command,terminal-ends}.test.ts",
  "test/api/{icc-actions,icc-actions-inside,icc-bindings,icc-observability,icc-state,icc-topics,icc-traces}.test.ts",
  "runtimes/nodejs/{attacks,code-cache,lambda,loading,nodejs-process}.test.ts",
  "runtimes/python3/{lambda,python3-calls,python3-process,strays,variables}.test.ts",
  "runtimes/custom/{http,lambda}.test.ts",
];

/** Heavy tests in a browser, and of crashes of a daemon of their own, which mostly wait for its next start. */
const BESIDE = [
  "test/api/{page,areas-page,cards-page,code-page,containers-page,files-page,messages-page,sign-in-page,snapshots-page,terminal-page}.heavy.test.ts",
  "test/recovery/{code,containers,failpoints,kills,rounds,snapshots}.heavy.test.ts",
];

/** They cover every file of the helper. */
const SANITIZED = [
  "test/engine/{minit,minit-launcher,resident,container-minit,container-identity,container-attach,container-log,contracts}.test.ts",
  "test/engine/{contracts,files,storage-pool,sanitizer}.heavy.test.ts",
  "runtimes/custom/{http,lambda}.test.ts",
];

/** What a test waits for (`expect.poll`) comes late on a machine whose cores others take: a second is no deadline. */
const WAITING = { poll: { timeout: 20_000 } };
const RUNNER = new URL("support/deadline-runner.ts", import.meta.url).pathname;
const EXEC = ["--import", new URL("support/slow-answers.ts", import.meta.url).pathname];

// biome-ignore lint/style/noDefaultExport: vitest reads the default export of its configuration.
export default defineConfig({
  test: {
    root: new URL("..", import.meta.url).pathname,
    reporters: ["default"],
    sequence: { sequencer: EitherEnd },
    // Vitest takes one fewer than there are cores. Each pool runs one file at a time all the same.
    minWorkers: 1,
    maxWorkers: 2,
    // The thread runs beside the process of the tests on containers, which mostly wait.
    poolOptions: { threads: { minThreads: 1, maxThreads: 1, execArgv: EXEC }, forks: { execArgv: EXEC } },
    projects: [
      {
        test: {
          name: "unit",
          include: UNIT,
          pool: "threads",
          testTimeout: 60_000,
          expect: WAITING,
        },
      },
      {
        test: {
          name: "api",
          include: ["test/{engine,code,api,security,recovery}/**/*.test.ts", "runtimes/*/*.test.ts"],
          exclude: [...CLIENTS, "**/*.heavy.test.ts", "**/*.unit.test.ts"],
          pool: "forks",
          poolOptions: { forks: { singleFork: true } },
          testTimeout: 120_000,
          hookTimeout: 300_000,
          expect: WAITING,
        },
      },
      {
        test: {
          name: "clients",
          include: CLIENTS,
          pool: "threads",
          testTimeout: 120_000,
          hookTimeout: 300_000,
          expect: WAITING,
        },
      },
      {
        test: {
          name: "heavy",
          include: ["test/**/*.heavy.test.ts"],
          exclude: BESIDE,
          runner: RUNNER,
          pool: "forks",
          poolOptions: { forks: { singleFork: true } },
          testTimeout: 300_000,
          hookTimeout: 300_000,
          expect: WAITING,
        },
      },
      {
        test: {
          name: "beside",
          include: BESIDE,
          runner: RUNNER,
          pool: "threads",
          testTimeout: 300_000,
          hookTimeout: 300_000,
          expect: WAITING,
        },
      },
      {
        test: {
          name: "sanitized",
          include: SANITIZED,
          runner: RUNNER,
          env: { HEARTH_TEST_SANITIZED: "1" },
          setupFiles: ["test/support/sanitized.ts"],
          pool: "forks",
          poolOptions: { forks: { singleFork: true } },
          testTimeout: 300_000,
          hookTimeout: 300_000,
          expect: WAITING,
        },
      },
    ],
  },
});
