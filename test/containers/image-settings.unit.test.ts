/** The settings that a container has from its request and from its image. */
import { describe, expect, it } from "vitest";
import { signalNumber } from "../../src/containers/command-fields.ts";
import { imageSettings } from "../../src/containers/image-settings.ts";
import { createContainer } from "../../src/containers/schema.ts";
import type { ImageConfig } from "../../src/engine/ports.ts";

const CONFIG: ImageConfig = {
  entrypoint: ["/entry", "-x"],
  command: ["serve", "80"],
  environment: { PATH: "/app/bin", HOME: "/app", LD_LIBRARY_PATH: "/app/lib" },
  working_directory: "/app",
  user: "app:staff",
  stop_signal: "SIGQUIT",
  exposed_ports: ["80/tcp"],
  volumes: ["/data"],
  health: { command: ["/check"], interval_ms: 1_500, timeout_ms: 100, start_period_ms: null, retries: 2 },
};
const EMPTY: ImageConfig = {
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

const given = (fields: object) => createContainer.parse({ name: "x", ...fields });
const settings = (fields: object = {}, config: ImageConfig | null = CONFIG) =>
  imageSettings(given({ oci: config !== null, ...fields }), config);

describe("a container of an image", () => {
  it("has the image's settings where its request has none", () => {
    expect(settings()).toEqual({
      command: ["/entry", "-x", "serve", "80"],
      image_environment: CONFIG.environment,
      working_directory: "/app",
      user: "app:staff",
      stop_signal: "SIGQUIT",
      exposed_ports: ["80/tcp"],
      declared_volumes: ["/data"],
      writable_paths: ["/data"],
      health: {
        command: ["/check"],
        interval_seconds: 2,
        timeout_seconds: 1,
        start_period_seconds: 0,
        retries: 2,
        on_unhealthy: "none",
      },
    });
  });

  it.each([
    [{ command: ["other"] }, ["/entry", "-x", "other"]],
    [{ command: [] }, ["/entry", "-x"]],
    [{ entrypoint: ["/mine"] }, ["/mine"]],
    [{ entrypoint: ["/mine"], command: ["a"] }, ["/mine", "a"]],
    [{ entrypoint: [] }, ["serve", "80"]],
    [{ entrypoint: [], command: ["a"] }, ["a"]],
    [{ entrypoint: [], command: [] }, []],
    [{ entrypoint: null, command: null }, ["/entry", "-x", "serve", "80"]],
  ])("created with %j runs %j", (fields, command) => {
    expect(settings(fields).command).toEqual(command);
  });

  it.each([
    [{}, ["/bin/sh"], []],
    [{}, ["bash"], []],
    [{}, ["/usr/bin/zsh"], []],
    [{}, ["bash", "-c", "x"], ["bash", "-c", "x"]],
    [{}, ["/app/crash"], ["/app/crash"]],
    [{ command: ["sh"] }, ["bash"], ["sh"]],
    [{ entrypoint: [] }, ["bash"], ["bash"]],
  ])(
    "created with %j from an image with the command %j runs %j: a shell alone would exit at once",
    (fields, command, argv) => {
      expect(settings(fields, { ...EMPTY, command }).command).toEqual(argv);
    },
  );

  it("keeps an omitted directory and user apart from / and root", () => {
    expect(settings({ working_directory: "/", user: "root" })).toMatchObject({ working_directory: "/", user: null });
    expect(settings({ user: "0:0" }).user).toBeNull();
    expect(settings({ user: "0:staff" }).user).toBe("0:staff");
    expect(settings({}, EMPTY)).toMatchObject({ working_directory: "/", user: null, stop_signal: "SIGTERM" });
  });

  it("has an environment of its image only with an image", () => {
    expect(settings({}, EMPTY).image_environment).toEqual({});
    expect(settings({}, null).image_environment).toBeNull();
  });

  it.each([
    [{ working_directory: "/proc/self/fd/8" }, "working_directory of the image: must not be in"],
    [{ working_directory: "relative" }, "working_directory of the image: must be an absolute path: 'relative'"],
    [{ working_directory: "/a/../../etc" }, "working_directory of the image: must not contain '..'"],
    [{ user: "a b" }, "user of the image: must be <user>"],
    [{ user: "70000" }, "user of the image: must not have an id above 65535: '70000'"],
    [{ user: "-g" }, "user of the image: must be <user>"],
    [{ stop_signal: "SIGNONE" }, "stop_signal of the image: must be a signal"],
  ])("is refused by name if the image has %j, and made if the request has another value", (fields, message) => {
    const config = { ...CONFIG, ...fields };
    expect(() => settings({}, config)).toThrow(message);
    const own = { working_directory: "/", user: "root", stop_signal: "SIGTERM" };
    expect(settings(own, config).working_directory).toBe("/");
  });

  it("is refused if entrypoint and command together are too many arguments, or begin with an empty one", () => {
    const half = Array(3_000).fill("x");
    expect(() => settings({ command: half }, { ...CONFIG, entrypoint: half })).toThrow(
      "entrypoint and command together",
    );
    expect(() => settings({}, { ...EMPTY, command: [""] })).toThrow("must not start with an empty element");
  });

  it("keeps declared volumes writable below a read-only root, but for folders of the system and below mounts", () => {
    const volumes = [
      "/data",
      "/etc",
      "/",
      "/usr/share/x",
      "/srv/a",
      "/srv/a/b",
      "/tmp/x",
      "/mounted/x",
      "/../up",
      "rel",
    ];
    const made = settings({ volumes: ["v:/mounted"] }, { ...EMPTY, volumes });
    expect(made.declared_volumes).toEqual(volumes);
    expect(made.writable_paths).toEqual(["/data", "/rel", "/srv/a"]);
  });
});

describe("the health check", () => {
  const DEFAULTS = { interval_seconds: 30, timeout_seconds: 30, start_period_seconds: 0, retries: 3 };

  it("is the image's, changed in parts, replaced or left out", () => {
    expect(settings({ health: { retries: 9 } }).health).toMatchObject({
      command: ["/check"],
      retries: 9,
      interval_seconds: 2,
    });
    expect(settings({ health: { command: ["/mine"] } }).health).toMatchObject({ command: ["/mine"], retries: 2 });
    expect(settings({ health: "none" }).health).toBeNull();
    expect(settings({ health: null }).health).toMatchObject({ command: ["/check"] });
    expect(settings({ health: { command: ["a"] } }, null).health).toEqual({
      command: ["a"],
      ...DEFAULTS,
      on_unhealthy: "none",
    });
  });

  it("needs a command, and a restart policy if it restarts", () => {
    expect(() => settings({ health: { retries: 1 } }, EMPTY)).toThrow("health.command: missing");
    expect(() => given({ health: { command: ["a"], on_unhealthy: "restart" } })).toThrow("on-failure or always");
    expect(given({ restart: "always", health: { command: ["a"], on_unhealthy: "restart" } })).toBeDefined();
  });

  it("of an image has bounds", () => {
    const health = { command: ["a"], interval_ms: 1, timeout_ms: 1e15, start_period_ms: 1e15, retries: 1e9 };
    expect(settings({}, { ...EMPTY, health }).health).toMatchObject({
      interval_seconds: 1,
      timeout_seconds: 3_600,
      start_period_seconds: 86_400,
      retries: 1_000,
    });
  });
});

describe("a container of a profile", () => {
  it("has its request's settings", () => {
    expect(settings({ entrypoint: ["sh", "-c"], command: ["pwd"], user: "nobody" }, null)).toMatchObject({
      command: ["sh", "-c", "pwd"],
      user: "nobody",
      working_directory: "/",
    });
  });

  it.each([{ command: [] }, { command: [""] }, { entrypoint: [""] }, { entrypoint: [], command: [] }])(
    "created with %j is refused",
    (fields) => {
      expect(createContainer.safeParse({ name: "x", ...fields }).success).toBe(false);
    },
  );
});

it.each([
  ["SIGTERM", 15],
  ["term", 15],
  ["9", 9],
  ["SIGRTMIN+3", 37],
  ["RTMAX-1", 63],
  ["SIGWINCH", 28],
  ["0", null],
  ["65", null],
  ["SIGRTMIN-1", null],
  ["", null],
  ["constructor", null],
])("the signal %j has the number %j", (name, number) => {
  expect(signalNumber(name)).toBe(number);
});
