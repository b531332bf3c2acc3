/** Instructions of build files through the real API: each as the reference of Dockerfiles has it, and attacks through it. */
import { existsSync } from "node:fs";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BuildUser } from "../support/builds.ts";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { MadeImages, pullLocal } from "../support/made-images.ts";

const NAME = `localhost/hearth-test-instructions-${process.pid}`;
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new BuildUser(daemon);
const BASE = `FROM ${NAME}\n`;

beforeAll(async () => {
  made.make("base");
  await daemon.start({ HEARTH_CELLS: "0" });
  await pullLocal(daemon, NAME);
});

afterAll(async () => {
  await daemon.dispose();
  made.remove();
});

/** What a shell line prints in the image of a build file. */
const shows = async (lines: readonly string[], files: Parameters<BuildUser["built"]>[1], line: string) =>
  user.look((await user.built(lines.join("\n"), files)).reference, line);

/** A stage whose /out has a shell and what it is linked with. */
const SHELL = [
  `FROM ${NAME} AS tools`,
  "RUN mkdir -p /out/bin && cp /bin/dash /out/bin/sh && for f in $(ldd /bin/dash | grep -o '/[^ ]*'); do mkdir -p /out$(dirname $f) && cp $f /out$f; done",
];

describe("stages", () => {
  it("run commands on an image of nothing but copied files", async () => {
    const lines = [
      ...SHELL,
      "FROM scratch",
      "COPY --from=tools /out /",
      "RUN echo $((6 * 7)) > /answer",
      'CMD ["/bin/sh"]',
    ];
    const { reference } = await user.built([...lines].join("\n"));
    const { reference: copied } = await user.built(`${BASE}COPY --from=${reference} / /look/`);
    expect(await user.look(copied, "cat /look/answer; cd /look; ls -d etc dev proc answer bin 2>/dev/null")).toBe(
      "42\nanswer\nbin\n",
    );
  });

  it("may consist of settings alone, also as base or source of others, on an image and on none", async () => {
    const lines = [`FROM ${NAME} AS one`, "ENV A=1", "FROM one AS two", "ENV B=2", "FROM two AS three", "LABEL c=3"];
    expect(await shows([...lines, 'CMD ["true"]'], [], "echo $A$B; cat /version")).toBe("12\nbase\n");
    expect(
      await shows(
        [
          ...lines,
          "FROM scratch AS none",
          "ENV X=1",
          "FROM none AS child",
          "ENV Y=2",
          `FROM ${NAME}`,
          "COPY --from=three /version /v",
          "COPY --from=child / /empty/",
        ],
        [],
        "cat /v; ls -A /empty",
      ),
    ).toBe("base\n");
    expect(
      await shows(
        ["FROM scratch AS none", "ENV X=1", "FROM none AS child", "LABEL a=b", "FROM child", `COPY --from=${NAME} / /`],
        [],
        "echo $X; cat /version",
      ),
    ).toBe("1\nbase\n");
  });

  it("inherit arguments and variables of the stage that they begin with, and of no other", async () => {
    const lines = [
      "ARG GLOBAL=global",
      `FROM ${NAME} AS one`,
      "ARG GLOBAL",
      "ARG OWN=default",
      "ARG GIVEN=default",
      "ENV FROM_ARG=$OWN KEPT=kept",
      "FROM one AS two",
      "RUN echo $GLOBAL $OWN $GIVEN $FROM_ARG $KEPT > /seen",
      "ENV LATER=$GIVEN",
      "FROM two AS three",
      'RUN echo "$OWN $LATER" >> /seen',
      "COPY --from=two /seen /$OWN",
      `FROM ${NAME} AS other`,
      'RUN echo "[$OWN$GLOBAL$GIVEN]" > /seen',
      "FROM three",
      "COPY --from=other /seen /other",
    ];
    const { reference } = await user.built(lines.join("\n"), [], { build_args: { GIVEN: "given" } });
    expect(await user.look(reference, "cat /seen /default /other")).toBe(
      "global default given default kept\ndefault given\nglobal default given default kept\n[]\n",
    );
  });
});

