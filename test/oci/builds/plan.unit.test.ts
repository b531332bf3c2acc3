/** Build files: lines, variables, instructions, stages, keys. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../../src/base/limits.ts";
import { readBuildFile } from "../../../src/oci/builds/build-file.ts";
import { planOf } from "../../../src/oci/builds/plan.ts";
import { type CopySources, type EvaluatedStage, evaluate, type RunStep } from "../../../src/oci/builds/stages.ts";
import { expand, newTextBudget } from "../../../src/oci/builds/variables.ts";

const PLATFORM = "linux/amd64";
const IMAGES: Readonly<Record<string, object>> = {
  base: { Env: ["PATH=/bin", "HOME=/h"], Cmd: ["sh"], Entrypoint: ["/e"], WorkingDir: "/w", User: "app" },
  triggers: { OnBuild: ["RUN x"] },
};

interface Asked {
  readonly source: string;
  readonly args?: Readonly<Record<string, string>>;
  readonly target?: string | null;
  readonly tenant_id?: string;
  readonly digest?: (step: CopySources) => string;
  readonly secrets?: readonly string[];
}

const plan = ({ source, args = {}, target = null }: Asked) =>
  planOf({ source, arguments: args, target, platform: PLATFORM });

async function stagesOf(asked: Asked) {
  const found = plan(asked);
  const stages = await evaluate({
    tenant_id: asked.tenant_id ?? "t1",
    plan: found,
    arguments: asked.args ?? {},
    image: async (reference) => ({
      image_id: `id-${reference}`,
      config_json: JSON.stringify({ architecture: "amd64", os: "linux", config: IMAGES[reference] ?? {} }),
    }),
    contextDigest: async (step) => asked.digest?.(step) ?? "same",
    downloadKey: async ({ url }) => `key of ${url}`,
    egress: "on",
    secrets: asked.secrets ?? [],
  });
  return { plan: found, stages, target: stages.get(found.target.index) as EvaluatedStage };
}

const of = (source: string, args: Readonly<Record<string, string>> = {}) => stagesOf({ source, args });
const works = (stage: EvaluatedStage) => stage.steps.map(({ work }) => work);
const keyOf = async (asked: Asked) => (await stagesOf(asked)).target.key;
const refusal = async (source: string, more: Partial<Asked> = {}) => {
  try {
    await stagesOf({ source, ...more });
  } catch (error) {
    return (error as Error).message;
  }
  return "accepted";
};

describe("a build file", () => {
  it("joins lines, and leaves comments and empty lines out", () => {
    const text = "# c\nRUN a && \\\n  # inside\n\n  b \\  \n c\n\nENV A=b\n";
    const { instructions } = readBuildFile(text);
    expect(instructions.map(({ keyword, text, line }) => [keyword, text, line])).toEqual([
      ["RUN", "a &&   b  c", 2],
      ["ENV", "A=b", 8],
    ]);
  });

  it("is read in the time of its length, whatever blanks it has", () => {
    const blanks = " \t".repeat(60_000);
    const { instructions } = readBuildFile(`RUN a${blanks}b\\${blanks}\nc`);
    expect(instructions.map(({ text }) => text)).toEqual([`a${blanks}bc`]);
  });

  it("takes another escape character from its directive, and none from a later comment", () => {
    expect(readBuildFile("# syntax=x\n# escape=`\nRUN a `\n b\\").instructions[0]?.text).toBe("a  b\\");
    expect(readBuildFile("#\n# escape=`\nRUN a\\\nb").instructions[0]?.text).toBe("ab");
  });

  it("reads flags and here-documents", () => {
    const { instructions } = readBuildFile(
      "RUN --mount=type=tmpfs,target=/x --network=none <<A cat <<-'B'\n1\nA\n\t2\n\tB\nCMD x",
    );
    expect(instructions[0]?.flags).toEqual([
      { name: "mount", value: "type=tmpfs,target=/x" },
      { name: "network", value: "none" },
    ]);
    expect(instructions[0]?.documents.map(({ name, content, is_expanded }) => [name, content, is_expanded])).toEqual([
      ["A", "1\n", true],
      ["B", "2\n", false],
    ]);
    expect(instructions[1]?.keyword).toBe("CMD");
  });

  it.each([
    ["RUN <<A\nx", "line 1: here-document has no end: A"],
    ["FROM x\nFROB y", "line 2: unknown instruction: FROB"],
    ["FROM x\n\nRUN", "line 3: RUN has no arguments"],
    ["FROM x\n\nONBUILD ONBUILD RUN y", "line 3: ONBUILD must not have ONBUILD"],
    ["FROM x\nONBUILD RUN --mount=type=cache y", "line 2: RUN --mount: type=cache needs a target"],
    ["FROM x\nRUN --security=insecure y", "line 2: RUN --security=insecure is not supported"],
    ["FROM x\nRUN --mount=type=ssh y", "type=ssh is not supported (mount a key with type=secret)"],
    ["FROM x\nRUN --mount=type=frob y", "unknown type: 'frob' (expected bind, cache, secret, tmpfs)"],
    ["FROM x\nRUN --mount=type=bind,target=/x,uid=1 y", "uid of type=bind is not supported"],
    ["FROM x\nRUN --mount=target y", "target needs a value"],
    ["FROM x\nRUN --mount=from=a$B,target=/x y", "from must not have variables"],
    ["FROM x\nRUN --mount=from=9,target=/x y", "RUN --mount=from=9: no earlier stage has this number"],
    [
      "FROM x\nRUN --mount=type=cache,target=/x,sharing=all y",
      "unknown sharing: 'all' (expected shared, private, locked)",
    ],
    ["FROM x\nRUN --mount=type=cache,target=/x,source=a y", "source of type=cache needs from"],
    ["FROM x\nRUN --mount=type=cache,target=/x,mode=9 y", "mode must be a number"],
    ["FROM x\nRUN --mount=type=cache,target=/x,ro=maybe y", "readonly must be true or false: 'maybe'"],
    ["FROM x\nRUN --mount=type=tmpfs,target=/x,size=lots y", "size must be a number of bytes like 64m: 'lots'"],
    ["FROM x\nRUN --mount=target=. y", "target must not be in the place of /: '.'"],
    ["FROM x\nWORKDIR /dev\nRUN --mount=target=. y", "target must not be at or below /dev: '.'"],
    ["FROM x\nARG T=/proc\nRUN --mount=target=$T y", "target must not be at or below /proc: '/proc'"],
    ["FROM x\nWORKDIR /a\nRUN --mount=target=.,rw --mount=type=cache,target=b y", "'/a/b' in '/a'"],
    ["FROM x\nRUN --mount=from=scratch,target=/x y", "line 2: scratch has no files"],
    ["FROM x\nRUN --mount=type=secret,id=a/b y", "needs the id of a secret"],
    ["FROM x\nRUN --mount=type=cache,target=../etc y", "must not be in the place of /etc"],
    ...["/dev", "//dev", "/./dev/", "/dev/shm", "/proc/self", "/sys", "/etc", "/", "/usr/../dev"].flatMap((target) =>
      ["cache", "tmpfs", "secret,id=s"].map((type) => [
        `FROM x\nRUN --mount=type=${type},target=${target} y`,
        "line 2: RUN --mount: target must",
      ]),
    ),
    ["FROM x\nRUN --mount=type=cache,target=/a --mount=type=cache,target=/a/l/init y", "'/a/l/init' in '/a'"],
    ["FROM x\nRUN --mount=type=cache,target=/a --mount=type=secret,id=s,target=/a/s y", "'/a/s' in '/a'"],
    ["FROM x\nRUN --mount=type=cache,target=/a --mount=type=tmpfs,target=/a/t y", "'/a/t' in '/a'"],
    ["FROM x\nRUN --mount=type=cache,target=/run --mount=type=secret,id=s y", "'/run/secrets/s' in '/run'"],
    ["FROM x\nRUN --mount=type=cache,target=/run/secrets --mount=type=secret,id=s y", "in '/run/secrets'"],
    ["FROM x\nRUN --mount=type=cache,target=/run/secrets/a --mount=type=secret,id=s y", "in '/run/secrets'"],
    ["FROM x\nRUN --mount=type=cache,target=/run --mount=type=secret,id=s,target=/s y", "'/run/secrets' in '/run'"],
    ["FROM x\nADD git@github.com:a/b.git /c", "ADD of git needs a URL with https: 'git@github.com:a/b.git'"],
    ["FROM x\nADD git://a/b.git#v1:docs /c", "ADD of git needs a URL with https"],
    ["FROM x\nARG U=ssh://a/b\nADD $U /c", "ADD of git needs a URL with https: 'ssh://a/b'"],
    ["FROM x\nADD https://a/b.git?ref=v1 /c", "ADD of git takes no query"],
    ["FROM x\nADD https://a/b.git#a..b /c", "malformed ref of git: 'a..b'"],
    ["FROM x\nADD https://a/b.git#-x /c", "malformed ref of git: '-x'"],
    ["FROM x\nADD https://a/b.git#:../x /c", "malformed directory of a git repository: '../x'"],
    ["FROM x\nADD --keep-git-dir https://a/b.git /c", "ADD --keep-git-dir=true is not supported"],
    [`FROM x\nADD --checksum=sha256:${"0".repeat(64)} https://a/b.git /c`, "(expected 7 to 40 digits of a commit)"],
    ["FROM x\nADD https://a/b/ /c", "the path of a URL must end with a file name: 'https://a/b/'"],
    ["FROM x\nADD https://a/%2e%2e /c", "the path of a URL must end with a file name"],
    ["FROM x\nADD http:///// /c", "malformed URL"],
    ["FROM x\nADD --checksum=md5:1 https://a/b /c", "malformed checksum: 'md5:1' (expected sha256:…)"],
    [`FROM x\nADD --checksum=sha256:${"0".repeat(64)} b /c`, "ADD --checksum needs one URL as its source"],
    ["FROM x\nCOPY --unpack a b", "COPY --unpack is not supported"],
    ["FROM x\nCOPY --link a b", "accepted"],
    ["FROM x\nRUN --security=sandbox y", "accepted"],
    ["FROM x\nRUN --network=host y", "RUN --network=host is not supported"],
    ["FROM x\nRUN --device=a y", "RUN --device=a is not supported"],
    ["FROM x\nCOPY --from=9 a b", "no earlier stage has this number"],
    ["FROM x\nCOPY a b c", "COPY target not a directory: 'c' (several sources need a target that ends with /)"],
    ["FROM x\nCOPY --chmod=u+,u a b", "malformed mode: 'u+,u'"],
    ["FROM --platform=linux/mips x", "this node builds for linux/amd64"],
    ["FROM x AS a\nFROM y AS A", "two stages have the name a"],
    ["FROM x as", "malformed FROM"],
    ["RUN x", "build file has no FROM"],
    ["ENV a=b\nFROM x", "only ARG may stand before FROM"],
    ["FROM $NONE", "FROM names no image"],
    ["FROM x\nENV a", "ENV needs name=value"],
    ['FROM x\nENV a="b', 'a quote " has no end'],
    ["FROM x\nENV a=${b:-c", "a variable lacks its }"],
    ["FROM x\nEXPOSE 99999", "malformed port"],
    ["FROM x\nHEALTHCHECK --interval=soon CMD x", "must be a duration"],
    ["FROM triggers\nRUN y", "accepted"],
    [`FROM x\n${"RUN y\n".repeat(LIMITS.build_instructions_max)}`, "too many instructions"],
    ["FROM x\n".repeat(LIMITS.build_stages_max + 1), "too many stages"],
    [`FROM x\nRUN ${"y".repeat(LIMITS.build_file_bytes_max)}`, "build file too large"],
  ])("is refused: case %#", async (source, message) => {
    expect(await refusal(source)).toContain(message);
  });

  it("is refused for an argument that nothing declares, and not for a proxy", async () => {
    expect(await refusal("FROM x\nARG A", { args: { B: "1" } })).toContain("declares no argument B");
    expect(await refusal("FROM x\nRUN y", { args: { HTTP_PROXY: "1" } })).toBe("accepted");
  });
});

describe("variables", () => {
  const values: Readonly<Record<string, string>> = { a: "1", empty: "", path: "a/b/c.tar.gz", star: "x?*" };
  const words = { escape_char: "\\", line: 1, value: (name: string) => values[name], budget: newTextBudget() };
  it.each([
    ["$a-${a}", "1-1"],
    ["$none|${none}", "|"],
    ["${none:-x$a}${empty:-y}${empty-z}", "x1y"],
    ["${a:+set}${empty:+set}${empty+set}", "setset"],
    ["${none:-${none:-${a}}}", "1"],
    ["'$a' \"$a\" \\$a", "$a 1 $a"],
    ['"a\\"b\\n"', 'a"b\\n'],
    ["a\\ b", "a b"],
    ["$", "$"],
    ["[$1$@${2}$$]", "[]"],
    ["$aé|${bé:-none}", "|none"],
    ["${path#*/}|${path##*/}|${path%/*}|${path%%/*}", "b/c.tar.gz|c.tar.gz|a/b|a"],
    ["${path/b/$a}|${path//[ac]/x}|${path//?/-}|${none/x/y}", "a/1/c.tar.gz|a/b/c.tar.gz|------------|"],
    ["${path/\\//-}|${star%\\*}|${star#x\\?}", "a-b/c.tar.gz|x?|*"],
  ])("expand %j", (text, expected) => expect(expand(text, words)).toBe(expected));

  it("refuse a missing one that must be set", () => {
    expect(() => expand("${none:?why}", words)).toThrow("none: why");
  });

  it.each([
    ["${a#x", "lacks its }"],
    ["${a/x}", "lacks its /"],
    ["${a#\\x}", "invalid escape in a pattern: '\\x'"],
    ["${a!x}", "unsupported form of variable a"],
    ["${}", "has no name"],
  ])("are refused: %j", (text, why) => expect(() => expand(text, words)).toThrow(why));

  it("have patterns that end by their bound, however many stars they have", () => {
    const value = () => "a".repeat(100_000);
    const budget = newTextBudget();
    const text = `\${v//${"*a".repeat(5_000)}b/x}`;
    expect(() => expand(text, { ...words, value, budget })).toThrow(/variables too large/);
  });
});

