/** The tree of commands against the schemas of the API, its help, and what completion makes of it. */
import type { Command } from "commander";
import { describe, expect, it } from "vitest";
import { candidates, isWord } from "../../src/cli/completion.ts";
import { DOCKER_COMMANDS, DOCKER_FLAGS } from "../../src/cli/docker-words.ts";
import { environmentChange, fieldsOf } from "../../src/cli/functions/function-fields.ts";
import { phasesOf } from "../../src/cli/functions/invoke.ts";
import { EXIT_HELP } from "../../src/cli/session/failure.ts";
import type { Flags } from "../../src/cli/session/session.ts";
import { createFunction, updateFunction } from "../../src/functions/schema.ts";
import { createKey, requestToken, tenantLimits } from "../../src/tenants/schema.ts";
import { commandsOf, makeProgram, start } from "../support/program.ts";

const program = makeProgram();

function find(...names: string[]): Command {
  return names.reduce((command: Command, name) => {
    const found = command.commands.find((one) => one.name() === name);
    if (found === undefined) throw new Error(`there is no ${names.join(" ")}`);
    return found;
  }, program);
}

const flags = (command: Command) => new Set(command.options.map(({ long }) => long));
const dashed = (field: string) => field.replaceAll("_", "-");

const verbs = commandsOf(program).filter((one) => one.commands.length === 0 && !one.name().startsWith("__"));

/** The flags of a verb as commander parses them. */
function parsed(names: readonly string[], args: readonly string[]): Flags {
  const command = find(...names);
  const fresh = makeProgram();
  const verb = names.reduce((at: Command, name) => at.commands.find((one) => one.name() === name) as Command, fresh);
  verb.parseOptions([...args]);
  expect(command.name()).toBe(verb.name());
  return verb.opts();
}

describe("the commands", () => {
  it("have a flag for every field of a function", () => {
    // The name is a word; source_code and cluster_id are refused in any request; the environment has flags of its own.
    const wordless = ["name", "source_code", "cluster_id", "environment"];
    const create = flags(find("create"));
    const missing = Object.keys(createFunction.shape).filter(
      (field) => !wordless.includes(field) && !create.has(`--${dashed(field)}`),
    );
    expect(missing).toEqual([]);
    expect(create).toContain("--env");
    const fields = Object.entries(updateFunction.shape).filter(([field]) => !wordless.includes(field));
    const update = flags(find("update"));
    expect(fields.filter(([field]) => !update.has(`--${dashed(field)}`))).toEqual([]);
    // Every one that can be null, or false, can be made so.
    const cleared = fields.filter(([, schema]) => schema.safeParse(null).success || schema.safeParse(false).success);
    expect(cleared.map(([field]) => field)).toEqual(expect.arrayContaining(["cpu_limit_percent", "api_access"]));
    expect(cleared.filter(([field]) => !update.has(`--no-${dashed(field)}`))).toEqual([]);
  });

  it("have a flag for every limit of a tenant, and every field of a key and a token", () => {
    for (const limit of Object.keys(tenantLimits.shape)) {
      expect(flags(find("tenants", "create"))).toContain(`--${dashed(limit)}`);
      expect(flags(find("tenants", "update"))).toContain(`--${dashed(limit)}`);
      expect(flags(find("tenants", "update"))).toContain(`--no-${dashed(limit)}`);
    }
    // `permissions` is another name of `scopes`; the scope type follows from --container.
    const wordless = ["name", "permissions", "scope_type"];
    const fields = Object.keys(createKey.in.shape).filter((field) => !wordless.includes(field));
    expect(fields.sort()).toEqual(["expires_at", "scope_resource_ids", "scopes"]);
    expect(flags(find("keys", "create"))).toContain("--container");
    for (const command of [find("keys", "create"), find("tenants", "keys", "create")]) {
      expect([...flags(command)]).toEqual(expect.arrayContaining(["--scopes", "--expires"]));
    }
    const token = flags(find("tokens", "create"));
    expect(Object.keys(requestToken.shape).filter((field) => !token.has(`--${dashed(field)}`))).toEqual([]);
  });

  it("all show an example that begins with the command itself, and the exit codes", () => {
    for (const command of verbs) {
      const written: string[] = [];
      command.configureOutput({ writeOut: (text) => written.push(text) });
      command.outputHelp();
      const help = written.join("");
      expect(help.replace(/\s+/g, " ")).toContain(EXIT_HELP);
      const examples = help.slice(help.search(/^Examples?:/m)).split("\n");
      const lines = help.split("\n").filter((line) => !examples.includes(line));
      expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
      expect(help).toMatch(new RegExp(`Examples?:\n.*hearth .*\\b${command.name()}\\b|hearth ls`));
    }
    expect(verbs.length).toBeGreaterThan(40);
  });

  it("are the same with and without the word functions", () => {
    const inside = find("functions").commands.map((command) => command.name());
    expect(inside).toEqual(expect.arrayContaining(["create", "invoke", "rollback", "invocations", "resume"]));
    // Those of two of them are also containers'.
    for (const name of inside.filter((name) => !["logs", "delete"].includes(name))) {
      expect(flags(find(name))).toEqual(flags(find("functions", name)));
    }
    expect(find("functions").aliases()).toContain("fn");
  });
});

