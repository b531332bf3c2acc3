/** Every route of messages between containers. A container_id of an inbox may also be the address of a queue or topic. */
import type { z } from "zod";
import { type Caller, lacksScope } from "../base/caller.ts";
import type { Trace } from "../base/trace.ts";
import { guideRoutes } from "../docs/guide.ts";
import { validate } from "../http/input.ts";
import { route } from "../http/route.ts";
import { DEAD_STREAM, DEAD_SUBJECT, SOCKET_PATH } from "./addresses.ts";
import { bindingRoutes } from "./bindings/routes.ts";
import type { Bindings } from "./bindings/service.ts";
import type { Broadcasts } from "./broadcasts.ts";
import { decodeBase64 } from "./envelope/base64.ts";
import { envelopeDescriptor, envelopeProto, envelopeSchema, envelopeTypes } from "./envelope/description.ts";
import { messageSchema } from "./envelope/message-schema.ts";
import { isWithin } from "./envelope/validation.ts";
import { iccGuide, iccReadiness } from "./guide.ts";
import { inboxRoutes } from "./inbox-routes.ts";
import { messageContent } from "./message-content.ts";
import { PUBLISH_ERRORS, publishedOf } from "./published.ts";
import { type Content, type Sender, sentBy } from "./publishing.ts";
import { SAMPLES } from "./samples.ts";
import * as shapes from "./schema.ts";
import type { Icc } from "./service.ts";
import { type StateRoutesOptions, stateRoutes } from "./state/routes.ts";
import { topicRoutes } from "./topic-routes.ts";
import type { Topics } from "./topics.ts";
import { underRequest } from "./tracing.ts";

export interface IccRoutesOptions extends StateRoutesOptions {
  readonly icc: Icc;
  readonly broadcasts: Broadcasts;
  readonly topics: Topics;
  /** The name of a container. Rejects with NOT_FOUND. */
  readonly nameOf: (tenant_id: string, container_id: string) => Promise<string>;
  readonly bindings: Bindings;
}

const BY_CONTAINER = { container_id: "{container_id}" };
const READ_ERRORS = ["NOT_FOUND"] as const;
const MESSAGE = { to: "{container_id}", type: "task.created", payload: { n: 42 } };

type Asked = { readonly caller: Caller; readonly trace: Trace; readonly address: string | null };

/** A key of the tenant sends. */
const keyOf = ({ caller, trace, address }: Asked): Sender => ({
  ...{ tenant_id: caller.tenant_id, scopes: caller.scopes, by: sentBy(caller, address) },
  ...{ container: null, trace: underRequest(trace) },
});

function contentOf(body: z.output<typeof shapes.publishMessage>): Content {
  const content = messageContent(body, (fields) => validate(messageSchema, fields));
  return "envelope_b64" in content ? { bytes: decodeBase64(content.envelope_b64) } : { message: content };
}

export function iccRoutes(options: IccRoutesOptions) {
  const routes = messageRoutes(options);
  const readiness = {
    schema: iccReadiness,
    example: { status: "ok" as const, concern: "icc" as const, backend: "embedded" as const, reason: null },
    look: () => {
      const { bus } = options.icc;
      const { is_ready, problem: reason } = bus.health();
      const status = is_ready ? ("ok" as const) : ("unavailable" as const);
      return { status, concern: "icc" as const, backend: bus.backend, reason };
    },
  };
  const own = routes.filter(({ path }) => path.startsWith("/api/icc"));
  return [...guideRoutes(iccGuide, own, readiness), ...routes];
}

function messageRoutes(options: IccRoutesOptions) {
  return [
    ...aboutRoutes(options),
    ...publishRoutes(options),
    ...broadcastRoutes(options),
    ...inboxRoutes(options),
    ...permissionRoutes(options),
    ...topicRoutes(options),
    ...stateRoutes(options),
    ...bindingRoutes(options),
  ];
}

