/** Builds through the real API: files, commands, settings and layers of the result, the cache, the log, and attacks. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { tarHeader, tarPadding } from "../../src/engine/files/tar.ts";
import { BuildUser } from "../support/builds.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { archive, ENTRY } from "../support/file-helper.ts";
import { MadeImages, pullLocal } from "../support/made-images.ts";
import { makeCertificate } from "../support/registry.ts";

const NAME = `localhost/hearth-test-build-${process.pid}`;
const made = new MadeImages(NAME);
const daemon = new Daemon();
const user = new BuildUser(daemon);
const PROXY = "http://proxy.test:3128";
const BASE = `FROM ${NAME}\n`;

const SLEEP = `sleep 1000.${process.pid}`;
const running = (command: string) =>
  execFileSync("ps", ["-eo", "args"])
    .toString()
    .split("\n")
    .filter((line) => line === command).length;

const tenant = async (name: string, limits?: object): Promise<BuildUser> => (await user.tenant(name, limits)).as;

beforeAll(async () => {
  made.make("base");
  await daemon.start({ HEARTH_CELLS: "0", HEARTH_BUILD_PROXY: PROXY });
  await pullLocal(daemon, NAME);
});

afterAll(async () => {
  await daemon.dispose();
  made.remove();
});

describe("a build", () => {
  it("runs commands and copies files, and its result runs", async () => {
    const files = [
      { name: "src/a.txt", content: "A\n", mode: 0o640 },
      { name: "src/sub/b.txt", content: "B\n" },
      { name: "src/link", type: "symlink" as const, link: "a.txt" },
      { name: "src/same", type: "link" as const, link: "src/a.txt" },
      { name: "run.sh", content: "#!/bin/sh\necho run\n", mode: 0o755 },
    ];
    const source = [
      BASE,
      "ARG WHO=nobody",
      "ENV GREETING=hello",
      "WORKDIR /app",
      "COPY src/ files/",
      "COPY --chown=7:8 --chmod=0700 run.sh ./",
      "RUN echo $GREETING $WHO > said && rm /version && mkdir /etc/made && id -u > uid",
      "USER www-data",
      "RUN id -un > /tmp/user",
      'CMD ["./run.sh"]',
      "LABEL a=b",
    ].join("\n");
    const { reference, image_id, operation_id } = await user.built(source, files, { build_args: { WHO: "you" } });
    const script = [
      "cat said uid /tmp/user",
      "stat -c '%n %u:%g %a' files files/a.txt run.sh /etc/made",
      "readlink files/link; cat files/sub/b.txt; stat -c %h files/same; ls /version; pwd",
    ].join("; ");
    expect(await user.look(reference, script)).toBe(
      "hello you\n0\nwww-data\nfiles 0:0 755\nfiles/a.txt 0:0 640\nrun.sh 7:8 700\n/etc/made 0:0 755\na.txt\nB\n2\n/app\nls: cannot access '/version': No such file or directory\n",
    );
    const { body } = await user.call("GET", `/api/oci/images/inspect?reference=${reference}`);
    expect(body.image).toMatchObject({
      id: image_id,
      default_cmd: ["./run.sh"],
      working_dir: "/app",
      user_spec: "www-data",
    });
    expect(body.image.labels).toMatchObject({ a: "b", version: "base" });
    const config = JSON.parse(body.config_json);
    expect(config.history.filter((line: { empty_layer?: boolean }) => line.empty_layer !== true)).toHaveLength(
      config.rootfs.diff_ids.length,
    );
    const log = await user.log(operation_id);
    expect(log.filter(({ stream }) => stream === "step").map(({ text }) => text)).toContain(
      "step 6/11: COPY --chown=7:8 --chmod=0700 run.sh ./",
    );
  });
});

describe("the operator's proxy", () => {
  it("is in the variables of commands unless the build file sets them, and in no image", async () => {
    const commands = ["RUN echo $HTTPS_PROXY > /one", "ENV HTTPS_PROXY=http://own", "RUN echo $HTTPS_PROXY > /other"];
    const { reference } = await user.built([BASE, ...commands].join("\n"));
    expect(await user.look(reference, 'cat /one /other; echo "[$http_proxy]"')).toBe(`${PROXY}\nhttp://own\n[]\n`);
  });
});

describe("the history of a built image", () => {
  const MIB = 1024 * 1024;
  const historyOf = async (reference: string): Promise<{ created_by: string; size_bytes: number }[]> =>
    (await user.call("GET", `/api/oci/images/history?reference=${reference}`)).body.history;
  /** Bytes of the steps whose instruction begins so, in MiB without the rest. */
  const sizes = async (reference: string, steps: readonly string[]) => {
    const history = await historyOf(reference);
    return steps.map((step) => {
      const found = history.find(({ created_by }) => created_by.startsWith(step));
      return [step, Math.floor((found?.size_bytes ?? -1) / MIB)];
    });
  };

  it("shows the bytes of each step, also of steps of other stages and of steps that an earlier build kept", async () => {
    const begin = [
      `FROM ${NAME} AS first`,
      "ENV STAGE=first",
      "RUN head -c 3145728 /dev/urandom > /three",
      "WORKDIR /app",
      "COPY data /data",
      "FROM first",
      "RUN rm /three",
    ];
    const files = [{ name: "data", content: "x".repeat(5 * MIB) }];
    const last = "RUN head -c 2097152 /dev/urandom > /two";
    const wanted = [
      ["ENV STAGE", 0],
      ["RUN head -c 3145728", 3],
      ["WORKDIR", 0],
      ["COPY data", 5],
      ["RUN rm", 0],
      ["RUN head -c 2097152", 2],
      ["CMD", 0],
    ] as const;
    const names = wanted.map(([step]) => step);
    const built = await user.built([...begin, last, 'CMD ["true"]'].join("\n"), files);
    expect(await sizes(built.reference, names)).toEqual(wanted);
    // Its last two steps differ from those of the build before.
    const again = await user.built([...begin, last, "RUN head -c 7340032 /dev/urandom > /seven"].join("\n"), files);
    expect(await sizes(again.reference, [...names.slice(0, -1), "RUN head -c 7340032"])).toEqual([
      ...wanted.slice(0, -1),
      ["RUN head -c 7340032", 7],
    ]);
    // The steps of an image below keep their bytes in an image that is built on it.
    const above = await user.built(`FROM ${built.reference}\nRUN head -c 1048576 /dev/urandom > /one`);
    expect(await sizes(above.reference, [...names, "RUN head -c 1048576"])).toEqual([
      ...wanted,
      ["RUN head -c 1048576", 1],
    ]);
  });

  it("has no bytes for steps that change settings alone, and those of the layers for the base", async () => {
    const base = await historyOf(NAME);
    const built = await user.built(`${BASE}ENV A=b\nLABEL c=d`);
    const history = await historyOf(built.reference);
    expect(history.slice(0, base.length)).toEqual(base);
    expect(history.slice(base.length).map(({ size_bytes }) => size_bytes)).toEqual([0, 0]);
  });
});