describe("a stage", () => {
  it("gives commands their environment, user and directory", async () => {
    const { target } = await of(
      'FROM base\nARG V=1\nENV A="x y" B=$V\nWORKDIR sub\nUSER u:g\nRUN echo $A\nRUN ["a","b c"]',
    );
    const [directory, shell, exec] = works(target) as [object, RunStep, RunStep];
    expect(directory).toEqual({ type: "directory", path: "/w/sub" });
    expect(shell).toMatchObject({
      argv: ["/bin/sh", "-c", "echo $A"],
      environment: { V: "1", PATH: "/bin", HOME: "/h", A: "x y", B: "1" },
      user: "u:g",
      working_directory: "/w/sub",
    });
    expect(exec.argv).toEqual(["a", "b c"]);
    expect(target.settings.environment.has("V")).toBe(false);
  });

  it("has the settings of its base, changed", async () => {
    const { target } = await of(
      'FROM base\nENTRYPOINT ["/x"]\nEXPOSE 80 90-91/udp\nVOLUME ["/v"]\nLABEL a.b="c d"\nSTOPSIGNAL SIGINT\nHEALTHCHECK --interval=1m30s --retries=2 CMD t',
    );
    expect(target.settings.toJson()).toEqual({
      User: "app",
      ExposedPorts: { "80/tcp": {}, "90/udp": {}, "91/udp": {} },
      Env: ["PATH=/bin", "HOME=/h"],
      Entrypoint: ["/x"],
      Volumes: { "/v": {} },
      WorkingDir: "/w",
      Labels: { "a.b": "c d" },
      StopSignal: "SIGINT",
      Healthcheck: { Test: ["CMD-SHELL", "t"], Interval: 90e9, Retries: 2 },
    });
    expect((await of("FROM base\nCMD x\nENTRYPOINT y")).target.settings.command).toEqual(["/bin/sh", "-c", "x"]);
    expect((await of('FROM base\nSHELL ["/s"]\nRUN x')).target.steps[0]?.work).toMatchObject({ argv: ["/s", "x"] });
  });

  it("takes arguments from the request, from before FROM, or from itself", async () => {
    const source = "ARG G=g\nARG I=base\nFROM $I\nARG G\nARG D=d\nARG N\nRUN x";
    const environment = async (args: Readonly<Record<string, string>>) =>
      (works((await of(source, args)).target)[0] as RunStep).environment;
    expect(await environment({})).toMatchObject({ G: "g", D: "d" });
    expect(await environment({ G: "1", D: "2", N: "3" })).toMatchObject({ G: "1", D: "2", N: "3" });
  });

  it("is left out unless the target needs it", async () => {
    const source =
      "FROM base AS a\nRUN a\nFROM base AS b\nRUN b\nFROM scratch AS c\nCOPY --from=a /x /y\nFROM a AS d\nRUN d";
    const indexes = (target: string | null) => plan({ source, target }).stages.map(({ index }) => index);
    expect(indexes("c")).toEqual([0, 2]);
    expect(indexes("C")).toEqual([0, 2]);
    expect(indexes("1")).toEqual([1]);
    expect(indexes(null)).toEqual([0, 3]);
    expect(() => plan({ source, target: "e" })).toThrow("unknown stage 'e'");
    expect(plan({ source, target: "c" }).steps_count).toBe(4);
  });

  it("keeps sources of a copy within their root", async () => {
    const { target } = await of("FROM base\nCOPY ../../etc/passwd /a/../.. x/\nADD --chown=1:2 --chmod=0755 a* /b");
    expect(works(target)).toMatchObject([
      { sources: ["etc/passwd", ""], target: "/w/x", is_directory: true, owner: null, mode: null },
      {
        sources: ["a*"],
        target: "/b",
        is_directory: false,
        owner: "1:2",
        mode: "0755",
        unpacks: { sources: true, urls: false },
      },
    ]);
  });

  it("writes variables of here-documents out, unless their name is quoted", async () => {
    const { target } = await of("FROM base\nENV A=1\nCOPY <<X <<'Y' /d/\n$A \\$A 'q'\nX\n$A\nY\nRUN <<Z\necho $A\nZ");
    expect(works(target)).toMatchObject([
      {
        documents: [
          { name: "X", content: "1 $A 'q'\n" },
          { name: "Y", content: "$A\n" },
        ],
      },
      { argv: ["/bin/sh", "-c", "echo $A\n"] },
    ]);
  });
});