describe("COPY and ADD", () => {
  it("pass over a pattern that matches nothing, alone and beside others, and refuse a missing name", async () => {
    const files = [{ name: "package.json", content: "{}" }];
    expect(
      await shows(
        [`${BASE}COPY package.json yarn.lock* ./app/`, "COPY none-*.txt /none/", "COPY d*/x /none/"],
        files,
        "ls /app; ls /none",
      ),
    ).toBe("package.json\nls: cannot access '/none': No such file or directory\n");
    expect((await user.build(`${BASE}COPY package.json missing ./app/`, files)).body.error).toContain(
      "no such file: 'missing'",
    );
  });

  it("give mode and owner to directories, too: to the target, to those above it and to those in it", async () => {
    const files = [
      { name: "src/sub/file", content: "x", mode: 0o600 },
      { name: "one", content: "1" },
    ];
    const lines = [
      `${BASE}RUN mkdir /there && chown 3:3 /there`,
      "COPY --chown=7:8 --chmod=0750 src /a/b",
      "COPY --chown=7:8 --chmod=751 src /there",
      "COPY --chown=9:9 one /c/d/one",
      "COPY --chmod=711 src /e",
    ];
    expect(
      await shows(
        lines,
        files,
        "stat -c '%n %u:%g %a' /a /a/b /a/b/sub /a/b/sub/file /there /there/sub /c /c/d /c/d/one /e /e/sub /e/sub/file",
      ),
    ).toBe(
      [
        "/a 7:8 755",
        "/a/b 7:8 750",
        "/a/b/sub 7:8 750",
        "/a/b/sub/file 7:8 750",
        "/there 3:3 755",
        "/there/sub 7:8 751",
        "/c 9:9 755",
        "/c/d 9:9 755",
        "/c/d/one 9:9 644",
        "/e 0:0 711",
        "/e/sub 0:0 711",
        "/e/sub/file 0:0 711\n",
      ].join("\n"),
    );
  });

  it("write through a link in the place of the target, inside of the root alone", async () => {
    const files = [
      { name: "f", content: "new" },
      { name: "tree/link", content: "file" },
    ];
    const lines = [
      `${BASE}RUN mkdir /d && echo old > /d/real && ln -s real /d/link && ln -s ../../../../d/missing /d/dangling && ln -s /d/link /twice`,
      "RUN ln -s /a /b && ln -s /b /a; ln -s ../../../../../../../../srv/hearth-escape /out; mkdir /tree && ln -s /d/real /tree/link",
      "COPY f /twice",
      "COPY f /d/dangling",
      "COPY f /out",
      "COPY <<EOT /d/here",
      "text",
      "EOT",
      "RUN ln -s /d/real2 /d/l2",
      "COPY <<EOT /d/l2",
      "text",
      "EOT",
      "COPY tree /tree",
    ];
    expect(
      await shows(
        lines,
        files,
        "readlink /twice /d/link /d/dangling /d/l2; cat /d/real /d/missing /srv/hearth-escape; cat /d/real2; stat -c %F /tree/link",
      ),
    ).toBe("/d/link\nreal\n../../../../d/missing\n/d/real2\nnewnewnewtext\nregular file\n");
    expect(existsSync("/srv/hearth-escape")).toBe(false);
    expect((await user.build([...lines, "COPY f /a"].join("\n"), files)).body.error).toMatch(
      /is a symbolic link, or has too many/,
    );
  });

  it("refuse zstd data that need a window of 128 MiB, in the first frame or in a later one", async () => {
    // A frame without a size, with a window of 2^27 bytes and one block that is stored as it is.
    const frame = (content: Buffer) => {
      const head = Buffer.from("28b52ffd0088000000", "hex");
      head.writeUIntLE((content.length << 3) | 1, 6, 3);
      return Buffer.concat([head, content]);
    };
    const tar = archive({ name: "in/file", content: "packed\n".repeat(50_000) });
    const later = Buffer.concat([zstdCompressSync(tar.subarray(0, 300_000)), frame(tar.subarray(300_000, 400_000))]);
    for (const content of [frame(archive({ name: "f", content: "x" })), later]) {
      const { status, body } = await user.build(`${BASE}ADD t.zst /a/\n`, [{ name: "t.zst", content }]);
      const error = expect.stringMatching(/zstd data needs a window of 134217728 bytes \(limit 16777216 bytes\)/);
      expect([status, body.error]).toEqual([400, error]);
    }
  });

  it("unpack a compressed archive and copy a compressed file that is none", async () => {
    const tar = archive({ name: "in/file", content: "packed\n", uid: 3, gid: 4 });
    const binary = (name: string, content: Buffer) => ({ name, content });
    const zstd = (bytes: Buffer) => zstdCompressSync(bytes);
    const skipped = Buffer.from("502a4d180400000001020304", "hex");
    const { reference } = await user.built(
      `${BASE}ADD t.gz t.zst plain.gz plain.zst half.gz /a/\nADD plain.gz /b/name\n`,
      [
        binary("t.gz", gzipSync(tar)),
        // As programs write it that compress side by side: a frame to skip, and several.
        binary("t.zst", Buffer.concat([skipped, ...[tar.subarray(0, 700), tar.subarray(700)].map(zstd)])),
        binary("plain.gz", gzipSync("no archive at all ".repeat(100))),
        binary("plain.zst", zstdCompressSync("x")),
        binary("half.gz", gzipSync("y".repeat(5_000)).subarray(0, 20)),
      ],
    );
    expect(await user.look(reference, "cd /a; find . | sort | tr '\\n' ' '; zcat plain.gz | head -c 10; ls /b")).toBe(
      ". ./half.gz ./in ./in/file ./plain.gz ./plain.zst no archivename\n",
    );
  });
});