const RANDOM = "RUN head -c 8 /dev/urandom | od -An -tx1 > /random";

describe("the cache of builds", () => {
  it("repeats no step, and no import of the same image", async () => {
    const source = `${BASE}${RANDOM}\nCOPY f /f\n`;
    const first = await user.built(source, [{ name: "f", content: "1" }]);
    const again = await user.built(source, [{ name: "f", content: "1" }]);
    expect(again).toMatchObject({ image_id: first.image_id, message: "image is the same as of an earlier build" });
    const changed = await user.built(source, [{ name: "f", content: "2" }]);
    const random = (reference: string) => user.look(reference, "cat /random /f");
    const [one, two] = [await random(first.reference), await random(changed.reference)];
    expect([one.slice(0, -1), one.at(-1), two.at(-1)]).toEqual([two.slice(0, -1), "1", "2"]);
    const fresh = await user.built(source, [{ name: "f", content: "1" }], { no_cache: true });
    expect(await random(fresh.reference)).not.toBe(one);
    const steps = (await user.log(changed.operation_id)).map(({ text }) => text);
    expect(steps).toEqual([`step 2/3: ${RANDOM} (cached)`, "step 3/3: COPY f /f"]);
  });

  it("is deleted by its tenant alone, and then repeats every step", async () => {
    expect((await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true })).status).toBe(200);
    const [own, other] = [await tenant("pruner"), await tenant("pruned-not")];
    const prune = async (as: BuildUser, body: object) =>
      (await as.call("POST", "/api/oci/images/prune", body)).body.build_cache_count;
    const file = `${BASE}RUN echo pruned > /pruned\n`;
    expect((await own.built(file)).message).toBe("image built");
    expect(await prune(other, { build_cache: true })).toBe(0);
    expect(await prune(own, { build_cache: true, older_than_seconds: 3_600 })).toBe(0);
    expect((await own.built(file)).message).toBe("image is the same as of an earlier build");
    // The step and the result.
    expect(await prune(own, { build_cache: true })).toBe(2);
    expect(await prune(own, { build_cache: true })).toBe(0);
    const again = await own.built(file);
    expect([again.message, (await own.log(again.operation_id)).map(({ text }) => text)]).toEqual([
      "image built",
      ["step 2/2: RUN echo pruned > /pruned"],
    ]);
    // A mount in use stays, and what the command writes into it.
    const mount = `${BASE}RUN --mount=type=cache,target=/c `;
    const nap = `sleep 3.${process.pid}`;
    const busy = await own.begin(`${mount}${nap}; echo kept > /c/x\n`);
    await eventually("the command runs", () => running(nap) === 1);
    await prune(own, { build_cache: true });
    expect((await own.operation(busy, 30)).status).toBe("succeeded");
    expect((await own.build(`${mount}cat /c/x; exit 3\n`)).body.error).toContain("kept");
    expect((await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: false })).status).toBe(200);
  });

  it("serves no other tenant, which reaches neither contexts nor secrets of the first", async () => {
    const other = await tenant("other");
    await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    const own = await user.built(`${BASE}${RANDOM}`);
    const theirs = await other.built(`${BASE}${RANDOM}`);
    expect(theirs.message).toBe("image built");
    expect(await other.look(theirs.reference, "cat /random")).not.toBe(await user.look(own.reference, "cat /random"));
    const context_id = await user.context(BASE);
    const body = { context_id, image_reference: "localhost/x:1" };
    expect((await other.call("POST", "/api/oci/images/build", body)).status).toBe(404);
    await user.call("PUT", "/api/secrets/mine", { value: "of the first" });
    expect((await other.build(BASE, [], { secrets: ["mine"] })).status).toBe(404);
  });
});

