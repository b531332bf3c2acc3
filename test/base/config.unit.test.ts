/** Settings: defaults, the two ways to give them, and what a wrong one is told. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { buildsOf, ownPorts, readConfig } from "../../src/base/config.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { makeCertificate } from "../support/registry.ts";

describe("the configuration", () => {
  it.each([{}, { HEARTH_DATA_DIR: "", HEARTH_LISTEN: "" }])(
    "needs nothing, and takes an empty variable for none",
    (environment) => {
      expect(readConfig(environment, [])).toMatchObject({
        listen_host: "127.0.0.1",
        listen_port: 8700,
        data_dir: "/var/lib/hearth",
        image_dir: "/var/lib/hearth/images",
        subnet: "10.42.0.0/16",
        bridge: "hearth0",
        oci_runtime: "auto",
        bootstrap_key: null,
      });
    },
  );

  it("takes each setting from its variable, and a flag over it", () => {
    const environment = { HEARTH_LISTEN: "0.0.0.0:1", HEARTH_BRIDGE: "b1" };
    expect(readConfig(environment, ["--bridge", "b2", "--cells=3"])).toMatchObject({
      listen_host: "0.0.0.0",
      listen_port: 1,
      bridge: "b2",
      cells_target: 3,
    });
    expect(readConfig({ HEARTH_LISTEN: "[::1]:80" }, []).listen_host).toBe("::1");
  });

  it("has builds as its memory allows, and as few as a setting says", () => {
    expect([1_000, 4_096, 8_191, 12_288, 1_000_000].map(buildsOf)).toEqual([1, 1, 1, 3, 4]);
    expect([0, 4].map((count) => readConfig({ HEARTH_BUILDS: String(count) }, []).builds_max)).toEqual([0, 4]);
    expect(() => readConfig({ HEARTH_BUILDS: "5" }, [])).toThrow("HEARTH_BUILDS");
  });

  it("reads where to send spans and how many", () => {
    const read = (url: string, part: string) => {
      const config = readConfig({ HEARTH_OTLP_URL: url, HEARTH_TRACE_SAMPLE: part }, []);
      return [config.otlp_url, config.trace_sample_ratio];
    };
    expect(read("", "")).toEqual([null, 1]);
    expect(read("http://127.0.0.1:4318/", "0.25")).toEqual(["http://127.0.0.1:4318", 0.25]);
    expect(read("https://collector/otlp", ".5")).toEqual(["https://collector/otlp", 0.5]);
    expect(read("", "0")).toEqual([null, 0]);
  });

  it("reads the hosts that the daemon may call", () => {
    const read = (hosts: string) => readConfig({ HEARTH_OUTGOING_ALLOWED: hosts }, []).outgoing_allowed;
    expect(read("")).toEqual([]);
    expect(read("127.0.0.1:80, Host.test,[::1]:443")).toEqual(["127.0.0.1:80", "Host.test", "[::1]:443"]);
  });

  it("reads the mirrors of registries, those that may speak plain HTTP, and the signature policy", () => {
    const read = (mirrors: string, insecure: string) => {
      const environment = { HEARTH_REGISTRY_MIRRORS: mirrors, HEARTH_INSECURE_REGISTRIES: insecure };
      const config = readConfig(environment, []);
      return [Object.fromEntries(config.registry_mirrors), config.insecure_registries, ownPorts(config)];
    };
    expect(read("", "")).toEqual([{}, [], [8700, 8701]]);
    expect(read("Docker.io=127.0.0.1:5000, ghcr.io=Mirror.test", "Host.test,[::1]:5001")).toEqual([
      { "docker.io": "127.0.0.1:5000", "ghcr.io": "mirror.test" },
      ["host.test", "[::1]:5001"],
      // No container may publish their ports and so take their place.
      [8700, 8701, 5000, 5001],
    ]);
    expect(readConfig({}, []).signature_policy).toBe("/etc/containers/policy.json");
    expect(readConfig({}, []).registry_auth_file).toBeNull();
    expect(readConfig({ HEARTH_REGISTRY_AUTH_FILE: "/p/../auth.json" }, []).registry_auth_file).toBe("/auth.json");
    expect(readConfig({ HEARTH_SIGNATURE_POLICY: "/p/../q.json" }, []).signature_policy).toBe("/q.json");
  });

  it("reads where published services are served", () => {
    const read = (listen: string, domain = "", console = "") =>
      readConfig({ HEARTH_SERVICES_LISTEN: listen, HEARTH_SERVICES_DOMAIN: domain, HEARTH_LISTEN: console }, [])
        .services;
    expect(read("")).toEqual({ host: "127.0.0.1", port: 8_701, is_default: true, domain: null });
    expect(read("", "", "127.0.0.1:0")).toMatchObject({ port: 0 });
    expect(read("", "", "0.0.0.0:65535")).toMatchObject({ host: "127.0.0.1", port: 0 });
    expect(read("off", "svc.example.com")).toBeNull();
    const own = { name: "svc.example.com", scheme: "http", port: null };
    expect(read("0.0.0.0:80", "SVC.example.com")).toEqual({
      host: "0.0.0.0",
      port: 80,
      is_default: false,
      domain: own,
    });
    expect(read("[::1]:80", "https://svc.example.com/")?.domain).toEqual({ ...own, scheme: "https", port: 443 });
    expect(read("", "http://svc.example.com:8080")?.domain).toEqual({ ...own, port: 8_080 });
    for (const listen of ["0.0.0.0:80", "10.0.0.1:80", "::80", "127.0.0.1", "127.0.0.1:70000", "on"]) {
      expect(() => read(listen)).toThrow(/HEARTH_SERVICES_LISTEN/);
    }
    for (const domain of [
      "svc.example.com:80",
      "https://a/b",
      "ftp://a.example",
      "10.0.0.1",
      "-a.example",
      "a..b",
      "a b",
    ]) {
      expect(() => read("", domain)).toThrow(/HEARTH_SERVICES_DOMAIN/);
    }
  });

  it("reads what tenants share of which device", () => {
    expect(readConfig({}, []).uplink).toBeNull();
    expect(readConfig({ HEARTH_UPLINK: "enp1s0.7:900" }, []).uplink).toEqual({ device: "enp1s0.7", mbit: 900 });
  });

  it("names two data directories apart", () => {
    const tag = (data_dir: string) => readConfig({ HEARTH_DATA_DIR: data_dir }, []).host_tag;
    expect(tag("/a")).toMatch(/^[0-9a-f]{8}$/);
    expect(tag("/a")).not.toBe(tag("/b"));
    expect(tag("/a/")).toBe(tag("/a"));
  });

  it.each([
    ["HEARTH_LISTEN", "8700"],
    ["HEARTH_LISTEN", "127.0.0.1:99999"],
    ["HEARTH_SUBNET", "10.0.0.0/8"],
    ["HEARTH_SUBNET", "fd00::/64"],
    ["HEARTH_SUBNET", "10.300.0.0/16"],
    ["HEARTH_BRIDGE", "a-name-that-is-too-long"],
    ["HEARTH_LOG_LEVEL", "loud"],
    ["HEARTH_USER_NAMESPACES", "yes"],
    ["HEARTH_OTLP_URL", "127.0.0.1:4318"],
    ["HEARTH_OTLP_URL", "ftp://127.0.0.1"],
    ["HEARTH_TRACE_SAMPLE", "1.5"],
    ["HEARTH_TRACE_SAMPLE", "half"],
    ["HEARTH_OUTGOING_ALLOWED", "http://host"],
    ["HEARTH_OUTGOING_ALLOWED", "good.test,fe80::1"],
    ["HEARTH_REGISTRY_MIRRORS", "docker.io"],
    ["HEARTH_REGISTRY_MIRRORS", "docker.io="],
    ["HEARTH_REGISTRY_MIRRORS", "docker.io=http://127.0.0.1:5000"],
    ["HEARTH_REGISTRY_MIRRORS", "docker.io=a.test=b.test"],
    ["HEARTH_REGISTRY_MIRRORS", "docker.io=a.test,docker.io=b.test"],
    ["HEARTH_INSECURE_REGISTRIES", "host.test/path"],
    ["HEARTH_INSECURE_REGISTRIES", "http://host.test"],
    ["HEARTH_UPLINK", "eth0"],
    ["HEARTH_UPLINK", "eth0:0"],
    ["HEARTH_UPLINK", "eth0 root:10"],
    ["HEARTH_CELLS", "-1"],
    ["HEARTH_INSTANCES_MAX", "0"],
    ["HEARTH_BOOTSTRAP_KEY", "short"],
  ])("refuses %s=%s and names the variable", (variable, value) => {
    expect(() => readConfig({ [variable]: value }, [])).toThrow(variable);
  });

  it.each([
    ["HEARTH_DATADIR", "unknown setting HEARTH_DATADIR, did you mean 'HEARTH_DATA_DIR'?"],
    ["HEARTH_INSTANCE_MAX", "unknown setting HEARTH_INSTANCE_MAX, did you mean 'HEARTH_INSTANCES_MAX'?"],
    ["HEARTH_SOMETHING_ELSE", "unknown setting HEARTH_SOMETHING_ELSE"],
    ["HEARTH_", "unknown setting HEARTH_"],
  ])("refuses the unknown variable %s and names the nearest one", (variable, message) => {
    expect(() => readConfig({ [variable]: "1" }, [])).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message }),
    );
    expect(readConfig({ [variable]: "" }, [])).toEqual(readConfig({}, []));
  });

  it("accepts the variables of the command line, of commands inside and of tests", () => {
    const names = ["HEARTH_KEY", "HEARTH_URL", "HEARTH_PROFILE", "HEARTH_PAYLOAD", "HEARTH_TEST_SEED", "OTHER_DATADIR"];
    expect(readConfig(Object.fromEntries(names.map((name) => [name, "x"])), [])).toEqual(readConfig({}, []));
  });

  it("refuses a flag that it does not know, and lists those that it does", () => {
    expect(() => readConfig({}, ["--colour", "blue"])).toThrow(/--listen .*--data-dir/);
    expect(() => readConfig({}, ["--listen"])).toThrow(/incomplete flag: '--listen'/);
    expect(() => readConfig({}, ["--lisen", "127.0.0.1:1"])).toThrow(/flag: '--lisen'/);
  });

  it("takes the operator's key from the environment or a file, never from an argument, and never shows it", () => {
    const directory = mkdtempSync(join(tmpdir(), "hearth-key-"));
    const file = join(directory, "key");
    const key = "hk_secret_0123456789abcdef";
    try {
      writeFileSync(file, `${key}\n`);
      expect(readConfig({}, ["--bootstrap-key-file", file]).bootstrap_key).toBe(key);
      expect(readConfig({ HEARTH_BOOTSTRAP_KEY: key }, []).bootstrap_key).toBe(key);
      const refusals = [
        () => readConfig({}, ["--bootstrap-key", key]),
        () => readConfig({}, [`--bootstrap-key=${key}`]),
        () => readConfig({ HEARTH_BOOTSTRAP_KEY: key, HEARTH_BOOTSTRAP_KEY_FILE: file }, []),
        () => readConfig({ HEARTH_BOOTSTRAP_KEY_FILE: join(directory, "none") }, []),
        () => readConfig({ HEARTH_BOOTSTRAP_KEY: `${key} x` }, []),
      ];
      for (const refused of refusals) {
        expect(refused).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
        expect(refused).not.toThrow(key);
      }
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it("refuses an outside issuer of the daemon's own name, whose tokens would never be looked at as its", () => {
    const set = { HEARTH_JWT_AUDIENCE: "a", HEARTH_JWKS_URL: "http://127.0.0.1/jwks" };
    expect(() => readConfig({ ...set, HEARTH_JWT_ISSUER: "hearth" }, [])).toThrow("another name than the daemon's own");
    expect(readConfig({ ...set, HEARTH_JWT_ISSUER: "https://i.test" }, []).outside_issuer?.issuer).toBe(
      "https://i.test",
    );
  });

  it("reads what builds trust, and refuses keys, credentials and files that are none", () => {
    const directory = mkdtempSync(join(tmpdir(), "hearth-config-"));
    const file = (name: string, text: string) => {
      writeFileSync(join(directory, name), text);
      return join(directory, name);
    };
    const read = (settings: Readonly<Record<string, string>>) => readConfig(settings, []).trust;
    try {
      const { cert, key } = makeCertificate();
      const own = file("ca.pem", `# our own\r\n${cert}`);
      expect(read({})).toBeNull();
      expect(read({ HEARTH_BUILD_CA_FILES: `${own}, ${own}` })).toMatchObject({
        certificates: `${cert.trim()}\n${cert.trim()}\n`,
        environment: { NODE_EXTRA_CA_CERTS: "/dev/hearth/ca.pem", PIP_CERT: "/dev/hearth/ca.pem" },
      });
      expect(read({ HEARTH_BUILD_PROXY: "http://p:3128", HEARTH_BUILD_NO_PROXY: "a.test" })?.environment).toEqual({
        ...{ HTTP_PROXY: "http://p:3128", HTTPS_PROXY: "http://p:3128", NO_PROXY: "a.test" },
        ...{ http_proxy: "http://p:3128", https_proxy: "http://p:3128", no_proxy: "a.test" },
      });
      const secret = "http://me:hush-hush@p:3128";
      const shared = read({ HEARTH_BUILD_PROXY: secret, HEARTH_BUILD_PROXY_CREDENTIALS: "shared" });
      expect(shared?.environment.https_proxy).toBe(secret);
      const refused: readonly (readonly [Readonly<Record<string, string>>, string])[] = [
        [{ HEARTH_BUILD_CA_FILES: "/missing.pem" }, "HEARTH_BUILD_CA_FILES: cannot read a file"],
        [{ HEARTH_BUILD_CA_FILES: file("key.pem", cert + key) }, "contains a private key"],
        [{ HEARTH_BUILD_CA_FILES: file("none.pem", "text") }, "has no certificate"],
        [{ HEARTH_BUILD_CA_FILES: file("bad.pem", cert.replace(/M/g, "N")) }, "invalid certificate"],
        [{ HEARTH_BUILD_CA_FILES: file("large.pem", cert + " ".repeat(LIMITS.ca_file_bytes_max)) }, "too large"],
        [{ HEARTH_BUILD_CA_FILES: "/dev/zero" }, "too large"],
        [{ HEARTH_BUILD_CA_FILES: directory }, "HEARTH_BUILD_CA_FILES: cannot read a file"],
        [{ HEARTH_BUILD_PROXY: secret }, "HEARTH_BUILD_PROXY has a credential"],
        [{ HEARTH_BUILD_PROXY: "http://hush-hush@p" }, "HEARTH_BUILD_PROXY has a credential"],
        [{ HEARTH_BUILD_PROXY: "socks5://p" }, "invalid HEARTH_BUILD_PROXY"],
        [{ HEARTH_BUILD_PROXY: "http://p/hush-hush" }, "invalid HEARTH_BUILD_PROXY"],
        [{ HEARTH_BUILD_NO_PROXY: "a" }, "HEARTH_BUILD_NO_PROXY is set without HEARTH_BUILD_PROXY"],
        [{ HEARTH_BUILD_PROXY_CREDENTIALS: "yes" }, "invalid HEARTH_BUILD_PROXY_CREDENTIALS"],
      ];
      for (const [settings, message] of refused) {
        expect(() => read(settings), message).toThrow(message);
        expect(() => read(settings)).not.toThrow("hush-hush");
      }
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
