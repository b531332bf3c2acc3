/** Every route of desktops. The page of the viewer is served under its token; its scripts are the console's files. */
import { route } from "../http/route.ts";
import { byContainer, byDesktop, guiUrl, screenshot, sendInput, sentInput, viewerQuery } from "./schema.ts";
import type { Desktops } from "./service.ts";

export interface GuiRoutesOptions {
  readonly desktops: Desktops;
  /** The page of the viewer. */
  readonly viewerPage: () => Response;
}

const ID_EXAMPLE = { container_id: "{container_id}" };
const SAMPLES = {
  url: { gui_url: "/gui/ctr_c1v8hx2m9qk4te7b/?gui_token=gt_4f0c7a51d2e8b936_8f4e…", expires_at: 1_795_250_510 },
  screenshot: {
    container_id: "ctr_c1v8hx2m9qk4te7b",
    content_type: "image/png",
    width: 1_280,
    height: 800,
    data_b64: "iVBORw0KGgoAAAANSUhEUg…",
  },
  input: { success: true, event_count: 3, width: 1_280, height: 800 },
} as const;
const ERRORS = ["NOT_FOUND", "WRONG_STATE", "NOT_RUNNING", "NOT_RESPONDING", "CONCURRENCY_LIMIT"] as const;

export function guiRoutes(options: GuiRoutesOptions) {
  return [...viewerRoutes(options), ...agentRoutes(options)];
}

function viewerRoutes({ desktops, viewerPage }: GuiRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/containers/:container_id/gui-url",
      auth: "tenant",
      // A viewer controls the desktop.
      scope: "invoke",
      operation: "getGuiUrl",
      summary: "Returns a URL that shows the desktop of a prod-gui container in a browser; valid for minutes.",
      params: byContainer,
      response: guiUrl,
      errors: ERRORS,
      example: { params: ID_EXAMPLE, response: SAMPLES.url },
      handler: ({ caller, params, recheck }) => desktops.url(caller.tenant_id, params.container_id, recheck),
    }),
    route({
      method: "GET",
      path: "/gui/:container_id/",
      auth: "public",
      operation: "desktopViewer",
      summary: "Returns the viewer of a desktop as a web page; needs the token of a gui_url.",
      content: ["text/html"],
      params: byDesktop,
      query: viewerQuery,
      errors: ["UNAUTHORIZED"],
      example: { params: ID_EXAMPLE, query: { gui_token: "gt_…" } },
      handler: async ({ params, query }) => {
        await desktops.check(params.container_id, query.gui_token);
        return viewerPage();
      },
    }),
    route({
      method: "GET",
      path: "/gui/:container_id/websockify",
      auth: "public",
      operation: "attachDesktop",
      summary: "Connects a viewer with a desktop by WebSocket: binary messages are the RFB protocol, version 3.8.",
      params: byDesktop,
      query: viewerQuery,
      socket: { protocol: "binary" },
      errors: ["UNAUTHORIZED", "NOT_FOUND", "NOT_RUNNING", "NOT_RESPONDING", "CONCURRENCY_LIMIT"],
      handler: ({ params, query }) => desktops.attach(params.container_id, query.gui_token),
    }),
  ];
}

function agentRoutes({ desktops }: GuiRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/gui/screenshot",
      auth: "tenant",
      scope: "invoke",
      operation: "takeScreenshot",
      summary: "Returns the desktop of a prod-gui container as a PNG; with Accept: application/json as base64 in JSON.",
      params: byContainer,
      content: ["image/png", "application/json"],
      response: screenshot,
      errors: ERRORS,
      example: { params: ID_EXAMPLE, response: SAMPLES.screenshot },
      handler: async (request) => {
        const { caller, params } = request;
        const taken = await desktops.screenshot(caller.tenant_id, params.container_id, request.signal);
        const { container_id, bytes, width, height } = taken;
        if (/\bapplication\/json\b/.test(request.header("accept") ?? "")) {
          return {
            container_id,
            content_type: "image/png" as const,
            width,
            height,
            data_b64: bytes.toString("base64"),
          };
        }
        return new Response(new Uint8Array(bytes), {
          headers: { ...PICTURE_HEADERS, "content-length": `${bytes.length}` },
        });
      },
    }),
    route({
      method: "POST",
      path: "/api/containers/:container_id/gui/input",
      auth: "tenant",
      scope: "invoke",
      operation: "sendInput",
      summary: "Moves the pointer, clicks, scrolls and types on the desktop of a prod-gui container.",
      params: byContainer,
      body: sendInput,
      response: sentInput,
      errors: [...ERRORS, "TIMEOUT"],
      example: {
        params: ID_EXAMPLE,
        body: {
          events: [
            { type: "double_click", x: 200, y: 300 },
            { type: "type", text: "hello" },
            { type: "key", keys: "ctrl+s" },
          ],
        },
        response: SAMPLES.input,
      },
      handler: async (request) => {
        const { caller, params, body } = request;
        return desktops.input(caller.tenant_id, params.container_id, body.events, request.signal);
      },
    }),
  ];
}

/** The bytes are a container's: a browser takes them for nothing but a picture. */
const PICTURE_HEADERS = {
  "content-type": "image/png",
  "content-security-policy": "default-src 'none'; sandbox",
  "cross-origin-resource-policy": "same-origin",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
} as const;