describe("stages and sources", () => {
  it("are those that the target needs: other stages, images, archives, patterns and texts", async () => {
    const files = [
      { name: ".dockerignore", content: "*.log\n!kept.log\nhidden\n" },
      { name: "a.log", content: "no" },
      { name: "kept.log", content: "yes" },
      { name: "hidden/x", content: "no" },
      { name: "one.txt", content: "1" },
      { name: "two.txt", content: "2" },
      { name: "tree.tgz", content: "" },
    ];
    const source = [
      `FROM ${NAME} AS tools`,
      "RUN mkdir -p /out/deep && echo built > /out/deep/file && chown 5:6 /out/deep/file && ln -s deep /out/link",
      `FROM ${NAME} AS never`,
      "RUN exit 3",
      "FROM scratch AS files",
      "COPY --from=tools /out /out",
      `COPY --from=${NAME} /version /v`,
      "COPY *.txt *.log /t/",
      "COPY . /all/",
      "COPY <<EOT /said",
      "hello",
      "EOT",
      `FROM ${NAME}`,
      "COPY --from=files / /look/",
    ].join("\n");
    const { reference, operation_id } = await user.built(source, files);
    const told = (await user.log(operation_id)).filter(({ stream }) => stream === "step").map(({ step }) => step);
    expect(told).toEqual([2, 4, 5, 6, 7, 8, 10]);
    const script =
      "cd /look; find . | LC_ALL=C sort | tr '\\n' ' '; cat out/link/file said v; stat -c %u:%g out/deep/file";
    expect(await user.look(reference, script)).toBe(
      "./all ./all/.dockerignore ./all/Dockerfile ./all/kept.log ./all/one.txt ./all/tree.tgz ./all/two.txt ".replace(
        "./all",
        ". ./all",
      ) +
        "./out ./out/deep ./out/deep/file ./out/link ./said ./t ./t/kept.log ./t/one.txt ./t/two.txt ./v built\nhello\nbase\n5:6\n",
    );
    const scratch = await user.built(source, files, { target_stage: "files" });
    const { body } = await user.call("GET", `/api/oci/images/inspect?reference=${scratch.reference}`);
    expect(JSON.parse(body.config_json).rootfs.diff_ids).toHaveLength(1);
  });

  it("unpack an archive that ADD names, and copy it otherwise", async () => {
    const packed = gzipSync(archive({ name: "in/file", content: "packed\n", uid: 3, gid: 4 }));
    const context = archive({ name: "Dockerfile", content: `${BASE}ADD t.tgz /u/\nCOPY t.tgz /c/\n` });
    const entry = tarHeader({ ...ENTRY, name: "t.tgz", size: packed.length });
    const content = Buffer.concat([entry, packed, tarPadding(packed.length), context]).toString("base64");
    const { context_id } = (await user.call("POST", "/api/build-contexts", { content })).body;
    const body = { context_id, image_reference: "localhost/added:1" };
    expect((await user.call("POST", "/api/oci/images/build?execution=sync", body)).status).toBe(200);
    expect(await user.look("localhost/added:1", "cat /u/in/file; stat -c %u:%g /u/in/file; ls /c")).toBe(
      "packed\n3:4\nt.tgz\n",
    );
  });

  it("need no accounts for root and for numbers", async () => {
    const lines = ["RUN rm /etc/passwd /etc/group", "USER root", "RUN id -u > /who", "USER 7:8", "RUN id -u; id -g"];
    const { operation_id } = await user.built(`${BASE}${lines.join("\n")}\n`);
    const log = await user.log(operation_id);
    expect(log.filter(({ stream }) => stream === "stdout").map(({ text }) => text)).toEqual(["7\n8\n"]);
  });

  it("become a plain layer: deletions, replaced directories, capabilities, no mount points", async () => {
    const lines = [
      "RUN rm -r /usr/share/doc && mkdir /usr/share/doc && echo 1 > /usr/share/doc/one",
      "RUN cp /bin/sh /x && python3 -c \"import os; os.setxattr('/x', 'user.a', b'v')\"",
      "RUN rm /version",
    ];
    const { reference } = await user.built(`${BASE}${lines.join("\n")}`);
    const script = "ls /usr/share/doc; python3 -c \"import os; print(os.listxattr('/x'))\"; ls /version";
    expect(await user.look(reference, script)).toBe(
      "one\n['user.a']\nls: cannot access '/version': No such file or directory\n",
    );
  });
});

