/** Containers without a desktop, and refused requests for one. desktop.heavy.test.ts tests desktops. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, NOTHING_LEFT } from "../support/daemon.ts";

const daemon = new Daemon();
const state = { id: "" };

beforeAll(async () => {
  await daemon.start({ HEARTH_CELLS: "0" });
  state.id = (await daemon.call("POST", "/api/containers", { name: "plain" })).body.container_id;
});
afterAll(async () => {
  await daemon.call("DELETE", `/api/containers/${state.id}`);
  await daemon.stop("SIGTERM");
  expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  await daemon.dispose();
});

const REQUESTS = [
  ["GET", "gui-url", undefined],
  ["POST", "gui/screenshot", undefined],
  ["POST", "gui/input", { events: [{ type: "move", x: 1, y: 1 }] }],
] as const;

describe("a container of another image than prod-gui", () => {
  it("has no gui_ready, and null in the check of a desktop", async () => {
    for (const path of ["", "/ready"]) {
      const { body } = await daemon.call("GET", `/api/containers/${state.id}${path}`);
      expect(body).not.toHaveProperty("gui_ready");
      expect(body.checks.gui_backend_reachable).toBeNull();
    }
    const { body: list } = await daemon.call("GET", "/api/containers");
    expect(list.containers[0]).not.toHaveProperty("gui_ready");
  });

  it.each(REQUESTS)("answers 400 to %s …/%s", async (method, path, body) => {
    const answer = await daemon.call(method, `/api/containers/${state.id}/${path}`, body);
    expect([answer.status, answer.body.error_code]).toEqual([400, "INVALID_ARGUMENT"]);
    expect(answer.body.error).toBe(`container '${state.id}' has no desktop: its image is 'prod'`);
    expect(answer.body.details).toMatchObject({ expected: ["prod-gui"], received: "prod" });
  });

  it.each(REQUESTS)("of another tenant, or missing, answers 404 to %s …/%s", async (method, path, body) => {
    const tenant = await daemon.call("POST", "/api/tenants", { name: `stranger-${path.replaceAll("/", "-")}` });
    const keys = `/api/tenants/${tenant.body.tenant_id}/api-keys`;
    const { key } = (await daemon.call("POST", keys, { name: "k" })).body;
    for (const id of [state.id, "ctr_nothing"]) {
      const answer = await daemon.call(method, `/api/containers/${id}/${path}`, body, { "x-api-key": key });
      expect([answer.status, answer.body.error_code]).toEqual([404, "NOT_FOUND"]);
    }
  });
});

describe("a request for a desktop", () => {
  it.each([
    ["command", ["sleep", "1"]],
    ["entrypoint", ["sleep"]],
    ["command", []],
  ])("with %s %j is refused with 400, alone and in a batch, and makes nothing", async (field, value) => {
    const body = { name: "desk", image: "prod-gui", [field]: value };
    for (const [path, sent] of [
      ["/api/containers", body],
      ["/api/containers?execution=async", body],
      ["/api/containers/batch", { items: [body] }],
    ] as const) {
      const answer = await daemon.call("POST", path, sent);
      expect([path, answer.status, answer.body.error_code]).toEqual([path, 400, "INVALID_ARGUMENT"]);
      expect(answer.body.error).toContain(field);
    }
    expect((await daemon.call("GET", "/api/containers/by-name/desk")).body.found).toBe(false);
  });
});

describe("the viewer", () => {
  it("is served with a valid token alone", async () => {
    const guess = "gt_0123456789abcdef_0123456789abcdef0123456789abcdef01234567";
    for (const path of ["", "websockify"]) {
      const answer = await fetch(`${daemon.url}/gui/${state.id}/${path}?gui_token=${guess}`);
      expect(path === "" ? [401] : [401, 426]).toContain(answer.status);
    }
  });

  it("has scripts of noVNC and no other files of it", async () => {
    const script = await fetch(`${daemon.url}/page/novnc/core/rfb.js`);
    expect([script.status, script.headers.get("content-type")]).toEqual([200, "text/javascript; charset=utf-8"]);
    for (const path of ["package.json", "core/../package.json", "core/%2e%2e/package.json", "docs/API.md"]) {
      expect([path, (await fetch(`${daemon.url}/page/novnc/${path}`)).status]).toEqual([path, 404]);
    }
  });
});