describe("a flag that no verb has", () => {
  /** What the words end with: `ran` where a command would run. */
  const told = async (...words: string[]) => {
    const written: string[] = [];
    const fresh = makeProgram();
    for (const one of commandsOf(fresh)) one.configureOutput({ writeOut: (text) => written.push(text) });
    try {
      await fresh.parseAsync(words, { from: "user" });
    } catch (error) {
      const { message, code, exit_code, hint } = error as Error & { code?: string; exit_code?: number; hint?: string };
      if (message === "no command runs here") return "ran";
      return { code: code ?? exit_code, message: message.replace("error: ", ""), hint, has_help: written.length > 0 };
    }
    return "nothing";
  };
  const unknown = (flag: string) => ({
    code: "commander.unknownOption",
    message: expect.stringContaining(`unknown option '${flag}'`),
    has_help: false,
  });

  it("is an error, whatever -h stands behind it", async () => {
    expect(await told("run", "--such", "1g", "--", "df", "-h")).toMatchObject(unknown("--such"));
    expect(await told("run", "--such", "df", "-h")).toMatchObject(unknown("--such"));
    expect(await told("containers", "exec", "--such", "box", "ls", "--help")).toMatchObject(unknown("--such"));
    expect(await told("invoke", "x", "--such", "--", "-h")).toMatchObject(unknown("--such"));
  });

  it("is the command's behind its first word, and asks for help before it", async () => {
    for (const words of [
      ["run", "--", "df", "-h"],
      ["run", "df", "-h", "--such"],
      ["run", "-d", "--", "-h"],
      ["exec", "box", "df", "-h"],
      ["exec", "box", "--", "df", "--help"],
    ])
      expect([words, await told(...words)]).toEqual([words, "ran"]);
    for (const words of [
      ["run", "-h"],
      ["run", "-d", "--help"],
      ["exec", "-h", "box"],
      ["ps", "-h"],
      ["icc", "-h"],
    ])
      expect(await told(...words)).toMatchObject({ code: "commander.helpDisplayed", has_help: true });
  });

  it("of docker is refused with what stands in its place, and without its value", async () => {
    const refused = (message: string, hint: string) => ({ code: 2, message, hint: expect.stringContaining(hint) });
    const value = await told("run", "--shm-size=1g", "--", "df", "-h", "/dev/shm");
    expect(value).toMatchObject(refused("unknown option '--shm-size'", "512 MiB"));
    expect(await told("run", "--hostname", "web", "x")).toMatchObject(refused("unknown option '--hostname'", "--name"));
    expect(await told("run", "-h", "web", "x")).toMatchObject(refused("-h has no value", "--name"));
    expect(await told("run", "-d", "--privileged")).toMatchObject(refused("unknown option '--privileged'", "--gpus"));
    expect(await told("containers", "run", "-P", "x")).toMatchObject(refused("unknown option '-P'", "-p <port>"));
    expect(await told("image", "rm", "-f", "x")).toMatchObject(refused("unknown option '-f'", "hearth rm"));
    expect(await told("rmi", "--force", "x")).toMatchObject(refused("unknown option '--force'", "hearth rm"));
    // A group with that option of its own is another matter.
    expect(await told("secrets", "list", "--privileged")).toMatchObject(unknown("--privileged"));
  });

  it("of docker is in no table where a verb has it, and each hint names flags that exist", () => {
    const known = new Set(
      commandsOf(program).flatMap(({ options }) => options.flatMap((one) => [one.long, one.short])),
    );
    for (const [path, table] of Object.entries(DOCKER_FLAGS)) {
      const own = find(path).options.flatMap(({ long, short }) => [long, short]);
      for (const [flag, hint] of Object.entries(table)) {
        if (flag !== "--dns") expect([path, own]).not.toEqual([path, expect.arrayContaining([flag])]);
        for (const word of hint.match(/(?<!\w)--?[a-z]+(?:-[a-z]+)*/g) ?? [])
          if (word !== flag && word !== "-r" && word !== "-h") expect(known, hint).toContain(word);
      }
    }
  });
});