describe("a build that cannot succeed", () => {
  it("fails with the step, the exit code and the last output, and leaves nothing behind", async () => {
    const { status, body } = await user.build(`${BASE}RUN echo before; echo why >&2; exit 3\n`);
    expect([status, body.error_code]).toEqual([400, "BUILD_FAILED"]);
    expect(body.error).toBe("step 2/2 (RUN echo before; echo why >&2; exit 3) failed: exit code 3\nbefore\nwhy");
    const own = (await user.build(`${BASE}RUN echo /run/hearth/icc.sock; exit 3`)).body.error;
    expect(own.split("\n").at(-1)).toBe("/run/hearth/icc.sock");
    expect(body.details).toMatchObject({ exit_code: 3, output: "before\nwhy" });
  });

  it.each([
    ["FROM nowhere.invalid/x", "BUILD_FAILED", "base image nowhere.invalid/x:latest"],
    ["FROM prod", "BUILD_FAILED", " (for the profile 'prod': profiles.hearth.internal/prod:latest)"],
    [`${BASE}COPY missing /x`, "INVALID_ARGUMENT", "build file, line 2: no such file: 'missing'"],
    [`${BASE}COPY --from=${NAME} /missing /x`, "BUILD_FAILED", "no such file: 'missing'"],
    [`${BASE}COPY --chown=nobody-such Dockerfile /x`, "BUILD_FAILED", "unknown name or number"],
    [`${BASE}USER nobody-such\nRUN true`, "BUILD_FAILED", "USER nobody-such: unknown name or number: 'nobody-such'"],
    [`${BASE}FROB`, "INVALID_ARGUMENT", "line 2: unknown instruction: FROB"],
    ["FROM scratch\nENV a=b", "INVALID_ARGUMENT", "the image would have no files"],
  ])("says why: case %#", async (source, code, text) => {
    const { body } = await user.build(source);
    expect([body.error_code, body.error]).toEqual([code, expect.stringContaining(text)]);
  });

  it("names the setting for authorities where a command refuses a certificate", async () => {
    const { cert, key } = makeCertificate();
    const script = `
      const https = require("node:https");
      const { readFileSync } = require("node:fs");
      const server = { cert: readFileSync("/cert.pem"), key: readFileSync("/key.pem") };
      https.createServer(server).listen(4443, () => {
        https.get("https://localhost:4443").on("error", ({ code }) => {
          console.error(code);
          process.exit(3);
        });
      });`;
    const files = [
      { name: "cert.pem", content: cert },
      { name: "key.pem", content: key },
      { name: "ask.cjs", content: script },
    ];
    const { body } = await user.build(`${BASE}COPY . /\nRUN node /ask.cjs\n`, files);
    expect(body.error).toMatch(/failed: exit code 3 \(.*HEARTH_BUILD_CA_FILES\)\n.*SELF_SIGNED_CERT/);
    expect(body.hint).toContain("HEARTH_BUILD_CA_FILES");
  });

  it("ends with all its processes when it is cancelled", async () => {
    const id = await user.begin(`${BASE}RUN ${SLEEP} & ${SLEEP}\n`);
    await eventually("the command runs", () => running(SLEEP) > 0);
    expect((await user.call("POST", `/api/operations/${id}/cancel`)).body.status).toBe("cancelled");
    await eventually("nothing runs", () => running(SLEEP) === 0);
  });
});

