/** What builds take from elsewhere, through the real API: mounts of commands and files of URLs, and attacks through them. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { crc32, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BuildUser } from "../support/builds.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { GitHost, git } from "../support/git-host.ts";
import { MadeImages, pullLocal } from "../support/made-images.ts";

const NAME = `localhost/hearth-test-sources-${process.pid}`;
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new BuildUser(daemon);
const BASE = `FROM ${NAME}\n`;

/** Paths that hosts were asked for: one that the operator lists, and one that is private as most of them. */
const asked: string[] = [];
const tar = gzipSync(archive({ name: "in/side", content: "unpacked" }));
const host = await listening((path): Said => {
  if (path.startsWith("/away")) return { status: 302, headers: { location: `${hidden.url}/secret` } };
  if (path.startsWith("/moved")) return { status: 302, headers: { location: "/files/a.txt" } };
  if (path === "/missing") return { status: 404, headers: {} };
  const headers = { "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT" };
  return { status: 200, headers, body: path.includes(".tar") ? tar : Buffer.from(`content of ${path}`) };
});
const hidden = await listening(() => ({ status: 200, headers: {}, body: Buffer.from("secret") }));
const repositories = await GitHost.open();

interface Said {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body?: Buffer;
}

async function listening(answer: (path: string) => Said): Promise<{ readonly server: Server; readonly url: string }> {
  const server = createServer((request, response) => {
    asked.push(request.url ?? "");
    const { status, headers, body } = answer(request.url ?? "");
    response.writeHead(status, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

beforeAll(async () => {
  made.make("base");
  await daemon.start({
    HEARTH_CELLS: "0",
    HEARTH_OUTGOING_ALLOWED: [host, repositories].map(({ url }) => new URL(url).host).join(),
  });
  await pullLocal(daemon, NAME);
});

afterAll(async () => {
  await daemon.dispose();
  for (const { server } of [host, hidden]) server.close();
  repositories.close();
  made.remove();
});

/** What a shell line prints in the image of a build file. */
const shows = async (lines: readonly string[], files: Parameters<BuildUser["built"]>[1], line: string) =>
  user.look((await user.built(lines.join("\n"), files)).reference, line);
const refusal = async (lines: readonly string[], files: Parameters<BuildUser["build"]>[1] = []) =>
  (await user.build(`${BASE}${lines.join("\n")}`, files)).body.error;

/** Process ids of a command on this machine. */
const pidsOf = (command: string): readonly number[] =>
  execFileSync("ps", ["-eo", "pid,args"])
    .toString()
    .split("\n")
    .filter((line) => line.trim().replace(/^\d+ /, "") === command)
    .map((line) => Number.parseInt(line.trim(), 10));

const FILES = [
  { name: "src/main", content: "main", mode: 0o640 },
  { name: "src/sub/deep", content: "deep" },
  { name: "src/left-out", content: "x" },
  { name: "one", content: "1" },
  { name: ".dockerignore", content: "src/left-out\nhidden\n" },
  { name: "hidden", content: "h" },
];

describe("a bind mount", () => {
  it("shows the context, a folder or a file of it, read-only, and leaves nothing in the image", async () => {
    const lines = [
      `${BASE}ARG DIR=src`,
      "WORKDIR /w",
      "RUN --mount=target=. cat src/sub/deep > /seen; ls -A >> /seen",
      "RUN --mount=type=bind,source=$DIR,target=/made/in \\",
      "    --mount=type=bind,src=one,dst=./file,ro \\",
      "    (ls -A /made/in; cat /made/in/main file; stat -c '%u:%g %a' /made/in/main) >> /seen",
      'RUN --mount="type=bind,target=/m" (touch /m/x || echo x > /m/one || mount -o remount,rw /m || umount /m) 2> /dev/null || echo refused >> /seen',
    ];
    const { reference } = await user.built(lines.join("\n"), FILES);
    expect(await user.look(reference, "cat /seen; ls -A /w; ls -d /made /m 2>&1")).toBe(
      "deep.dockerignore\nDockerfile\none\nsrc\nmain\nsub\nmain10:0 640\nrefused\n" +
        "ls: cannot access '/made': No such file or directory\nls: cannot access '/m': No such file or directory\n",
    );
  });

  it("is part of what the cache looks at, but for what .dockerignore leaves out", async () => {
    const lines = `${BASE}RUN --mount=target=/c cat /c/src/main > /seen`;
    const first = await user.built(lines, FILES);
    const changed = FILES.map((file) => (file.name === "hidden" ? { ...file, content: "other" } : file));
    expect((await user.built(lines, changed)).image_id).toBe(first.image_id);
    const other = FILES.map((file) => (file.name === "src/main" ? { ...file, content: "other" } : file));
    expect(await shows([lines], other, "cat /seen")).toBe("other");
  });

  it("shows files of a stage and of an image, also where a folder of the root is a link", async () => {
    const lines = [
      `FROM ${NAME} AS tools`,
      "RUN printf '#!/bin/sh\\necho ran' > /tool && chmod 755 /tool && mkdir -p /d && ln -s /tool /d/l && chown 7:8 /tool",
      `${BASE}RUN --mount=from=tools,source=/tool,target=/bin/tool tool > /seen; stat -c %u:%g /usr/bin/tool >> /seen`,
      "RUN --mount=from=0,source=d/l,target=/x/y /x/y >> /seen",
      `RUN --mount=from=${NAME},source=version,target=/v cat /v >> /seen`,
    ];
    expect(await shows(lines, [], "cat /seen; ls -d /bin/tool /x /v 2>&1 | grep -c cannot; readlink /bin")).toBe(
      "ran\n7:8\nran\nbase\n3\nusr/bin\n",
    );
  });

  it("discards what a command writes into it, of the stage, too", async () => {
    const lines = [
      `FROM ${NAME} AS one`,
      "RUN mkdir /d && echo old > /d/f",
      `${BASE}RUN --mount=from=one,source=/d,target=/d,rw echo new > /d/f && touch /d/g && cat /d/f > /seen`,
      "RUN --mount=target=/c,readwrite rm -r /c/src && echo gone >> /seen",
      "RUN --mount=target=/c ls /c/src >> /seen",
      "COPY --from=one /d /kept",
    ];
    expect(await shows(lines, FILES, "cat /seen /kept/f; ls /kept; ls -d /d 2>&1")).toBe(
      "new\ngone\nmain\nsub\nold\nf\nls: cannot access '/d': No such file or directory\n",
    );
  });

  it("keeps what a command puts in the way of its target, and its folders", async () => {
    const lines = [`${BASE}RUN mkdir /e`, "RUN --mount=target=/e/a/b touch /e/a/own", "RUN --mount=target=/e true"];
    expect(await shows(lines, [], "find /e")).toBe("/e\n/e/a\n/e/a/own\n");
  });

  it("leads nowhere out of its source and of the root", async () => {
    const files = [
      { name: "out", type: "symlink" as const, link: "/etc/passwd" },
      { name: "up", type: "symlink" as const, link: "../../../../../../etc" },
      { name: "d/l", type: "symlink" as const, link: "/version" },
    ];
    for (const source of ["out", "up/passwd", "../../../../etc/passwd", "d/l", "none", "hidden"]) {
      expect(await refusal([`RUN --mount=source=${source},target=/m true`], [...FILES, ...files])).toMatch(
        /no such file|not found/i,
      );
    }
    expect(await shows([`${BASE}RUN --mount=source=d,target=/m cat /m/l > /seen`], files, "cat /seen")).toBe("base\n");
    const stage = `FROM ${NAME} AS a\nRUN ln -s /proc/1/root /p && ln -s ../../../../root /r\n${BASE}`;
    for (const source of ["p/version", "r/.hearth"]) {
      const { body } = await user.build(`${stage}RUN --mount=from=a,source=${source},target=/m true`);
      expect(body.error).toMatch(/not found|no such file/i);
    }
  });

  it.each([
    ["/dev", "/x", "must not be at or below /dev, where its symbolic links lead: '/dev'"],
    ["/", "/x/proc/self", "must not be at or below /proc, where its symbolic links lead: '/proc/self'"],
    ["../../..", "/x/sys", "must not be at or below /sys"],
    ["/y", "/x", "passes too many symbolic links"],
    ["..", "/x", "must not be in the place of /"],
  ])("is not mounted where links to %s lead from %s", async (link, target, message) => {
    const links = `RUN ln -s ${link} /x && ln -s /x /y`;
    expect(await refusal([links, `RUN --mount=target=${target} true`])).toContain(message);
    expect(await refusal([links, `RUN --mount=type=cache,target=${target} true`])).toContain(message);
    expect(await refusal([links, `RUN --mount=type=tmpfs,target=${target} true`])).toContain(message);
  });

  it("is no file in the place of a folder, and no folder in that of a file", async () => {
    expect(await refusal(["RUN mkdir /d", "RUN --mount=source=one,target=/d true"], FILES)).toContain(
      "is a directory, and a file would be mounted there: '/d'",
    );
    expect(await refusal(["RUN --mount=target=/version true"], FILES)).toContain(
      "is a file, and a directory would be mounted there: '/version'",
    );
    const secret = ["RUN mkdir /c && ln -s /c /l", "RUN --mount=target=/l --mount=type=cache,target=/c/x true"];
    expect(await refusal(secret, FILES)).toContain("'/c/x' in '/c'");
  });
});

describe("a cache mount", () => {
  it("has owner, mode and first files that are asked for, as caches of their own, and none of its root's way", async () => {
    const lines = [
      `FROM ${NAME} AS seed`,
      "RUN mkdir -m 700 /seed && echo seeded > /seed/f && chown -R 5:6 /seed",
      `${BASE}USER www-data`,
      "RUN --mount=type=cache,id=k,target=/c,uid=33,gid=33,mode=0750 echo mine >> /c/f; stat -c '%u:%g %a' /c > /tmp/seen; cat /c/f >> /tmp/seen",
      "RUN --mount=type=cache,id=k,target=/c ls -A /c >> /tmp/seen; touch /c/x 2> /dev/null || echo root >> /tmp/seen",
      "USER root",
      "RUN --mount=type=cache,id=k,target=/c,from=seed,source=seed cat /c/f >> /tmp/seen; stat -c '%u:%g %a' /c >> /tmp/seen; echo more >> /c/f",
      "RUN --mount=type=cache,id=k,target=/d,from=seed,source=seed,ro cat /d/f >> /tmp/seen; touch /d/x 2> /dev/null || echo read-only >> /tmp/seen",
    ];
    expect(await shows(lines, [], "cat /tmp/seen; ls -d /c /d 2>&1 | grep -c cannot")).toBe(
      "33:33 750\nmine\nroot\nseeded\n5:6 700\nseeded\nmore\nread-only\n2\n",
    );
    expect(await refusal([`RUN --mount=type=cache,target=/c,from=${NAME},source=version true`])).toContain(
      "source of a cache mount is a file",
    );
  });

  it("of another tenant is another one, whatever it begins with", async () => {
    await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    const { as: other, tenant_id } = await user.tenant("caches");
    const mounts = ["", ",mode=755", `,from=${NAME},source=etc`, ",sharing=private"];
    const runs = mounts.map((more, i) => `RUN --mount=type=cache,id=both,target=/c${more} `.concat(`DO ${i}`));
    const write = runs.map((line) => line.replace("DO ", "touch /c/written-")).join("\n");
    const read = runs.map((line) => line.replace(/DO .*/, "ls -A /c | grep -c written- >> /seen || true")).join("\n");
    await user.built(`${BASE}${write}`);
    const { reference } = await other.built(`${BASE}${read}`);
    expect(await other.look(reference, "cat /seen")).toBe("0\n0\n0\n0\n");
    expect((await user.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
  });

  /** Begins a build whose command waits in a cache. Returns its operation, and what ends its wait. */
  async function waiting(sharing: string, seconds: number) {
    const sleep = `sleep ${seconds}.${process.pid}`;
    const mount = `--mount=type=cache,id=${sharing},target=/c,sharing=${sharing}`;
    const id = await user.begin(`${BASE}RUN ${mount} echo one >> /c/log; ${sleep}; echo end >> /c/log`);
    await eventually("the command runs", () => pidsOf(sleep).length > 0);
    const end = () => {
      for (const pid of pidsOf(sleep)) process.kill(pid);
    };
    return { id, mount, end };
  }
  const succeeded = async (id: string) => (await user.operation(id, 60)).status === "succeeded";

  it("that is locked has one command at a time; who is cancelled while it waits holds nothing up", async () => {
    const first = await waiting("locked", 2001);
    const command = `RUN ${first.mount} echo two >> /c/log; cp /c/log /seen`;
    const cancelled = await user.begin(`${BASE}${command}; echo cancelled >> /c/log`);
    const isAt = async (id: string) => (await user.operation(id)).message?.includes("step 2/2") === true;
    await eventually("the second is at its step", () => isAt(cancelled));
    expect((await user.call("POST", `/api/operations/${cancelled}/cancel`)).body.status).toBe("cancelled");
    const second = await user.begin(`${BASE}${command}`);
    await eventually("the third is at its step", () => isAt(second));
    first.end();
    await eventually("both end", async () => (await succeeded(first.id)) && (await succeeded(second)));
    const { result } = await user.operation(second);
    expect(await user.look(result.reference, "cat /seen")).toBe("one\nend\ntwo\n");
  });

  it("that is private has one command, too, and nobody waits: others get one of their own", async () => {
    const first = await waiting("private", 2002);
    const line = `RUN ${first.mount} echo two >> /c/log; cp /c/log /seen`;
    expect(await shows([`${BASE}${line}`], [], "cat /seen")).toBe("two\n");
    first.end();
    await eventually("the first ends", () => succeeded(first.id));
    expect(await shows([`${BASE}${line} # again`], [], "cat /seen")).toBe("one\nend\ntwo\n");
  });
});

describe("a directory in memory", () => {
  it("has the size that is asked for", async () => {
    const lines = [
      `${BASE}RUN --mount=type=tmpfs,target=/t,size=3m df -k --output=size /t | tail -1 > /seen; head -c 4M /dev/zero > /t/f || echo full >> /seen`,
      "RUN --mount=type=tmpfs,target=/t head -c 4M /dev/zero > /t/f && echo fits >> /seen",
    ];
    expect(await shows(lines, [], "cat /seen; ls -d /t 2>&1")).toMatch(/^\s*3072\nfull\nfits\nls: cannot access '\/t'/);
  });
});

it("has the proxies of the request in commands without ARG, in no key and not in the image", async () => {
  const lines = `${BASE}RUN echo "[$HTTP_PROXY$no_proxy]" > /seen`;
  const args = (proxy: string) => ({ build_args: { HTTP_PROXY: proxy, no_proxy: ",b" } });
  const { reference, image_id } = await user.built(lines, [], args("http://a"));
  expect(await user.look(reference, "cat /seen; printenv HTTP_PROXY no_proxy")).toBe("[http://a,b]\n");
  expect((await user.built(lines, [], args("http://other"))).image_id).toBe(image_id);
});

describe("ADD of a URL", () => {
  it("has name, mode, time and owner of the reference, and is unpacked only where that is asked for", async () => {
    const lines = [
      `${BASE}ARG PATH_OF=files/a.txt`,
      `ADD ${host.url}/$PATH_OF /d/`,
      `ADD --chown=7:8 --chmod=644 ${host.url}/moved /own/name`,
      `ADD ${host.url}/x.tar.gz /packed/`,
      `ADD --unpack=true ${host.url}/x.tar.gz /unpacked`,
      "ADD --unpack=false local.tar.gz /local/",
      `ADD one ${host.url}/b%20c?q=1 /two/`,
    ];
    const files = [...FILES, { name: "local.tar.gz", content: tar }];
    expect(
      await shows(
        lines,
        files,
        "cd /; stat -c '%n %u:%g %a %Y' d/a.txt own/name packed/*; cat d/a.txt own/name unpacked/in/side; ls local two; cat 'two/b c'",
      ),
    ).toBe(
      "d/a.txt 0:0 600 1445412480\nown/name 7:8 644 1445412480\npacked/x.tar.gz 0:0 600 1445412480\n" +
        "content of /files/a.txtcontent of /files/a.txtunpacked" +
        "local:\nlocal.tar.gz\n\ntwo:\nb c\none\ncontent of /b%20c?q=1",
    );
  });

  it("is fetched by each build, and not where its checksum tells that nothing changed", async () => {
    const count = (path: string) => asked.filter((one) => one === path).length;
    const plain = `${BASE}ADD ${host.url}/plain /plain`;
    const first = await user.built(plain);
    expect((await user.built(plain)).image_id).toBe(first.image_id);
    expect(count("/plain")).toBe(2);
    const digest = createHash("sha256").update("content of /sure").digest("hex");
    const sure = `${BASE}ADD --checksum=sha256:${digest.toUpperCase()} ${host.url}/sure /sure`;
    const second = await user.built(sure);
    expect((await user.built(sure)).image_id).toBe(second.image_id);
    expect(count("/sure")).toBe(1);
    const wrong = await refusal([`ADD --checksum=sha256:${"0".repeat(64)} ${host.url}/wrong /wrong`]);
    expect(wrong).toContain(`its checksum is sha256:`);
  });

  it("reaches no host that a tenant must not reach, by a redirect either, and fails for what is no file", async () => {
    const refused = "outgoing host not allowed: '127.0.0.1'";
    expect(await refusal([`ADD ${hidden.url}/secret /x`])).toContain(refused);
    expect(await refusal([`ADD ${host.url}/away /x`])).toContain(refused);
    expect(await refusal([`ADD ${daemon.url}/api/health /x`])).toContain(refused);
    expect(await refusal(["ADD http://169.254.169.254/latest/meta-data/x /x"])).toContain("not allowed");
    expect(await refusal([`ARG U=${hidden.url}/secret`, "ADD $U /x"])).toContain(refused);
    expect(await refusal([`ADD ${host.url}/missing /x`])).toContain("the host answered 404 (expected 200)");
    expect(asked).not.toContain("/secret");
    const { body } = await user.build(`${BASE}ADD ${host.url}/off /x`, [], { egress: "off" });
    expect(body.error).toContain('ADD of a URL needs the egress "on"');
    expect(asked).not.toContain("/off");
  });
});

describe("ADD of a git repository", () => {
  const folder = repositories.make("app");
  const url = `${repositories.url}/app.git`;
  const put = (name: string, content: string) => {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content, { mode: name === "run" ? 0o755 : 0o644 });
  };
  const commit = (): string => {
    git(folder, ["add", "-A"]);
    git(folder, ["commit", "--quiet", "-m", "x"]);
    return git(folder, ["rev-parse", "HEAD"]);
  };
  for (const name of ["run", "README.md", "docs/a.md", "docs/in/b.txt"]) put(name, `first ${name}\n`);
  symlinkSync("/etc/passwd", join(folder, "docs/link"));
  const first = commit();
  git(folder, ["tag", "-a", "-m", "t", "v1"]);
  const tag = git(folder, ["rev-parse", "v1"]);
  mkdirSync(join(folder, "other"));
  git(folder, ["update-index", "--add", "--cacheinfo", `160000,${first},other`]);
  put("README.md", "second\n");
  const second = commit();
  git(folder, ["branch", "v1.x", first]);

  it("takes the files of the default branch, a branch, a tag, a commit and a directory, with the flags of ADD", async () => {
    const lines = [
      `${BASE}ARG REF=v1`,
      `ADD ${url} /head`,
      `ADD ${url}#v1.x /branch/`,
      `ADD ${url}#$REF /tag`,
      `ADD ${url}#${first}:docs /commit`,
      `ADD --chown=7:8 --chmod=640 --exclude=**/*.md --link --keep-git-dir=false ${url}#:docs /own`,
      `ADD --checksum=${second.slice(0, 9)} ${repositories.url}/moved/app.git#refs/heads/main /sure`,
      `ADD --checksum=${tag} ${url}#v1 /sure-tag`,
    ];
    const { reference, operation_id } = await user.built(lines.join("\n"));
    expect(
      await user.look(
        reference,
        "cd /; head -n 1 head/README.md branch/README.md tag/README.md sure/README.md sure-tag/README.md; stat -c '%n %u:%g %a %Y' head/run head/README.md own/in/b.txt; " +
          "ls -A head commit own; ls head/other | wc -l; readlink commit/link",
      ),
    ).toBe(
      "==> head/README.md <==\nsecond\n\n==> branch/README.md <==\nfirst README.md\n\n==> tag/README.md <==\nfirst README.md\n\n" +
        "==> sure/README.md <==\nsecond\n\n==> sure-tag/README.md <==\nfirst README.md\n" +
        "head/run 0:0 755 1445412480\nhead/README.md 0:0 644 1445412480\nown/in/b.txt 7:8 640 1445412480\n" +
        "commit:\na.md\nin\nlink\n\nhead:\nREADME.md\ndocs\nother\nrun\n\nown:\nin\nlink\n0\n/etc/passwd\n",
    );
    const log = (await user.log(operation_id)).map(({ text }) => text).join("");
    expect(log).toContain("submodules left out, which stay empty directories: 1 (other)");
  });

  it("is fetched when its commit is another one, and asked for nothing where the commit is named", async () => {
    const count = () => repositories.asked.filter((one) => one.startsWith("POST")).length;
    const lines = `${BASE}ADD ${url}#main /x`;
    const { image_id } = await user.built(lines);
    let before = count();
    expect((await user.built(lines)).image_id).toBe(image_id);
    expect(count() - before).toBe(1);
    put("README.md", "third\n");
    const third = commit();
    expect(await shows([lines], [], "cat /x/README.md")).toBe("third\n");
    const sure = `${BASE}ADD --checksum=${third} ${url} /x`;
    const known = await user.built(sure);
    before = repositories.asked.length;
    expect((await user.built(sure)).image_id).toBe(known.image_id);
    expect(repositories.asked.length).toBe(before);
  });

  it("fails for what is not there, and reaches no host that a tenant must not reach", async () => {
    expect(await refusal([`ADD ${url}#none /x`])).toContain("the repository has no branch or tag 'none'");
    expect(await refusal([`ADD ${url}#${first.slice(0, 7)} /x`])).toContain("named by all its 40 digits");
    expect(await refusal([`ADD ${url}#${"a".repeat(40)} /x`])).toMatch(/the host answered: .*not our ref/);
    expect(await refusal([`ADD ${url}#v1:none /x`])).toContain("the commit has no directory 'none'");
    expect(await refusal([`ADD ${url}#v1:docs/link /x`])).toContain("the commit has no directory 'docs/link'");
    expect(await refusal([`ADD --checksum=${second} ${url}#v1 /x`])).toContain(
      `its commit is ${first} (expected ${second})`,
    );
    expect(await refusal([`ADD ${repositories.url}/none.git /x`])).toContain("the host answered 404 (expected 200)");
    expect(await refusal([`ADD ${host.url}/files/x.git /x`])).toContain("did not answer in git's protocol");
    const before = asked.length;
    expect(await refusal([`ADD ${hidden.url}/app.git /x`])).toContain("outgoing host not allowed: '127.0.0.1'");
    expect(await refusal([`ADD ${host.url}/away/app.git /x`])).toContain("outgoing host not allowed: '127.0.0.1'");
    expect(asked.slice(before).some((path) => path.startsWith("/secret"))).toBe(false);
    const { body } = await user.build(`${BASE}ADD ${url} /x`, [], { egress: "off" });
    expect(body.error).toContain('ADD of a URL needs the egress "on"');
  });
});

describe("ADD of an archive in bzip2 or xz", () => {
  const plain = archive(
    { name: "in/side", content: "unpacked" },
    { name: "in/zeros", content: Buffer.alloc(3_000_000) },
  );
  const packed = (how: string, bytes: Buffer) =>
    execFileSync(
      "/usr/bin/python3",
      ["-c", `import sys, bz2, lzma; sys.stdout.buffer.write(${how}(sys.stdin.buffer.read()))`],
      {
        ...{ input: bytes, maxBuffer: 64 * 1024 * 1024 },
      },
    );
  const [bzip2, xz] = [packed("bz2.compress", plain), packed("lzma.compress", plain)];

  it("unpacks it, of several streams and with zeros between, too, and copies what is no tar", async () => {
    const halves = (how: string) => [plain.subarray(0, 1_000), plain.subarray(1_000)].map((half) => packed(how, half));
    const contents = {
      "a.tar.bz2": bzip2,
      "b.tar.xz": xz,
      "c.tbz": Buffer.concat(halves("bz2.compress")),
      "d.txz": Buffer.concat(halves("lzma.compress").flatMap((half) => [half, Buffer.alloc(8)])),
      "e.tar.xz": packed("(lambda b: lzma.compress(b, check=lzma.CHECK_SHA256))", plain),
      "f.txt.xz": packed("lzma.compress", Buffer.alloc(2_000)),
      "g.bz2": packed("bz2.compress", Buffer.from("text")),
      "h.cut.bz2": bzip2.subarray(0, 20),
    };
    const files = Object.entries(contents).map(([name, content]) => ({ name, content }));
    const lines = [`FROM ${NAME}`, ...files.map(({ name }) => `ADD ${name} /${name[0]}/`)];
    const line = "cd /; cat [a-e]/in/side; stat -c '%n %s %u' [a-e]/in/zeros | sort -u; ls f g h";
    expect(await shows(lines, files, line)).toBe(
      `${"unpacked".repeat(5)}${[..."abcde"].map((name) => `${name}/in/zeros 3000000 0\n`).join("")}` +
        "f:\nf.txt.xz\n\ng:\ng.bz2\n\nh:\nh.cut.bz2\n",
    );
  });

  it("refuses what is damaged, cut or has something behind it, and what is larger than the disk or the memory", async () => {
    const damaged = Buffer.concat([packed("lzma.compress", plain.subarray(0, 1_000)), xz.with(30, 0x55)]);
    for (const [name, content] of [
      ["a.xz", xz.subarray(0, -8)],
      ["b.bz2", bzip2.subarray(0, -4)],
      ["c.xz", Buffer.concat([xz, xz.subarray(9)])],
      ["d.bz2", Buffer.concat([bzip2, xz])],
      ["e.xz", damaged],
    ] as const) {
      const message = await refusal([`ADD ${name} /x`], [{ name, content: Buffer.from(content) }]);
      expect(message).toMatch(/ADD cannot unpack \w+ data: corrupt or truncated data, or data behind their end/);
    }
    // The header of its block asks for a dictionary of 3 GiB.
    const bytes = Buffer.from(xz);
    const header = bytes.subarray(12, 12 + ((bytes[12] ?? 0) + 1) * 4);
    header[4] = 39;
    header.writeUInt32LE(crc32(header.subarray(0, -4)), header.length - 4);
    expect(await refusal(["ADD m.xz /x"], [{ name: "m.xz", content: bytes }])).toContain(
      "more memory than the build has",
    );
  });

  it("ends a bomb at the disk of the build", async () => {
    const { as: small, tenant_id } = await user.tenant("small", { disk_mb_max: 512 });
    await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    const bomb = packed("(lambda b: bz2.compress(b + bytes(700 << 20)))", plain.subarray(0, 512));
    expect(bomb.length).toBeLessThan(10_000);
    const { body } = await small.build(`${BASE}ADD bomb.bz2 /x`, [{ name: "bomb.bz2", content: bomb }]);
    expect(body.error).toContain("what is in them does not fit on the disk of the build");
    expect((await user.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
  });
});

it("leaves nothing", async () => {
  expect(await daemon.stop()).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
