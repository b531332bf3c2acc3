/** `hearth deploy --build` against a real daemon, with dependencies of this machine alone. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Tree, writeTree } from "../support/code.ts";
import { operatorOf } from "../support/command.ts";
import { Daemon, eventually } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { makeCertificate } from "../support/registry.ts";
import { zip } from "../support/zip.ts";

const daemon = new Daemon();
const operator = operatorOf(daemon);
const { shell, hearth, out, answer } = operator;

const certificate = makeCertificate();
const settings = mkdtempSync(join(tmpdir(), "hearth-trust-"));
const PROXY = "http://proxy.test:3128";

beforeAll(async () => {
  writeFileSync(join(settings, "ca.pem"), certificate.cert);
  await daemon.start({
    HEARTH_CELLS: "2",
    HEARTH_BUILD_CA_FILES: join(settings, "ca.pem"),
    HEARTH_BUILD_PROXY: PROXY,
    HEARTH_BUILD_NO_PROXY: "localhost",
  });
});
afterAll(async () => {
  operator.dispose();
  rmSync(settings, { recursive: true });
  await daemon.dispose();
});

const folder = (name: string, files: Tree) => writeTree(join(shell().home, name), files);

const toml = (name: string, runtime: string, handler: string, build = 'egress = "off"') =>
  `function = "${name}"\nruntime = "${runtime}"\nhandler = "${handler}"\n[build]\n${build}\n`;

/** A package of Python, the module `dep`. */
const WHEEL = (() => {
  const info = "dep-1.0.dist-info";
  const wheel = {
    "dep.py": "ANSWER = 42\n",
    [`${info}/METADATA`]: "Metadata-Version: 2.1\nName: dep\nVersion: 1.0\n",
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    [`${info}/RECORD`]: `dep.py,,\n${info}/METADATA,,\n${info}/WHEEL,,\n${info}/RECORD,,\n`,
  };
  return zip(...Object.entries(wheel).map(([name, content]) => ({ name, content })));
})();

const containers = async () => (await answer("ps", "-a")).containers.length;