describe("mounts of a command", () => {
  it("keep a cache between builds, and secrets out of image, log and cache", async () => {
    const value = `secret-${"x".repeat(20)}-${process.pid}`;
    await user.call("PUT", "/api/secrets/token", { value });
    const lines = (n: number) => [
      `RUN --mount=type=cache,target=/c echo ${n} >> /c/list && cp /c/list /list`,
      "RUN --mount=type=tmpfs,target=/tmp/t touch /tmp/t/file && stat -f -c %T /tmp/t > /kind",
      "RUN --mount=type=secret,id=token --mount=type=secret,id=token,target=/root/.token --mount=type=secret,id=token,env=TOKEN \\",
      "  cat /run/secrets/token /root/.token; echo $TOKEN; wc -c < /root/.token > /length; stat -f -c %T /run/secrets >> /kind",
    ];
    await user.built(`${BASE}${lines(1).join("\n")}`, [], { secrets: ["token"] });
    const { reference, operation_id } = await user.built(`${BASE}${lines(2).join("\n")}`, [], { secrets: ["token"] });
    const script =
      "cat /list /length /kind; ls -d /c 2>&1 | grep -c cannot; ls -A /run/secrets /root; grep -rl secret-xxx /root /run /tmp /etc";
    const seen = await user.look(reference, script);
    expect(seen).toMatch(/^1\n2\n\d+\ntmpfs\ntmpfs\n1\n/);
    expect(seen).not.toContain(".token");
    expect(seen).toMatch(/\/run\/secrets:\n+$/);
    const log = (await user.log(operation_id)).map(({ text }) => text).join("");
    expect(log).toContain("***");
    expect(log).not.toContain("secret-xxx");
    const { body } = await user.call("GET", `/api/oci/images/inspect?reference=${reference}`);
    expect(JSON.stringify(body)).not.toContain("secret-xxx");
  });
});

