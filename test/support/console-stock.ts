/** Something of everything that the console shows: each list has rows, also such as are hard to lay out. */
import { expect } from "vitest";
import { profileImage } from "../../src/installation/profiles.js";
import { ContainerUser } from "./containers.ts";
import type { Daemon } from "./daemon.ts";
import { pullLocal } from "./made-images.ts";

/** No place to break. */
export const LONG = "a-name-that-is-quite-long-and-has-no-place-to-break".repeat(2);

export interface Stock {
  /** Address of each view, and a text that it shows once it is complete. */
  readonly views: readonly (readonly [hash: string, text: string])[];
  readonly container_id: string;
  readonly session_id: string;
  readonly service_id: string;
  readonly operation_id: string;
  readonly image: string;
}

/** Makes them as the tenant of the daemon's key. */
export async function stock(daemon: Daemon): Promise<Stock> {
  const user = new ContainerUser(daemon);
  const ok = async (method: string, path: string, body?: object, headers = {}) => {
    const answer = await daemon.call(method, path, body, headers);
    expect(answer.status, `${method} ${path}: ${JSON.stringify(answer.body)}`).toBeLessThan(300);
    return answer.body;
  };
  const { id: function_id } = await daemon.deploy({ name: "resize-images", handler: "cat" });
  await daemon.deploy({ name: LONG, handler: `echo ${"x".repeat(300)}`, environment: { LONG: "y".repeat(200) } });
  for (const payload of ["a.png", "b.png", "c.png"]) await daemon.invoke("resize-images", { payload });
  const server = ["python3", "-m", "http.server", "8080"];
  const { container_id } = await user.create({
    name: "web",
    network: "shop",
    command: server,
    labels: { team: "shop" },
    ports: [{ container_port: 8080 }],
  });
  await user.create({ name: LONG.slice(0, 61), network: LONG.slice(0, 49), labels: { [LONG]: "y".repeat(200) } });
  await user.create({ name: "job", network: "shop", command: ["sh", "-c", "exit 3"] });
  const tenant = { "x-tenant-id": (await ok("GET", "/api/tenant")).tenant_id };
  const taken = await ok("POST", `/api/containers/${container_id}/snapshot?execution=sync`, { name: LONG }, tenant);
  const service = await ok("POST", `/api/containers/${container_id}/services`, { name: "web", target_port: 8080 });
  await ok("POST", `/api/containers/${container_id}/services`, { name: LONG, target_port: 81, ttl_seconds: 3_600 });
  const { session_id } = await ok("POST", "/api/terminal/sessions", { container_id });
  await ok("POST", "/api/volumes", { name: LONG });
  await ok("POST", "/api/volumes", { name: "data" });
  await ok("POST", `/api/volumes/data/files`, { path: `${"f".repeat(200)}`, content: "AP9h" });
  await ok("PUT", `/api/secrets/${LONG.slice(0, 60)}`, { value: "hidden" });
  const { reference: image } = await pullLocal(daemon, profileImage("prod").reference);
  const queue = `queue:${"q".repeat(60)}`;
  for (const to of ["queue:jobs", queue, container_id]) {
    await ok("POST", "/api/icc/messages", { to, type: "task.created", payload: { text: LONG } });
  }
  const [operation] = (await ok("GET", "/api/operations?limit=1")).operations;
  const views = [
    ["#/", "resize-images"],
    [`#/functions/${function_id}`, "Latency"],
    ["#/new", "New function"],
    ["#/containers", "web"],
    [`#/containers/${container_id}`, "Processes"],
    [`#/containers/${container_id}/files/etc`, "passwd"],
    [`#/containers/${container_id}/changes`, "Changes"],
    ["#/new-container", "New container"],
    ["#/terminals", "1 session"],
    ["#/images", image],
    [`#/images/${encodeURIComponent(image)}`, "Layers"],
    ["#/pull-image", "Pull image"],
    ["#/profiles", "prod"],
    ["#/profiles/prod", "Releases"],
    ["#/volumes", "data"],
    ["#/volumes/data", "f".repeat(200)],
    ["#/new-volume", "New volume"],
    ["#/snapshots", LONG],
    [`#/snapshots/${taken.snapshot_id}`, "Compare"],
    ["#/secrets", LONG.slice(0, 60)],
    ["#/new-secret", "New secret"],
    ["#/networks", "shop"],
    ["#/networks/shop", "job"],
    ["#/services", "2 services"],
    [`#/services/${service.service_id}`, "Token rotated"],
    ["#/messages", "queue:jobs"],
    [`#/messages/${encodeURIComponent(queue)}`, "task.created"],
    [`#/containers/${container_id}/terminal/${session_id}`, "Last use"],
    ["#/operations", operation.operation_type],
    [`#/operations/${operation.operation_id}`, "Accepted"],
    ["#/activity", "Events"],
  ] as const;
  const { service_id } = service;
  return { views, container_id, session_id, service_id, operation_id: operation.operation_id, image };
}
