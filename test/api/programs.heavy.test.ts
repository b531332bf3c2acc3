/**
 * Existing programs in containers of `prod`: each is installed by apt, through the container's own network, and does what its
 * users have it do. Downloads packages.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, KEY } from "../support/daemon.ts";

interface Program {
  readonly name: string;
  readonly packages: string;
  /** Shell lines; what they print on both streams matches `expected`. */
  readonly lines: string;
  readonly expected: string | RegExp;
}

/** A program that listens may take a while to. */
const RETRY = "--retry 40 --retry-delay 1 --retry-all-errors";
const USER = `id one >/dev/null 2>&1 || { useradd -m -s /bin/bash one; echo one:secret | chpasswd; }`;
const MEMORY_MB = 1_536;

const GROUPS: readonly (readonly Program[])[] = [
  [
    {
      name: "postgresql",
      packages: "postgresql",
      lines: `cd /; pg_ctlcluster 15 main start
su postgres -c "psql -Atqc 'create table t (n int); insert into t select generate_series(1, 1000); select sum(n) from t'"
pg_ctlcluster 15 main restart && su postgres -c "psql -Atqc 'select count(*) from t'"`,
      expected: "500500\n1000\n",
    },
    {
      name: "redis-server",
      packages: "redis-server",
      lines: `service redis-server start >/dev/null 2>&1
redis-cli -h localhost set key value; redis-cli -h ::1 get key; redis-cli save; service redis-server status`,
      expected: "OK\nvalue\nOK\nredis-server is running.\n",
    },
    {
      name: "sqlite3",
      packages: "sqlite3",
      lines: `sqlite3 /root/db "pragma journal_mode = wal; create table t (n); insert into t values (42); select n from t"`,
      expected: "wal\n42\n",
    },
  ],
  [
    {
      name: "openssh-server",
      packages: "openssh-server openssh-client",
      lines: `${USER}; mkdir -p /run/sshd; /usr/sbin/sshd
su one -c 'mkdir -pm 700 ~/.ssh; ssh-keygen -qt ed25519 -N "" -f ~/.ssh/id_ed25519; cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys'
su one -c 'ssh -qo StrictHostKeyChecking=no one@localhost id -un; ssh -qtto StrictHostKeyChecking=no one@127.0.0.1 tty'
su one -c 'cd; echo "get /etc/hostname copied" | sftp -qo StrictHostKeyChecking=no -b - one@localhost' >/dev/null; cat /home/one/copied`,
      expected: /^one\r?\n\/dev\/pts\/\d+\r?\nprograms-1\n$/,
    },
    {
      name: "sudo",
      packages: "sudo",
      lines: `${USER}; echo 'one ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/one
su one -c 'id -u; sudo id -u; sudo -u nobody id -un; sudo apt-get check -qq && echo checked'
su one -c 'echo secret | su one -c "id -un"' 2>/dev/null`,
      expected: "1000\n0\nnobody\nchecked\none\n",
    },
    {
      name: "cron",
      packages: "cron",
      lines: `${USER}; echo '* * * * * id -un > /home/one/ran' | su one -c 'crontab -'
echo '* * * * * root id -un > /root/ran' > /etc/cron.d/ran; cron
until [ -s /root/ran ] && [ -s /home/one/ran ]; do sleep 0.2; done; cat /root/ran /home/one/ran`,
      expected: "root\none\n",
    },
    {
      name: "nginx",
      packages: "nginx-light",
      lines: `rm -f /etc/nginx/sites-enabled/default; echo served > /var/www/html/file
printf 'server { listen localhost:80; listen [::1]:80; root /var/www/html; }' > /etc/nginx/conf.d/own.conf
service nginx start; curl -gs ${RETRY} http://127.0.0.1/file http://[::1]/file; service nginx reload; service nginx status`,
      expected:
        /^Starting nginx: nginx\.\nserved\nserved\nReloading nginx configuration: nginx\.\nnginx is running\.\n$/,
    },
  ],
  [
    {
      name: "git",
      packages: "git",
      lines: `git init -q --bare /srv/code.git; git daemon --base-path=/srv --export-all --enable=receive-pack --detach
git clone -q git://localhost/code.git code 2>/dev/null; cd code
git -c user.name=one -c user.email=one@localhost commit -qm first --allow-empty; git push -q origin HEAD:main
git ls-remote git://localhost/code.git | cut -f2`,
      expected: "refs/heads/main\n",
    },
    {
      name: "node",
      packages: "nodejs",
      lines: `/usr/bin/node -p 'v8.getHeapStatistics().heap_size_limit / 2 ** 20 < ${MEMORY_MB}'
/usr/bin/node -e 'require("http").createServer((q, a) => a.end("answered\\n")).listen(8080, "localhost", function () {
  require("http").get({ host: "localhost", port: 8080 }, (a) => a.pipe(process.stdout).on("unpipe", () => process.exit())) })'`,
      expected: "true\nanswered\n",
    },
    {
      name: "python3-venv with pip",
      packages: "python3-venv python3-pip",
      lines: `mkdir -p pack && cd pack && printf 'from setuptools import setup\\nsetup(name="own", version="1.2", py_modules=["own"])' > setup.py
echo 'VALUE = 42' > own.py; python3 -m venv /root/env
/root/env/bin/pip install -q --no-index --no-build-isolation . 2>&1 | grep -v -i -e deprecat -e wheel
cd /; /root/env/bin/python -c 'import own; print(own.__file__, own.VALUE)'`,
      expected: "/root/env/lib/python3.11/site-packages/own.py 42\n",
    },
  ],
  [
    {
      name: "openjdk",
      packages: "openjdk-17-jdk-headless",
      lines: `cat > Heap.java <<'END'
public class Heap { public static void main(String[] a) { System.out.println(Runtime.getRuntime().maxMemory() >> 20); } }
END
java Heap.java; java -XX:MaxRAMPercentage=50 Heap.java`,
      // A quarter of the limit by default. The collector keeps a part of it for itself.
      expected: /^3[678]\d\n7[4-6]\d\n$/,
    },
    {
      name: "chromium headless",
      packages: "chromium",
      lines: `echo '<p id=out></p><script>out.textContent = 6 * 7 + new Intl.NumberFormat("de").format(1.5)</script>' > page.html
chromium --headless=new --no-sandbox --disable-gpu --dump-dom file://$PWD/page.html 2>/dev/null | grep -o '<p.*</p>'`,
      expected: '<p id="out">421,5</p>\n',
    },
  ],
];