function aboutRoutes({ icc }: IccRoutesOptions) {
  const about = { method: "GET", auth: "tenant", scope: "read" } as const;
  return [
    route({
      ...about,
      path: "/api/icc",
      operation: "messagingOverview",
      summary: "Returns where messages are kept and how containers reach their inboxes.",
      response: shapes.overview,
      example: { response: SAMPLES.overview },
      handler: () => ({
        backend: icc.bus.backend,
        sync_mode: icc.bus.sync_mode,
        dlq: { stream: DEAD_STREAM, subject: DEAD_SUBJECT },
        socket: SOCKET_PATH,
      }),
    }),
    route({
      ...about,
      path: "/api/icc/streams",
      operation: "listMessageStreams",
      summary: "Lists the tenant's inboxes with their counts, by name.",
      query: shapes.streamsQuery,
      response: shapes.streams,
      errors: READ_ERRORS,
      example: { response: SAMPLES.streams },
      handler: ({ caller, query }) => icc.streams(caller.tenant_id, query),
    }),
    route({
      ...about,
      path: "/api/icc/schema",
      operation: "messageSchema",
      summary: "Returns the fields of the envelope and its payloads.",
      response: shapes.anyObject,
      example: { response: { ...envelopeSchema } },
      handler: () => ({ ...envelopeSchema }),
    }),
    route({
      ...about,
      path: "/api/icc/types",
      operation: "messageTypes",
      summary: "Lists the payload kinds with the permission levels that permit them.",
      response: shapes.anyObject,
      example: { response: { ...envelopeTypes } },
      handler: () => ({ ...envelopeTypes }),
    }),
    route({
      ...about,
      path: "/api/icc/proto",
      operation: "messageProto",
      summary: "Returns the envelope's protobuf definition as text.",
      content: ["text/plain"],
      example: {},
      handler: () => new Response(envelopeProto, { headers: { "content-type": "text/plain; charset=utf-8" } }),
    }),
    route({
      ...about,
      path: "/api/icc/descriptor",
      operation: "messageDescriptor",
      summary: "Returns the envelope's FileDescriptorSet in base64.",
      response: shapes.anyObject,
      example: { response: { ...envelopeDescriptor } },
      handler: () => ({ ...envelopeDescriptor }),
    }),
  ];
}

function publishRoutes({ icc, nameOf }: IccRoutesOptions) {
  const publish = { method: "POST", auth: "tenant", scope: "write" } as const;
  return [
    route({
      ...publish,
      path: "/api/icc/publish",
      operation: "publishEnvelope",
      summary: "Publishes an envelope to the inbox that its field `to` names.",
      body: shapes.publishEnvelope,
      response: shapes.published,
      errors: PUBLISH_ERRORS,
      example: { body: { envelope_b64: SAMPLES.ENVELOPE }, response: SAMPLES.published },
      handler: async (asked) => publishedOf(await icc.publish(keyOf(asked), contentOf(asked.body))),
    }),
    route({
      ...publish,
      path: "/api/icc/messages",
      operation: "publishMessage",
      summary: "Publishes a message in plain JSON, or an envelope.",
      headers: ["Idempotency-Key"],
      body: shapes.publishMessage,
      response: shapes.published,
      errors: PUBLISH_ERRORS,
      example: { body: MESSAGE, response: SAMPLES.published },
      handler: async (asked) => publishedOf(await icc.publish(keyOf(asked), contentOf(asked.body))),
    }),
    route({
      ...publish,
      path: "/api/containers/:container_id/icc/publish",
      operation: "publishContainerEnvelope",
      summary: "Publishes a message from or to the container.",
      params: shapes.byContainer,
      body: shapes.publishMessage,
      response: shapes.published,
      errors: PUBLISH_ERRORS,
      example: { params: BY_CONTAINER, body: MESSAGE, response: SAMPLES.published },
      handler: async ({ caller, params, body, trace, address }) => {
        const { inbox: id } = await icc.container(caller.tenant_id, params.container_id);
        // A key of containers sends what the container itself may send.
        const isConfined = caller.container_ids !== undefined;
        const container = isConfined ? { id, name: await nameOf(caller.tenant_id, id) } : null;
        return publishedOf(await icc.publish({ ...keyOf({ caller, trace, address }), container }, contentOf(body)));
      },
    }),
    route({
      method: "POST",
      auth: "tenant",
      scope: "write",
      path: "/api/icc/request",
      operation: "requestReply",
      summary: "Publishes a message and waits for the reply with its msg_id as correlation_id.",
      body: shapes.requestMessage,
      response: shapes.replied,
      errors: [...PUBLISH_ERRORS, "TIMEOUT", "CONCURRENCY_LIMIT", "CAPACITY_FULL"],
      example: { body: { ...MESSAGE, timeout_ms: 5_000 }, response: SAMPLES.replied },
      handler: async (asked) => {
        const { timeout_ms, ...message } = asked.body;
        const { reply, ...accepted } = await icc.request(keyOf(asked), message, timeout_ms, asked.signal);
        return { ...publishedOf(accepted), reply: { ...reply } };
      },
    }),
  ];
}