describe("hearth deploy --build", () => {
  it("installs what package.json names, in a container, and leaves the folder as it was", async () => {
    folder("node", {
      "hearth.toml": toml("node", "nodejs", "index.mjs#handler"),
      "package.json": '{"private":true,"dependencies":{"dep":"file:./dep"}}',
      "dep/package.json": '{"name":"dep","version":"1.0.0","type":"module","exports":"./index.js"}',
      "dep/index.js": "export const answer = 42;\n",
      "index.mjs": 'import { answer } from "dep";\nexport const handler = () => answer;\n',
    });
    const before = readdirSync(join(shell().home, "node"));
    const built = await hearth("deploy", "node", "--build");
    expect(built).toMatchObject({ code: 0, out: "node is active, version 1 (created)\n" });
    expect(built.err).toMatch(/^\$ npm install\n[\s\S]*added 1 package/);
    expect(await out("invoke", "node")).toBe("42\n");
    expect(readdirSync(join(shell().home, "node"))).toEqual(before);
    expect(await containers()).toBe(0);
    const packages = {
      "": { dependencies: { dep: "file:./dep" } },
      dep: { version: "1.0.0" },
      "node_modules/dep": { resolved: "dep", link: true },
    };
    folder("node", { "package-lock.json": JSON.stringify({ lockfileVersion: 3, requires: true, packages }) });
    expect((await hearth("deploy", "node", "--build")).err).toMatch(/^\$ npm ci\n[\s\S]*added 1 package/);
    expect(await out("invoke", "node")).toBe("42\n");
  });

  it("installs what requirements.txt names", async () => {
    folder("python", {
      "hearth.toml": toml("python", "python", "main.py:handler"),
      "requirements.txt": "./dep-1.0-py3-none-any.whl\n",
      "dep-1.0-py3-none-any.whl": WHEEL,
      "main.py": "import dep\ndef handler(payload, context):\n    return dep.ANSWER\n",
    });
    const built = await hearth("deploy", "python", "--build");
    expect(built, built.err).toMatchObject({ code: 0 });
    expect(await out("invoke", "python")).toBe("42\n");
  });

  it("installs both for a program of the runtime custom, which needs no [build]", async () => {
    const python = [
      "import os, subprocess, http.server, dep",
      "class Handler(http.server.BaseHTTPRequestHandler):",
      "  def do_POST(self):",
      "    said = subprocess.check_output(['node', 'say.mjs'])",
      "    self.send_response(200); self.end_headers(); self.wfile.write(b'%d %s' % (dep.ANSWER, said))",
      "http.server.HTTPServer(('', int(os.environ['PORT'])), Handler).serve_forever()",
    ];
    folder("program", {
      "hearth.toml": 'function = "program"\nruntime = "custom"\nhandler = "python3 server.py"\n',
      "requirements.txt": "./dep-1.0-py3-none-any.whl\n",
      "dep-1.0-py3-none-any.whl": WHEEL,
      "package.json": '{"private":true,"dependencies":{"jsdep":"file:./jsdep"}}',
      "jsdep/package.json": '{"name":"jsdep","version":"1.0.0","type":"module","exports":"./index.js"}',
      "jsdep/index.js": 'export const word = "yes";\n',
      "say.mjs": 'import { word } from "jsdep";\nprocess.stdout.write(word);\n',
      "server.py": python.join("\n"),
    });
    const built = await hearth("deploy", "program", "--build");
    expect(built, built.err).toMatchObject({ code: 0 });
    expect(built.err).toMatch(/^\$ npm install && pip install -r requirements\.txt -t \.\n/);
    expect(await out("invoke", "program")).toContain("42 yes");
  });

  it("runs the command of [build], and deploys nothing if that fails", async () => {
    const index = "export { handler } from './made.mjs';\n";
    const make = `command = "echo 'export const handler = () => 1' > made.mjs"`;
    folder("own", { "hearth.toml": toml("own", "nodejs", "index.mjs#handler", make), "index.mjs": index });
    expect(await hearth("deploy", "own", "--build")).toMatchObject({ code: 0 });
    expect(await out("invoke", "own")).toBe("1\n");
    const fail = 'command = "echo broken; exit 3"';
    folder("own", { "hearth.toml": toml("own", "nodejs", "index.mjs#handler", fail) });
    const failed = await hearth("deploy", "own", "--build");
    expect(failed).toMatchObject({ code: 1, out: "" });
    expect(failed.err).toMatch(/broken\n.*build of own failed: exited with 3\n/);
    expect(await answer("get", "own")).toMatchObject({ version: 1 });
    folder("none", { "hearth.toml": 'function = "none"\nhandler = "cat"\n' });
    expect(await hearth("deploy", "none", "--build")).toMatchObject({
      code: 2,
      err: expect.stringContaining("nothing to build"),
    });
    expect(await containers()).toBe(0);
  });

  it("trusts the operator's certificates and uses the proxy in builds, and elsewhere on request", async () => {
    const registry = `
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
const [cert, key] = ["cert.pem", "key.pem"].map((file) => readFileSync(file));
const base = "https://localhost:4873";
const dist = { tarball: base + "/npm-dep.tgz" };
const answers = {
  "/npm-dep": JSON.stringify({ name: "npm-dep", "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": { name: "npm-dep", version: "1.0.0", dist } } }),
  "/npm-dep.tgz": readFileSync("npm-dep.tgz"),
  "/simple/dep/": '<a href="/dep-1.0-py3-none-any.whl">dep-1.0-py3-none-any.whl</a>',
  "/dep-1.0-py3-none-any.whl": readFileSync("dep-1.0-py3-none-any.whl"),
};
createServer({ cert, key }, ({ url }, response) => {
  const type = url.startsWith("/simple") ? "text/html" : "application/json";
  response.writeHead(url in answers ? 200 : 404, { "content-type": type }).end(answers[url]);
}).listen(4873, () => writeFileSync("/tmp/ready", ""));
`;
    const tarball = archive(
      {
        name: "package/package.json",
        content: '{"name":"npm-dep","version":"1.0.0","type":"module","exports":"./index.js"}',
      },
      { name: "package/index.js", content: 'export const word = "trusted";\n' },
    );
    const steps = [
      "node registry.mjs & while [ ! -e /tmp/ready ]; do sleep 0.1; done",
      "! env -u NODE_EXTRA_CA_CERTS npm_config_fetch_retries=0 npm view npm-dep --registry https://localhost:4873 2> refused.txt || exit 9",
      "npm install npm-dep --registry https://localhost:4873 || exit 8",
      "pip install dep -t site-packages --index-url https://localhost:4873/simple || exit 7",
      "curl -sf https://localhost:4873/npm-dep > curl.txt || exit 6",
      "echo $HTTP_PROXY $https_proxy $NO_PROXY > proxy.txt; rm *.pem",
    ];
    folder("trust", {
      "hearth.toml": `${toml("trust", "nodejs", "index.mjs#handler")}command = """${steps.join("\n")}"""\n`,
      "package.json": '{"private":true}',
      "registry.mjs": registry,
      "npm-dep.tgz": gzipSync(tarball),
      "dep-1.0-py3-none-any.whl": WHEEL,
      "cert.pem": certificate.cert,
      "key.pem": certificate.key,
      "index.mjs":
        'import { readFileSync } from "node:fs";\nimport { word } from "npm-dep";\nconst read = (name) => readFileSync(new URL(name, import.meta.url), "utf8");\nexport const handler = () => ({ word, refused: read("refused.txt"), proxy: read("proxy.txt"), python: read("site-packages/dep.py"), by_itself: process.env.HTTPS_PROXY ?? null });\n',
    });
    const built = await hearth("deploy", "trust", "--build");
    expect(built, built.err).toMatchObject({ code: 0 });
    const seen = JSON.parse(await out("invoke", "trust"));
    expect(seen).toMatchObject({ word: "trusted", python: "ANSWER = 42\n", by_itself: null });
    expect(seen.refused).toMatch(/SELF_SIGNED_CERT/);
    // Where such a refusal ends the build, it is told what gives builds an authority.
    const refused = `${steps[0]}\nenv -u NODE_EXTRA_CA_CERTS npm_config_fetch_retries=0 npm install npm-dep --registry https://localhost:4873`;
    folder("trust", { "hearth.toml": `${toml("trust", "nodejs", "index.mjs#handler")}command = """${refused}"""\n` });
    const failed = await hearth("deploy", "trust", "--build");
    expect(failed).toMatchObject({
      code: 1,
      err: expect.stringMatching(/exited with 1\n {2}.*HEARTH_BUILD_CA_FILES\n$/),
    });
    expect(seen.proxy).toBe(`${PROXY} ${PROXY} localhost\n`);
    // Others see the files, and take them only where they ask.
    const look =
      'echo "[$HTTPS_PROXY]"; . /dev/hearth/environment; echo "$HTTPS_PROXY $SSL_CERT_FILE"; grep -c BEGIN "$SSL_CERT_FILE"; echo x 2>&1 > /dev/hearth/ca.pem | grep -o "Read-only.*"';
    const lines = [/^\[\]$/, new RegExp(`^${PROXY} /dev/hearth/ca\\.pem$`), /^[1-9]\d+$/, /^Read-only file system$/];
    await out("create", "asks", "--handler", look);
    await out("deploy", "asks");
    await out("run", "-d", "--name", "asks-too");
    for (const told of [await out("invoke", "asks"), await out("exec", "asks-too", "--", "sh", "-c", look)]) {
      const found = told.replaceAll("\r", "").trimEnd().split("\n");
      expect(found).toEqual(lines.map((line) => expect.stringMatching(line)));
    }
    await out("rm", "-f", "asks-too");
  });

  it("removes its container on Ctrl-C, and limits its life for the case that it is killed", async () => {
    const sleep = 'command = "echo begun; sleep 1000"';
    folder("stop", { "hearth.toml": toml("stop", "nodejs", "index.mjs#handler", sleep), "index.mjs": "" });
    for (const signal of ["SIGINT", "SIGKILL"] as const) {
      const running = shell().start("hearth", ["deploy", "stop", "--build"]);
      await eventually("the build runs", () => /^begun$/m.test(running.err));
      const [found] = (await answer("ps")).containers;
      expect(found).toMatchObject({ ttl_seconds: 3_600, labels: { "hearth.build": "stop" } });
      running.child.kill(signal);
      expect((await running.ended).code).toBe(signal === "SIGINT" ? 130 : null);
      expect(await containers()).toBe(signal === "SIGINT" ? 0 : 1);
    }
    const [left] = (await answer("ps")).containers;
    await out("rm", "-f", left.name);
  });
});