describe("a command of docker", () => {
  const at = (path: string) =>
    path.split(" ").reduce((command: Command | undefined, word) => {
      return command?.commands.find((one) => one.name() === word || one.aliases().includes(word));
    }, program);

  it("that hearth lacks is refused with commands that exist", async () => {
    for (const [path, hint] of Object.entries(DOCKER_COMMANDS)) {
      expect([path, at(path)]).toEqual([path, undefined]);
      const named = [...hint.matchAll(/hearth ((?:(?:image|volumes|networks|snapshot) )?[a-z]+)/g)];
      expect(hint).toContain("hearth ");
      for (const [, command = ""] of named) expect([hint, at(command)?.name()]).not.toContain(undefined);
      const refused = makeProgram().parseAsync(path.split(" "), { from: "user" });
      await expect(refused).rejects.toMatchObject({ exit_code: 2, hint });
    }
    const refused = (...words: string[]) => makeProgram().parseAsync(words, { from: "user" });
    await expect(refused("network", "create", "x")).rejects.toMatchObject({
      hint: expect.stringContaining("hearth run"),
    });
    await expect(refused("imagess")).rejects.toMatchObject({ code: "commander.unknownCommand" });
    await expect(refused("toString")).rejects.toMatchObject({ code: "commander.unknownCommand" });
  });

  it("that hearth has is there under docker's name", () => {
    const names = ["container ls", "container restart", "image ls", "volume ls", "volume create", "network ls"];
    for (const path of [...names, "info", "version", "wait", "port"]) expect([path, at(path)]).not.toContain(undefined);
  });
});