describe("the key of a step", () => {
  const source = "FROM base\nARG A\nENV E=1\nRUN x\nCOPY a /b\nRUN y";
  it("is the same for the same", async () => {
    expect(await keyOf({ source })).toBe(await keyOf({ source: `# c\n${source}\nLABEL a=b` }));
  });

  it.each([
    ["the tenant", { source, tenant_id: "t2" }],
    ["an argument", { source, args: { A: "1" } }],
    ["the environment", { source: source.replace("E=1", "E=2") }],
    ["an earlier command", { source: source.replace("RUN x", "RUN z") }],
    ["the base", { source: source.replace("FROM base", "FROM other") }],
    ["what is copied", { source, digest: () => "other" }],
    ["where it is copied", { source: source.replace("/b", "/c") }],
    ["its owner", { source: source.replace("COPY", "COPY --chown=1") }],
    ["the user", { source: source.replace("RUN y", "USER u\nRUN y") }],
    ["the network", { source: source.replace("RUN y", "RUN --network=none y") }],
    ["a mount", { source: source.replace("RUN y", "RUN --mount=type=cache,target=/c y") }],
  ] as const)("changes with %s", async (_label, asked) => {
    expect(await keyOf(asked)).not.toBe(await keyOf({ source }));
  });

  it("changes with the stage that is copied from", async () => {
    const other = (command: string) => `FROM base AS a\nRUN ${command}\nFROM base\nCOPY --from=a /x /y`;
    expect(await keyOf({ source: other("one") })).not.toBe(await keyOf({ source: other("two") }));
    expect(await keyOf({ source: other("one") })).toBe(await keyOf({ source: other("one") }));
  });

  it("holds no value of an argument that the stage does not declare", async () => {
    const two = "ARG S\nFROM base AS a\nARG S\nRUN a\nFROM base\nRUN b";
    expect(await keyOf({ source: two, args: { S: "1" } })).toBe(await keyOf({ source: two, args: { S: "2" } }));
  });
});