describe("a hostile build", () => {
  it("reaches no file outside of its context and its root", async () => {
    const files = [
      { name: "out", type: "symlink" as const, link: "/etc/passwd" },
      { name: "up", type: "symlink" as const, link: "../../../../../../etc" },
      { name: "dir/abs", type: "symlink" as const, link: "/etc" },
    ];
    expect((await user.build(`${BASE}COPY out /x`, files)).body.error).toContain("no such file");
    expect((await user.build(`${BASE}COPY up/passwd /x`, files)).body.error).toContain("no such file");
    expect((await user.build(`${BASE}COPY ../../../etc/passwd /x`, files)).body.error).toContain("no such file");
    const lines = [
      "RUN rm -rf /target && ln -s ../../../../../../../../../../tmp /target && ln -s /etc /moved",
      "COPY dir/ /target/",
      "COPY Dockerfile /moved/written",
      "RUN readlink /target/abs; ls /tmp/abs /etc/written",
    ];
    const { reference } = await user.built(`${BASE}${lines.join("\n")}`, files);
    expect(await user.look(reference, "readlink /tmp/abs; ls -d /etc/written")).toBe("/etc\n/etc/written\n");
    expect(existsSync("/etc/written")).toBe(false);
  });

  it("mounts nothing over minit, and leaves no secret in a cache, whatever links its root and caches hold", async () => {
    await user.call("PUT", "/api/secrets/kept", { value: "kept-value-1234" });
    const fails = async (lines: readonly string[], secrets: readonly string[] = []) =>
      (await user.build(`${BASE}${lines.join("\n")}`, [], { secrets })).body.error;
    const refused = "must not be at or below /dev";
    expect(await fails(["RUN --mount=type=cache,id=evil,target=/dev true"])).toContain(refused);
    expect(await fails(["RUN --mount=type=cache,id=evil,target=//dev/./init true"])).toContain(refused);
    const linked = "where its symbolic links lead";
    expect(await fails(["RUN ln -s /dev /x", "RUN --mount=type=cache,id=evil,target=/x true"])).toContain(linked);
    expect(await fails(["RUN ln -s / /x", "RUN --mount=type=tmpfs,target=/x/proc true"])).toContain(linked);
    const cache = "RUN --mount=type=cache,id=evil,target=/c";
    await user.built(`${BASE}${cache} ln -sfn /dev /c/l`);
    expect(await fails([`${cache} --mount=type=cache,target=/c/l true`])).toContain("'/c/l' in '/c'");
    const secret = `${cache} --mount=type=secret,id=kept,target=/y/s true`;
    expect(await fails(["RUN ln -s /c /y", secret], ["kept"])).toContain("secret target is a symlink: /y");
    const look = "(ls -A /c; tr '\\0' '\\n' < /proc/1/cmdline | head -1) > /list";
    const { reference } = await user.built(`${BASE}${cache} ${look}`);
    expect(await user.look(reference, "cat /list")).toBe("l\n/dev/init\n");
  });

  it.each([
    ["/tmp", "/proc"],
    ["/run", "/dev"],
  ])("has no directory in memory of a read-only root where a link leads: %s to %s", async (place, to) => {
    const { reference } = await user.built(`${BASE}RUN mv ${place} /moved && ln -s ${to} ${place}`);
    const fields = { name: "led", image: reference, oci: true, entrypoint: [], command: ["sleep", "600"] };
    const { status, body } = await user.call("POST", "/api/containers", { ...fields, read_only_root: true });
    if (status === 201) await user.call("DELETE", `/api/containers/${body.container_id}`);
    expect({ status, error: body.error }).toEqual({
      status: 400,
      error: `mount target passes a symbolic link of the container: ${place}`,
    });
  });

  it("sees no process, device or service of the machine, and its excess ends the step alone", async () => {
    const port = new URL(daemon.url).port;
    const lines = [
      "RUN ls /proc | grep -c '^[0-9]*$' > /processes; (mount -t tmpfs x /mnt || unshare -U true || mknod /d b 8 0) 2> /dev/null; echo $? > /refused",
      `RUN for to in 127.0.0.1:${port} 169.254.169.254:80; do curl -s -m 2 http://$to/ > /dev/null; echo $?; done > /network`,
    ];
    const { reference } = await user.built(`${BASE}${lines.join("\n")}`);
    const [processes, refused, ...network] = (await user.look(reference, "cat /processes /refused /network"))
      .trim()
      .split("\n");
    expect(Number(processes)).toBeLessThan(10);
    expect(Number(refused)).not.toBe(0);
    expect(network.every((code) => code !== "0")).toBe(true);
  });
});