describe("flags of an update", () => {
  const update = (...args: string[]) => parsed(["update"], args);

  it("say what changes, what is cleared and what is off, and nothing of the rest", async () => {
    expect(await fieldsOf(update())).toEqual({});
    expect(
      await fieldsOf(
        update(
          "--no-cpu-limit-percent",
          "--no-description",
          "--no-api-access",
          "--cleanup-on-exit",
          "--max-instances",
          "3",
        ),
      ),
    ).toEqual({
      cpu_limit_percent: null,
      description: null,
      api_access: false,
      cleanup_on_exit: true,
      max_instances: 3,
    });
    expect(await fieldsOf(update("--handler", "--json", "--description="))).toEqual({
      handler: "--json",
      description: "",
    });
    expect(() => update("--max-instances", "many")).toThrow("expected a number");
  });

  it("set variables on top, unset them, or clear those before", async () => {
    expect(await environmentChange(update())).toBeNull();
    const change = await environmentChange(update("--env", "A=1=2", "-e", "B=", "--unset-env", "C"));
    expect(change).toEqual({ isCleared: false, unset: ["C"], set: { A: "1=2", B: "" } });
    expect(await environmentChange(update("--no-env"))).toEqual({ isCleared: true, unset: [], set: {} });
    expect(await environmentChange(update("--env", "A=1", "--no-env", "--env", "B=2"))).toEqual({
      isCleared: true,
      unset: [],
      set: { B: "2" },
    });
    await expect(environmentChange(update("--env", "=x"))).rejects.toThrow("expects NAME=VALUE");
  });
});

describe("completion", () => {
  const complete = async (...words: string[]) =>
    (await candidates(program, words, start)).map((line) => line.split("\t")[0]);

  it("knows verbs, flags and their values from the tree", async () => {
    expect(await complete("ro")).toEqual(["rollback"]);
    expect(await complete("fn", "v")).toEqual(["versions"]);
    expect(await complete("tenants", "keys", "")).toEqual(["list", "create", "revoke"]);
    expect(await complete("create", "hello", "--mem")).toEqual(["--memory-limit-mb"]);
    expect(await complete("ls", "--j")).toEqual(["--json"]);
    expect(await complete("completion", "")).toEqual(["bash", "zsh", "fish"]);
    expect(await complete("help", "")).toEqual(expect.arrayContaining(["settings", "limits", "invoke", "volumes"]));
    expect(await complete("help", "se")).toEqual(["settings", "secrets", "services"]);
    expect(await complete("init", "--runtime", "py")).toEqual(["python3", "python"]);
    expect(await complete("deploy", ".", "--d")).toEqual(["--dry-run"]);
  });

  it("offers no name that would be a flag, or that a terminal would obey", () => {
    const names = ["plain", "two words", "$(id)", "--url=http:elsewhere", "-h", "a\nb", "\x1b[2J", "\u202ex"];
    expect(names.filter((name) => isWord(name, false))).toEqual(["plain", "two words", "$(id)"]);
    expect(names.filter((name) => isWord(name, true))).toEqual(names.slice(0, 5));
  });

  it("leaves files to the shell, and offers nothing where anything goes", async () => {
    expect(await complete("create", "x", "--handler-file", "")).toEqual([":file"]);
    expect(await complete("create", "x", "--handler", "")).toEqual([]);
    expect(await complete("create", "")).toEqual([]);
    expect(await complete("invoke", "x", "--", "--js")).toEqual([]);
    expect(await complete("volumes", "put", "data:/x", "")).toEqual([":file"]);
    expect(await complete("run", "--restart", "")).toEqual(["no", "on-failure", "always"]);
    // bash takes --env-file=… apart.
    expect(await complete("create", "--env-file", "=", "")).toEqual([":file"]);
  });
});

describe("the phases of a call", () => {
  it("lie in their order, the start of an instance at the end of the wait for it", () => {
    const timings = { queue: 30, network: 1, rootfs: 4, start: 20, cell: 2, handler: 5, total: 38 };
    expect(phasesOf({ timings })).toEqual([
      { name: "queue", begin_ms: 0, length_ms: 30 },
      { name: "network", begin_ms: 5, length_ms: 1 },
      { name: "rootfs", begin_ms: 6, length_ms: 4 },
      { name: "start", begin_ms: 10, length_ms: 20 },
      { name: "cell", begin_ms: 30, length_ms: 2 },
      { name: "handler", begin_ms: 33, length_ms: 5 },
    ]);
    expect(phasesOf({ timings: { queue: 0, handler: 1, total: 1 } }).map(({ name }) => name)).toEqual([
      "queue",
      "handler",
    ]);
  });
});
