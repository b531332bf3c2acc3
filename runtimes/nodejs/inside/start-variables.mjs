/**
 * Variables that a process reads when it starts. That of a cell has started before its function is known, so the runtime does here
 * what they ask for, starts the program anew in its place (restart.mjs), or refuses them: the version cannot be loaded then.
 */
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { RuntimeError } from "./errors.mjs";

/** Modules of Node that only versions with such variables load. */
const builtin = (name) => process.getBuiltinModule(name);

const isOn = (value) => value !== "" && value !== "0";

function refuse(name, why) {
  throw new RuntimeError("VariableNotSupported", `${name} ${why}`);
}

const REFUSED = [
  "NODE_DEBUG",
  "NODE_ICU_DATA",
  "NODE_PENDING_DEPRECATION",
  "NODE_REDIRECT_WARNINGS",
  "NODE_V8_COVERAGE",
];

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/gu;

/** Returns the certificates of a file in PEM. */
function certificatesOf(file) {
  let text = "";
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    refuse("NODE_EXTRA_CA_CERTS", `names a file that cannot be read: ${error.message}`);
  }
  const found = text.match(CERTIFICATE);
  return found ?? refuse("NODE_EXTRA_CA_CERTS", `names a file without certificates: ${file}`);
}

function addCertificates(kinds, own) {
  const { getCACertificates, setDefaultCACertificates } = builtin("node:tls");
  try {
    setDefaultCACertificates([...new Set([...kinds.flatMap((kind) => getCACertificates(kind)), ...own])]);
  } catch (error) {
    refuse("NODE_EXTRA_CA_CERTS", `names a file with a broken certificate: ${error.message}`);
  }
}

/** What a flag of NODE_OPTIONS does, with its value. Flags that name a module return a promise of it. */
const FLAGS = {
  "--require": (name) => void builtin("node:module").createRequire(here())(name),
  "--import": (name) => imported(name),
  "--enable-source-maps": () => process.setSourceMapsEnabled(true),
  "--no-warnings": () => void process.removeAllListeners("warning"),
  "--no-deprecation": () => void Object.assign(process, { noDeprecation: true }),
  "--throw-deprecation": () => void Object.assign(process, { throwDeprecation: true }),
  "--trace-deprecation": () => void Object.assign(process, { traceDeprecation: true }),
  "--stack-trace-limit": (count) => void Object.assign(Error, { stackTraceLimit: Number(count) }),
  "--unhandled-rejections": (mode) =>
    mode === "throw" || refuse("NODE_OPTIONS", "has --unhandled-rejections, which can only be throw"),
};
const SHORT = { "-r": "--require" };
const WITH_VALUE = new Set(["--require", "--import", "--stack-trace-limit", "--unhandled-rejections"]);

const here = () => `${process.cwd()}/`;

/** Imports a module as if a file in the working directory did. */
async function imported(name) {
  const parentURL = pathToFileURL(here()).href;
  const resolve = (specifier, context, next) =>
    next(specifier, context.parentURL === import.meta.url ? { ...context, parentURL } : context);
  const hooks = builtin("node:module").registerHooks({ resolve });
  try {
    await import(name);
  } finally {
    hooks.deregister();
  }
}

/** The words of NODE_OPTIONS: apart by spaces, which double quotes keep; a backslash in quotes keeps what follows it. */
export function wordsOf(options) {
  return [...options.matchAll(/(?:[^\s"]|"(?:[^"\\]|\\.)*")+/gu)].map(([word]) =>
    word.replaceAll(/"((?:[^"\\]|\\.)*)"/gu, (_, inner) => inner.replaceAll(/\\(.)/gu, "$1")),
  );
}

/** What the runtime needs otherwise, or what has no effect in a process that is ended from outside. */
const NOT_SET =
  /^--(?:no-)?(?:allow-|cpu-prof|debug-port|diagnostic-dir|entry-url|experimental-loader|frozen-intrinsics|heap-prof|input-type|inspect|loader|node-snapshot|permission|prof-process|snapshot-blob|test|trace-event|watch)/u;

/** True for a flag that Node takes from NODE_OPTIONS when it starts, and the runtime does not set itself. */
const isOfStart = (flag) => process.allowedNodeEnvironmentFlags.has(flag) && !NOT_SET.test(flag);

/** Splits NODE_OPTIONS into the flags that the runtime sets, each with its value, and the words of those that need a start. */
function optionsOf(options) {
  const [own, ofStart] = [[], []];
  const words = wordsOf(options);
  while (words.length > 0) {
    const whole = words.shift();
    const [word, ...given] = whole.split("=");
    const flag = (SHORT[word] ?? word).replaceAll("_", "-");
    if (Object.hasOwn(FLAGS, flag)) {
      const value = given.length > 0 ? given.join("=") : WITH_VALUE.has(flag) ? words.shift() : undefined;
      if (WITH_VALUE.has(flag) && !value) refuse("NODE_OPTIONS", `has ${flag} without a value`);
      own.push([flag, value]);
    } else if (isOfStart(flag)) {
      ofStart.push(whole);
      while (words.length > 0 && !words[0].startsWith("-")) ofStart.push(words.shift());
    } else refuse("NODE_OPTIONS", `has a flag that cannot be set: ${word}`);
  }
  return { own, ofStart };
}

/** Variables of the dynamic loader and of malloc. */
const OF_LOADER = /^(?:LD_|MALLOC_|GLIBC_TUNABLES$)/u;

/**
 * Returns the flags and variables with which the program has to start for a function; null: it can stay as it is. Throws a
 * RuntimeError for NODE_OPTIONS that it cannot follow.
 */
export function startOf(environment) {
  const variables = Object.entries(environment).filter(([name]) => OF_LOADER.test(name));
  const { NODE_OPTIONS } = environment;
  const flags = NODE_OPTIONS ? optionsOf(NODE_OPTIONS).ofStart : [];
  return variables.length + flags.length === 0 ? null : { flags, variables: Object.fromEntries(variables) };
}

async function applyOptions(options) {
  for (const [flag, value] of optionsOf(options).own) await FLAGS[flag](value);
}

/**
 * Does what variables of a function ask for, in its working directory. Resolves when the modules that they name are loaded. Rejects
 * with a RuntimeError for a flag that it does not know, or with what such a module throws. Null without NODE_OPTIONS. Throws a
 * RuntimeError for another variable that it cannot follow.
 */
export function startAs(environment) {
  const { NODE_OPTIONS, NODE_EXTRA_CA_CERTS, NODE_PATH, NODE_NO_WARNINGS, NODE_USE_SYSTEM_CA, NODE_USE_ENV_PROXY } =
    environment;
  for (const name of REFUSED)
    if (environment[name]) refuse(name, "is read when a process starts, and has no effect here");
  if (NODE_PATH) builtin("node:module")._initPaths();
  if (NODE_NO_WARNINGS === "1") process.removeAllListeners("warning");
  if (NODE_USE_SYSTEM_CA === "1" || NODE_EXTRA_CA_CERTS) {
    const own = NODE_EXTRA_CA_CERTS ? certificatesOf(NODE_EXTRA_CA_CERTS) : [];
    addCertificates(NODE_USE_SYSTEM_CA === "1" ? ["default", "system"] : ["default"], own);
  }
  if (NODE_USE_ENV_PROXY && isOn(NODE_USE_ENV_PROXY)) builtin("node:http").setGlobalProxyFromEnv(environment);
  return NODE_OPTIONS ? applyOptions(NODE_OPTIONS) : null;
}