describe("flags of COPY", () => {
  const files = [
    { name: "a/b/one.txt", content: "1", mode: 0o640 },
    { name: "a/b/two.md", content: "2", mode: 0o600 },
    { name: "a/three.txt", content: "3", mode: 0o600 },
    { name: "a/c/run.sh", content: "4", mode: 0o744 },
    { name: "top.txt", content: "5", mode: 0o644 },
  ];
  const FIND = "find . | LC_ALL=C sort | tr '\\n' ' '";

  it("--parents keeps the path of a source, all of it or behind /./, with ** for any directories", async () => {
    const lines = [
      `${BASE}COPY --parents a/b/one.txt top.txt /all/`,
      "COPY --parents a/./b/one.txt ./a/./c /part/",
      "COPY --parents **/*.txt /deep/",
      "COPY --parents=false a/b/one.txt /plain/",
      `FROM ${NAME}`,
      "COPY --from=0 --parents /all/./a/b /part/./b/one.txt /stage/",
      "COPY --from=0 /all /part /deep /plain /look/",
      "COPY --from=0 --parents /all /part /deep /plain /",
    ];
    expect(await shows(lines, files, `for d in all part deep plain stage; do cd /$d; ${FIND}; echo; done`)).toBe(
      [
        ". ./a ./a/b ./a/b/one.txt ./top.txt ",
        ". ./b ./b/one.txt ./c ./c/run.sh ",
        ". ./a ./a/b ./a/b/one.txt ./a/three.txt ./top.txt ",
        ". ./one.txt ",
        ". ./a ./a/b ./a/b/one.txt ./b ./b/one.txt ",
        "",
      ].join("\n"),
    );
  });

  it("--exclude leaves out what its patterns match in a source, and changes what the cache looks at", async () => {
    const lines = [
      `${BASE}COPY --exclude=b/*.md --exclude=c a /dir/`,
      "COPY --exclude=t*o.* --exclude=*.sh a/b/* a/c/* /files/",
      "ADD --exclude=**/*.txt a /added/",
      "COPY --parents --exclude=a/b a/*/* a/three.txt /parents/",
    ];
    const list = `for d in dir files added parents; do cd /$d; ${FIND}; echo; done`;
    expect(await shows(lines, files, list)).toBe(
      ". ./b ./b/one.txt ./three.txt \n. ./one.txt \n. ./b ./b/two.md ./c ./c/run.sh \n. ./a ./a/c ./a/c/run.sh ./a/three.txt \n",
    );
    const changed = files.map((file) => (file.name === "a/b/two.md" ? { ...file, content: "other" } : file));
    const only = [`${BASE}RUN true`, "COPY --exclude=b/*.md --exclude=c a /dir/"].join("\n");
    await user.built(only, files);
    expect((await user.built(only, changed)).message).toBe("image is the same as of an earlier build");
  });

  it("--chmod takes symbolic modes, which add to those of each file and directory", async () => {
    const lines = [
      `${BASE}COPY --chmod=u=rwX,go=rX a /x`,
      "COPY --chmod=+x a/b/one.txt /plus",
      "COPY --chmod=g+w,o-rwx,u+s a/c/run.sh /mixed",
      "COPY --chmod=go=u top.txt /as-user",
      "COPY --chmod=a-w+t a/b /sticky",
    ];
    expect(
      await shows(lines, files, "stat -c '%n %a' /x /x/b /x/b/one.txt /x/c/run.sh /plus /mixed /as-user /sticky"),
    ).toBe("/x 755\n/x/b 755\n/x/b/one.txt 644\n/x/c/run.sh 755\n/plus 751\n/mixed 4760\n/as-user 666\n/sticky 1555\n");
    for (const mode of ["rwx", "u+", "0888", "77777", "u=rwx,", "z+x"]) {
      const { error } = (await user.build(`${BASE}COPY --chmod=${mode} a /x`, files)).body;
      expect([mode, mode === "u+" ? "malformed" : error]).toEqual([mode, expect.stringContaining("malformed")]);
    }
  });

  it("--link follows no link on the way to the target, and leads out of the root nowhere", async () => {
    const lines = [
      `${BASE}RUN mkdir /real && ln -s /real /linked && ln -s ../../../../../../srv /out && echo old > /real/file`,
      "COPY --link top.txt /linked/file",
      "COPY --link=true --chown=5:6 a/c /out/hearth-linked/",
      "COPY --link=false top.txt /real/other",
    ];
    expect(
      await shows(
        lines,
        files,
        "stat -c '%n %F' /linked /out; cat /real/file /linked/file; stat -c %u /out/hearth-linked/run.sh",
      ),
    ).toBe("/linked directory\n/out directory\nold\n55\n");
    expect(existsSync("/srv/hearth-linked")).toBe(false);
    expect((await user.build(`${BASE}COPY --link=maybe a /x`, files)).body.error).toContain(
      "must be true or false: 'maybe'",
    );
  });
});