describe("a hostile build file", () => {
  it("cannot make gigabytes of variables", async () => {
    const labels = Array.from({ length: 12 }, (_, i) => `LABEL l${i}=${"$A".repeat(4_000)}`);
    const source = ["FROM scratch", `ENV A=${"x".repeat(10_000)}`, ...labels].join("\n");
    await expect(stagesOf({ source })).rejects.toThrow(/variables too large/);
    const doubled = Array.from({ length: 60 }, (_, i) => `ARG A${i + 1}=$A${i}$A${i}`);
    expect(() => plan({ source: ["ARG A0=xxxx", ...doubled, "FROM scratch"].join("\n") })).toThrow(
      /variables too large/,
    );
  });

  it("has another key without a secret, and needs one that is required", async () => {
    const source = "FROM base\nRUN --mount=type=secret,id=token true";
    const key = async (secrets: readonly string[]) => (await stagesOf({ source, secrets })).target.key;
    expect(await key(["token"])).not.toBe(await key([]));
    expect(await key(["token", "other"])).toBe(await key(["token"]));
    const required = "FROM base\nRUN --mount=type=secret,id=token,required=true true";
    await expect(stagesOf({ source: required })).rejects.toThrow(/names no secret token/);
  });

  it("may name arguments as JavaScript names its own", async () => {
    const { target } = await stagesOf({ source: "ARG toString\nFROM base\nARG constructor\nRUN true" });
    expect(target.steps[0]?.work).toMatchObject({ environment: { PATH: "/bin", HOME: "/h" } });
  });

  it("cannot mount more than a few caches at once", async () => {
    const caches = Array.from({ length: 9 }, (_, i) => `--mount=type=cache,target=/c${i}`).join(" ");
    await expect(stagesOf({ source: `FROM base\nRUN ${caches} true` })).rejects.toThrow(/too many cache mounts/);
  });
});