const daemon = new Daemon();
const containers = new ContainerUser(daemon);
/** apt with what it needs beyond the image. */
const APT =
  "apt libapt-pkg6.0 adduser passwd gpgv debian-archive-keyring libseccomp2 libxxhash0 libsemanage2 libsemanage-common libsepol2";
const SOURCES = ["debian bookworm", "debian bookworm-updates", "debian-security bookworm-security"]
  .map((source) => `deb http://deb.debian.org/${source} main`)
  .join("\n");
const state = { apt: Buffer.alloc(0) };

/** Puts apt into a container, whose image has none, and has it read the lists. */
async function prepare(id: string): Promise<void> {
  const sent = await fetch(`${daemon.url}/api/containers/${id}/archive?execution=sync&path=/var`, {
    method: "POST",
    headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
    body: new Uint8Array(state.apt),
  });
  expect(sent.status, await sent.text()).toBe(200);
  const done = await containers.shell(
    id,
    `dpkg -i /var/*.deb >/tmp/log 2>&1 && echo '${SOURCES}' > /etc/apt/sources.list && apt-get update -qq >>/tmp/log 2>&1 && echo ready || cat /tmp/log`,
    { timeout_ms: 200_000 },
  );
  expect(done).toMatch(/^ready$/m);
}

beforeAll(async () => {
  const folder = mkdtempSync("/var/tmp/hearth-apt-");
  const run = (command: string, ...args: string[]) => execFileSync(command, args, { cwd: folder, stdio: "ignore" });
  run("apt-get", "download", ...APT.split(" "));
  run("sh", "-c", "tar -cf apt.tar *.deb");
  state.apt = readFileSync(`${folder}/apt.tar`);
  rmSync(folder, { recursive: true });
  await daemon.start({ HEARTH_CELLS: "0" });
});
afterAll(async () => {
  await daemon.stop("SIGTERM");
  await daemon.dispose();
});

describe.each(
  GROUPS.map((programs, index) => ({ programs, index, names: programs.map(({ name }) => name).join(", ") })),
)("in a container with $names", ({ programs, index }) => {
  const own = { id: "" };

  beforeAll(async () => {
    own.id = (await containers.create({ name: `programs-${index}`, memory_limit_mb: MEMORY_MB })).container_id;
    await prepare(own.id);
  });
  afterAll(() => containers.delete(own.id));

  it.each(programs)(
    "$name is installed by apt and works",
    async ({ packages, lines, expected }) => {
      const install = `DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends ${packages} >/tmp/log 2>&1 || cat /tmp/log`;
      expect(await containers.shell(own.id, install, { timeout_ms: 280_000 })).toBe("");
      const out = await containers.shell(own.id, `cd /root; ${lines}`, { timeout_ms: 120_000 });
      if (typeof expected === "string") expect(out).toBe(expected);
      else expect(out).toMatch(expected);
    },
    420_000,
  );
});