describe("ONBUILD", () => {
  it("runs in stages and images that begin with the one that has it, once and before their own instructions", async () => {
    const lines = [
      `${BASE}ONBUILD COPY --chmod=600 in.txt /copied`,
      "ONBUILD ARG WHO=nobody",
      'ONBUILD RUN echo "$WHO" > /ran && ls /own >> /ran 2> /dev/null || true',
      "ONBUILD ENV FROM_TRIGGER=yes",
    ];
    const { reference } = await user.built(lines.join("\n"));
    const inspected = await user.call("GET", `/api/oci/images/inspect?reference=${reference}`);
    expect(JSON.parse(inspected.body.config_json).config.OnBuild).toHaveLength(4);
    const files = [{ name: "in.txt", content: "in\n" }];
    const child = await user.built(
      `FROM ${reference} AS one\nRUN touch /own && echo $WHO >> /ran\nFROM one\nLABEL a=b`,
      files,
    );
    expect(await user.look(child.reference, "stat -c %a /copied; cat /copied /ran; echo $FROM_TRIGGER")).toBe(
      "600\nin\nnobody\nnobody\nyes\n",
    );
    const own = await user.call("GET", `/api/oci/images/inspect?reference=${child.reference}`);
    expect(JSON.parse(own.body.config_json).config.OnBuild).toBeUndefined();
    const staged = [
      `${BASE}ONBUILD RUN echo staged > /staged`,
      `FROM ${NAME} AS tools`,
      "RUN echo tool > /tool",
      "FROM 0-is-no-stage",
    ];
    expect((await user.build(staged.join("\n"))).body.error).toContain("base image");
    const between = [`FROM ${NAME} AS base`, "ONBUILD RUN echo staged > /staged", "FROM base", "RUN cat /staged"];
    expect(await shows(between, [], "cat /staged")).toBe("staged\n");
  });

  it("of an image is never carried out on this machine: not for a container, its files, a build or a function", async () => {
    const mark = `/var/tmp/hearth-onbuild-${process.pid}`;
    const lines = [`${BASE}ONBUILD COPY etc/hostname /leak`, `ONBUILD RUN touch ${mark}`];
    const { reference } = await user.built(lines.join("\n"));
    expect(await user.look(reference, "ls /leak")).toContain("No such file");
    const stopped = { name: "onbuild", image: reference, oci: true, entrypoint: [], command: ["true"] };
    expect((await user.call("POST", "/api/containers", stopped)).status).toBe(201);
    expect((await user.call("POST", "/api/containers/onbuild/stop?execution=sync")).status).toBe(200);
    const files = await user.call("GET", "/api/containers/onbuild/ls?path=/");
    expect([files.status, JSON.stringify(files.body).includes("leak")]).toEqual([200, false]);
    await user.call("DELETE", "/api/containers/onbuild");
    expect((await user.build(`FROM ${reference}`)).body.error).toContain("no such file: 'etc/hostname'");
    expect((await user.build(`${BASE}COPY --from=${reference} /leak /x`)).body.error).toContain("no such file: 'leak'");
    const of = { name: "onbuild", runtime: "shell", handler: "true", image: reference, oci: true };
    const started = await daemon.deploy(of).then(
      () => daemon.invoke("onbuild").then(JSON.stringify, String),
      (error: unknown) => String(error),
    );
    expect(started).toContain("has ONBUILD instructions");
    expect(existsSync(mark)).toBe(false);
  });

  it.each([
    ["ONBUILD ONBUILD RUN x", "must not have ONBUILD"],
    ["ONBUILD FROM x", "must not have FROM"],
    ["ONBUILD FROB x", "unknown instruction: FROB"],
    ["ONBUILD RUN --security=insecure x", "RUN --security=insecure is not supported"],
  ])("is refused with its line: %s", async (line, error) => {
    const { body } = await user.build(`${BASE}${line}`);
    expect(body).toMatchObject({ error_code: "INVALID_ARGUMENT", error: expect.stringMatching(`line 2: .*${error}`) });
  });
});