describe("files of the builds of a tenant", () => {
  const LIMITED = { disk_mb_max: 64, container_memory_mb_max: 256, image_mb_max: null, build_contexts_max: null };
  const FULL = /quota exceeded|no space left|exit code 1/i;
  const cached = (id: string, mib: number) =>
    `RUN --mount=type=cache,id=${id},target=/c head -c ${mib}M /dev/urandom > /c/f\n`;

  it("take no more than its disk together: one cache, a cache beside the root, several caches", async () => {
    const { as: small, tenant_id } = await user.tenant("cached", LIMITED);
    await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    const sources = [
      cached("one", 80),
      `RUN --mount=type=cache,id=two,target=/c head -c 40M /dev/urandom > /f && head -c 40M /dev/urandom > /c/f\n`,
      // In one command: none of them is evicted meanwhile.
      "RUN --mount=type=cache,id=three,target=/c --mount=type=cache,id=four,target=/d head -c 40M /dev/urandom > /c/f && head -c 40M /dev/urandom > /d/f\n",
    ];
    for (const source of sources) {
      // What the last one left is freed in the background.
      const room = `${BASE}RUN head -c 56M /dev/urandom > /f && rm /f\n`;
      await small.call("POST", "/api/oci/images/prune", { build_cache: true });
      await eventually("its disk is free", async () => (await small.build(room)).status === 200);
      await small.call("POST", "/api/oci/images/prune", { build_cache: true });
      expect((await small.build(`${BASE}${source}`)).body.error).toMatch(FULL);
    }
    expect((await user.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
  });

  it("take no more than its disk together in two builds at once, and as much again after them", async () => {
    const { as: small, tenant_id } = await user.tenant("twice", LIMITED);
    await user.call("PATCH", "/api/oci/images", { reference: NAME, is_shared: true });
    const first = await small.begin(`${BASE}RUN head -c 40M /dev/urandom > /f && sync && ${SLEEP}\n`);
    await eventually("the first has written", () => running(SLEEP) > 0);
    const source = `${BASE}RUN head -c 40M /dev/urandom > /g\n`;
    expect((await small.build(source)).body.error).toMatch(FULL);
    await small.call("POST", `/api/operations/${first}/cancel`);
    await eventually("nothing runs", () => running(SLEEP) === 0);
    await eventually("a build has the disk again", async () => (await small.build(source)).status === 200);
    expect((await user.call("DELETE", `/api/tenants/${tenant_id}?force=true`)).status).toBe(200);
  });
});

it("leaves nothing", async () => {
  expect(await daemon.stop()).toBe(0);
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
});