function broadcastRoutes({ broadcasts }: IccRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/icc/messages/broadcast",
      auth: "tenant",
      scope: "write",
      operation: "broadcastMessage",
      summary: "Publishes a copy of an envelope to each target; a target that fails is among the results.",
      body: shapes.broadcastMessage,
      response: shapes.broadcastAnswer,
      errors: ["SHUTTING_DOWN"],
      example: { body: { envelope_b64: SAMPLES.ENVELOPE }, response: SAMPLES.broadcast },
      handler: async ({ caller, trace, address, body: { envelope_b64, targets } }) => {
        const content = { bytes: decodeBase64(envelope_b64) };
        const answer = await broadcasts.publish(keyOf({ caller, trace, address }), content, targets);
        return {
          ...answer,
          results: answer.results.map((one) => ({
            ...one,
            result: one.result === null ? null : publishedOf(one.result),
          })),
        };
      },
    }),
    route({
      method: "POST",
      path: "/api/icc/exec/broadcast",
      auth: "tenant",
      scope: "invoke",
      operation: "broadcastCommand",
      summary: "Runs a command in each target; a target in which it cannot run is among the results.",
      body: shapes.broadcastCommand,
      response: shapes.commandAnswer,
      errors: ["SHUTTING_DOWN"],
      example: {
        body: { command: ["echo", "ready"], targets: { container_ids: ["{container_id}"] } },
        response: SAMPLES.command,
      },
      handler: ({ caller, address, request_id, body: { targets, ...command }, signal }) => {
        const asked = { tenant_id: caller.tenant_id, by: sentBy(caller, address), request_id };
        return broadcasts.run(asked, command, targets, signal);
      },
    }),
  ];
}

function permissionRoutes({ icc }: IccRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/icc/containers/:container_id/permission",
      auth: "tenant",
      scope: "read",
      operation: "messagePermission",
      summary: "Returns the highest permission level that messages of the container itself may have.",
      params: shapes.byContainer,
      response: shapes.permission,
      errors: READ_ERRORS,
      example: { params: BY_CONTAINER, response: SAMPLES.permission },
      handler: ({ caller, params }) => icc.permission(caller.tenant_id, params.container_id),
    }),
    route({
      method: "PUT",
      path: "/api/icc/containers/:container_id/permission",
      auth: "tenant",
      scope: "write",
      operation: "setMessagePermission",
      summary:
        "Sets the highest permission level that messages of the container itself may have; EXECUTE and above need the scope invoke too.",
      params: shapes.byContainer,
      body: shapes.permissionBody,
      response: shapes.permission,
      errors: READ_ERRORS,
      example: { params: BY_CONTAINER, body: { permission_level: "EXECUTE" }, response: SAMPLES.permission },
      handler: ({ caller, params, body: { permission_level } }) => {
        // The container runs commands in others for whoever grants it.
        if (!isWithin(permission_level, "WRITE_STATE") && !caller.scopes.includes("invoke")) throw lacksScope("invoke");
        return icc.grant(caller.tenant_id, params.container_id, permission_level);
      },
    }),
  ];
}
