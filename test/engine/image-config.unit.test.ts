/** Configurations of images as buildah prints them, and what a hostile author may write in one. */
import { describe, expect, it } from "vitest";
import { AppError } from "../../src/base/errors.ts";
import { LIMITS } from "../../src/base/limits.ts";
import { hasTriggers, parseImageConfig } from "../../src/engine/images/image-config.ts";

const parse = (config: unknown) => parseImageConfig(JSON.stringify({ architecture: "amd64", config }));
const NOTHING = {
  entrypoint: [],
  command: [],
  environment: {},
  working_directory: null,
  user: null,
  stop_signal: null,
  exposed_ports: [],
  volumes: [],
  health: null,
};

describe("the configuration of an image", () => {
  it("is read whole", () => {
    const config = {
      User: "app",
      ExposedPorts: { "80/tcp": {}, "53/udp": {}, "8080": {} },
      Env: ["PATH=/bin", "A=b=c", "EMPTY=", "NONE", "A=last", "__proto__=x"],
      Entrypoint: ["/entry"],
      Cmd: ["a", ""],
      Volumes: { "/data": {} },
      WorkingDir: "/app",
      StopSignal: "SIGINT",
      Labels: { any: "thing" },
      Healthcheck: { Test: ["CMD", "/check"], Interval: 5e9, Timeout: 1.5e6, StartPeriod: 0, Retries: 4 },
    };
    expect(parse(config)).toEqual({
      entrypoint: ["/entry"],
      command: ["a", ""],
      environment: Object.fromEntries([
        ["PATH", "/bin"],
        ["A", "last"],
        ["EMPTY", ""],
        ["__proto__", "x"],
      ]),
      working_directory: "/app",
      user: "app",
      stop_signal: "SIGINT",
      exposed_ports: ["8080/tcp", "80/tcp", "53/udp"],
      volumes: ["/data"],
      health: { command: ["/check"], interval_ms: 5_000, timeout_ms: 2, start_period_ms: null, retries: 4 },
    });
  });

  it.each([[{}], [null], [undefined], [{ User: "", WorkingDir: "", Env: null, Cmd: null, Healthcheck: null }]])(
    "may be empty: %j",
    (config) => {
      expect(parse(config)).toEqual(NOTHING);
    },
  );

  it("has a health check in a shell, in the image's own shell, or none", () => {
    const test = (Test: unknown, more: object = {}) => parse({ Healthcheck: { Test }, ...more }).health?.command;
    expect(test(["CMD-SHELL", "a && b"])).toEqual(["/bin/sh", "-c", "a && b"]);
    expect(test(["CMD-SHELL", "a"], { Shell: ["/bin/bash", "-lc"] })).toEqual(["/bin/bash", "-lc", "a"]);
    expect([test(["NONE"]), test([]), test(null)]).toEqual([undefined, undefined, undefined]);
  });

  it.each([
    [[], "config is not an object"],
    [{ Entrypoint: "/entry" }, "Entrypoint is not a list of texts"],
    [{ Cmd: [1] }, "Cmd is not a list of texts"],
    [{ Cmd: ["a\0b"] }, "Cmd contains a NUL character"],
    [{ Cmd: ["x".repeat(LIMITS.argument_bytes_max + 1)] }, "Cmd argument too large: 131072 bytes (limit 131071 bytes)"],
    [{ Cmd: Array(5_000).fill("x") }, "Cmd too long: 5000 entries (limit 4096)"],
    [{ Env: { A: "b" } }, "Env is not a list of texts"],
    [{ Env: [`A=${"x".repeat(LIMITS.environment_bytes_max)}`] }, "Env too large: 131075 bytes (limit 131072 bytes)"],
    [{ Env: Array.from({ length: 300 }, (_, i) => `A${i}=`) }, "Env too long: 300 entries (limit 256)"],
    [{ WorkingDir: 3 }, "WorkingDir is not a text"],
    [{ User: "a\0b" }, "User contains a NUL character"],
    [{ WorkingDir: `/${"x".repeat(5_000)}` }, "WorkingDir too large: 5001 bytes (limit 4095 bytes)"],
    [{ ExposedPorts: ["80/tcp"] }, "ExposedPorts is not an object"],
    [{ ExposedPorts: { "80/tcp;rm": {} } }, "ExposedPorts malformed: '80/tcp;rm'"],
    [{ ExposedPorts: { "70000/tcp": {} } }, "ExposedPorts malformed: '70000/tcp'"],
    [{ Volumes: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`/${i}`, {}])) }, "Volumes too long: 65"],
    [{ Healthcheck: { Test: ["SHELL", "x"] } }, "Healthcheck.Test unknown: 'SHELL'"],
    [{ Healthcheck: { Test: ["CMD"] } }, "Healthcheck.Test has no command"],
    [{ Healthcheck: { Test: ["CMD-SHELL", "a", "b"] } }, "Healthcheck.Test expected one text"],
    [{ Healthcheck: { Test: ["CMD", "a"], Interval: "5s" } }, "Healthcheck.Interval is not a number"],
    [{ Healthcheck: { Test: ["CMD", "a"], Retries: -1 } }, "Healthcheck.Retries is not a number"],
  ])("is refused by name if it is malformed: %#", (config, message) => {
    expect(() => parse(config)).toThrow(message);
    try {
      parse(config);
    } catch (error) {
      expect(error).toMatchObject({ code: "INVALID_ARGUMENT" });
      expect((error as AppError).message.length).toBeLessThan(300);
    }
  });

  it("is refused if it is too large, deep or no JSON", () => {
    const large = JSON.stringify({ config: { Env: Array(100).fill(`A=${"x".repeat(100_000)}`) } });
    expect(() => parseImageConfig(large)).toThrow(/JSON too large: 10\d{6} bytes \(limit 524288 bytes\)/);
    expect(() => parseImageConfig("{")).toThrow("is not JSON");
    expect(() => parseImageConfig('"text"')).toThrow("JSON is not an object");
    const deep = `{"config":{"Env":${"[".repeat(50_000)}${"]".repeat(50_000)}}}`;
    expect(() => parseImageConfig(deep)).toThrow(AppError);
  });
});

describe("instructions for builds", () => {
  it.each([
    '{"config":{"OnBuild":["RUN x"]}}',
    '{"config":{"onbuild" : ["COPY /etc/shadow /x"]}}',
    '{"Config":{"ONBUILD":\n["RUN x"],"OnBuild":[]}}',
    '{"config":{"OnBuild":[]},"config":{"\\u004fnBuild":["RUN x"]}}',
    '{"config":{"a\\"":"OnBuild","OnBuild":"RUN x"}}',
    '{"container_config":{"OnBuild":[""]}}',
  ])("are found in any spelling: %s", (json) => {
    expect(hasTriggers(json)).toBe(true);
  });

  it.each([
    '{"config":{"OnBuild":null}}',
    '{"config":{"OnBuild": [ ]}}',
    '{"config":{"Labels":{"a":"OnBuild"},"Cmd":["OnBuild",":"]}}',
    '{"config":{"Env":["A=\\"OnBuild\\": [1]"]}}',
    "not JSON",
  ])("are none in %s", (json) => {
    expect(hasTriggers(json)).toBe(false);
  });
});