it("HEALTHCHECK has an interval for the start", async () => {
  const line = "HEALTHCHECK --interval=1m --start-period=30s --start-interval=2s --retries=4 CMD true";
  const { reference } = await user.built(`${BASE}${line}`);
  const { body } = await user.call("GET", `/api/oci/images/inspect?reference=${reference}`);
  expect(JSON.parse(body.config_json).config.Healthcheck).toMatchObject({
    StartInterval: 2e9,
    StartPeriod: 3e10,
    Retries: 4,
  });
});

describe("here-documents", () => {
  it("have names of any word, quoted in part, and several of them", async () => {
    const lines = [
      `${BASE}ARG WHO=you`,
      'COPY <<file.txt <<\'a-b.c\' <<"q d" <<-E"O"F /d/',
      "hello $WHO",
      "file.txt",
      "hello $WHO",
      "a-b.c",
      "x $WHO \\\\",
      "q d",
      "\t\tindented $WHO",
      "\tEOF",
      "RUN <<!END!",
      "echo $WHO > /said",
      "!END!",
      "RUN cat > /cat <<'E.O' && echo two >> /cat",
      "one $WHO",
      "E.O",
    ];
    expect(await shows(lines, [], 'cd /d; for f in *; do echo "[$f]"; cat "$f"; done; cat /said /cat')).toBe(
      "[EOF]\nindented $WHO\n[a-b.c]\nhello $WHO\n[file.txt]\nhello you\n[q d]\nx $WHO \\\\\nyou\none $WHO\ntwo\n",
    );
  });

  it("run with the interpreter that they name, as the step's user, and leave no file behind", async () => {
    const lines = [
      `${BASE}RUN <<EOT`,
      "#!/usr/bin/env python3",
      "import os, sys",
      "open('/said', 'w').write(f'python {len(sys.argv)} {os.getuid()}')",
      "EOT",
      "RUN mkdir -m 777 /w",
      "USER www-data",
      "RUN <<-run",
      "\t#!/bin/sh -e",
      "\techo $(id -un) $- > /w/who",
      "\tfalse",
      "\techo never > /w/never",
      "\trun",
    ];
    const { body } = await user.build(lines.join("\n"));
    expect(body.error).toContain("exit code 1");
    const good = lines.filter((line) => line !== "\tfalse" && !line.includes("never"));
    expect(
      await shows(
        good,
        [],
        "cat /said /w/who; find / -xdev -newer /said -not -path '/proc/*' -type f | grep -v -e ^/etc -e /w/who; ls -A /run/script",
      ),
    ).toMatch(/^python 1 0www-data e[a-z]*\nls: cannot access '\/run\/script'/);
  });
});

describe("a line", () => {
  it("goes on behind one escape character at its end, and not behind two", async () => {
    const lines = [
      `${BASE}RUN echo a\\\\`,
      "RUN echo one \\  ",
      "  two >> /said",
      "ENV A=b\\\\",
      'RUN echo "$A" >> /said',
    ];
    expect(await shows(lines, [], "cat /said; printenv A")).toBe("one two\nb\\\nb\\\n");
  });
});

it("leaves nothing", async () => {
  expect(await daemon.stop()).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
