/** Routes that read, receive, settle and replay messages of inboxes. */
import type { z } from "zod";
import type { Caller } from "../base/caller.ts";
import { AppError } from "../base/errors.ts";
import { route } from "../http/route.ts";
import { deliveryItem } from "./items.ts";
import { PUBLISH_ERRORS, publishedOf } from "./published.ts";
import { sentBy } from "./publishing.ts";
import { SAMPLES } from "./samples.ts";
import * as shapes from "./schema.ts";
import { differs, type Icc, type Replayer } from "./service.ts";

interface InboxRoutesOptions {
  readonly icc: Icc;
}

const BY_CONTAINER = { container_id: "{container_id}" };
const READ_ERRORS = ["NOT_FOUND", "SERVICE_UNAVAILABLE"] as const;
const ACK_ERRORS = ["NOT_FOUND", "WRONG_STATE", "AMBIGUOUS_MESSAGE", "SERVICE_UNAVAILABLE"] as const;
const MSG = { msg_id: SAMPLES.published.msg_id };

type Asked = { readonly caller: Caller; readonly address: string | null };

const replayerOf = ({ caller, address }: Asked): Replayer => ({
  ...{ tenant_id: caller.tenant_id, scopes: caller.scopes, by: sentBy(caller, address) },
});

/** Throws NOT_FOUND for what is no number, and INVALID_ARGUMENT for 0: numbers begin at 1. */
function deadSeqOf(text: string): number {
  if (/^0+$/.test(text)) throw new AppError("INVALID_ARGUMENT", "stream_seq: must be at least 1");
  if (!/^[1-9]\d{0,9}$/.test(text)) throw new AppError("NOT_FOUND", `no dead letter has the stream_seq ${text}`);
  return Number(text);
}

/** The msg_id of the path, which the body may repeat. Throws INVALID_ARGUMENT for another one. */
function sameMessage(named: string, repeated: string | null | undefined): string {
  if (repeated == null || repeated === named) return named;
  throw differs("msg_id", repeated, named);
}

export function inboxRoutes(options: InboxRoutesOptions) {
  return [...readRoutes(options), ...receiveRoutes(options), ...ackRoutes(options), ...replayRoutes(options)];
}

function readRoutes({ icc }: InboxRoutesOptions) {
  const read = { method: "GET", auth: "tenant", scope: "read", errors: READ_ERRORS } as const;
  const ofInbox = { ...read, params: shapes.byInbox, query: shapes.inboxQuery, response: shapes.inboxMessages };
  const ofContainer = { ...ofInbox, params: shapes.byContainer };
  const example = { params: BY_CONTAINER, response: SAMPLES.inbox };
  return [
    route({
      ...read,
      path: "/api/icc/messages",
      operation: "listMessages",
      summary: "Lists messages of an inbox by stream_seq, without delivering them.",
      query: shapes.messagesQuery,
      response: shapes.inboxMessages,
      example: { query: BY_CONTAINER, response: SAMPLES.inbox },
      handler: async ({ caller, query: { container_id, ...query } }) =>
        icc.read(caller.tenant_id, (await icc.container(caller.tenant_id, container_id)).inbox, query),
    }),
    route({
      ...ofInbox,
      path: "/api/icc/inbox/:container_id",
      operation: "readInbox",
      summary: "Lists messages of an inbox by stream_seq, without delivering them.",
      example,
      handler: ({ caller, params, query }) => icc.read(caller.tenant_id, params.container_id, query),
    }),
    route({
      ...ofContainer,
      path: "/api/containers/:container_id/inbox",
      operation: "readContainerInbox",
      summary: "Lists messages of the container's inbox by stream_seq, without delivering them.",
      example,
      handler: async ({ caller, params, query }) =>
        icc.read(caller.tenant_id, (await icc.container(caller.tenant_id, params.container_id)).inbox, query),
    }),
    route({
      ...ofContainer,
      path: "/api/containers/:container_id/messages",
      operation: "listContainerMessages",
      summary: "Lists messages of the container's inbox by stream_seq, without delivering them.",
      example,
      handler: async ({ caller, params, query }) =>
        icc.read(caller.tenant_id, (await icc.container(caller.tenant_id, params.container_id)).inbox, query),
    }),
    route({
      ...read,
      path: "/api/containers/:container_id/icc",
      operation: "containerMessaging",
      summary: "Returns the counts of the container's inbox and what the container may send.",
      params: shapes.byContainer,
      response: shapes.containerMessaging,
      example: { params: BY_CONTAINER, response: SAMPLES.container },
      handler: ({ caller, params }) => icc.facts(caller.tenant_id, params.container_id),
    }),
    route({
      ...read,
      path: "/api/icc/containers/:container_id/state-version",
      operation: "stateVersion",
      summary: "Returns the container's state version, which each applied action moves.",
      params: shapes.byContainer,
      response: shapes.stateVersion,
      example: { params: BY_CONTAINER, response: { container_id: SAMPLES.container.container_id, state_version: 0 } },
      handler: async ({ caller, params }) => {
        const { container_id, state_version } = await icc.facts(caller.tenant_id, params.container_id);
        return { container_id, state_version };
      },
    }),
    route({
      method: "GET",
      auth: "tenant",
      scope: "read",
      path: "/api/icc/dlq",
      operation: "listDeadLetters",
      summary: "Lists the tenant's dead letters by stream_seq.",
      query: shapes.deadQuery,
      response: shapes.deadLetters,
      example: { response: SAMPLES.dead },
      handler: ({ caller, query }) => icc.deadLetters(caller.tenant_id, query),
    }),
  ];
}

function receiveRoutes({ icc }: InboxRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/icc/inbox/:container_id/receive",
      auth: "tenant",
      scope: "write",
      operation: "receiveMessages",
      summary: "Delivers messages of an inbox, each held by a lease until it is acked or the lease ends.",
      params: shapes.byInbox,
      body: shapes.receiveMessages,
      response: shapes.received,
      errors: [...READ_ERRORS, "CONCURRENCY_LIMIT", "CAPACITY_FULL", "SHUTTING_DOWN"],
      example: { params: BY_CONTAINER, body: { max: 1 }, response: SAMPLES.received },
      handler: async ({ caller, params, body, signal }) => {
        const deliveries = await icc.receive(caller.tenant_id, params.container_id, body, signal);
        return { messages: deliveries.map(deliveryItem) };
      },
    }),
  ];
}

function ackRoutes({ icc }: InboxRoutesOptions) {
  const ack = {
    method: "POST",
    auth: "tenant",
    scope: "write",
    response: shapes.ackAnswer,
    errors: ACK_ERRORS,
  } as const;
  const inInbox = { ...ack, params: shapes.byInbox, body: shapes.ackInInbox };
  return [
    route({
      ...ack,
      path: "/api/icc/ack",
      operation: "ackMessage",
      summary: "Acks or fails a message by its msg_id, in whichever inbox it is.",
      body: shapes.ackAnywhere,
      example: { body: MSG, response: SAMPLES.acked },
      handler: ({ caller, body: { container_id, ...input } }) =>
        icc.settle(caller.tenant_id, container_id ?? null, input),
    }),
    route({
      ...ack,
      path: "/api/icc/messages/:msg_id/ack",
      operation: "ackMessageById",
      summary: "Acks or fails the message of the path, in whichever inbox it is.",
      params: shapes.byMessage,
      body: shapes.ackById,
      example: { params: MSG, body: { action: "ack" }, response: SAMPLES.acked },
      handler: ({ caller, params, body: { container_id, ...input } }) =>
        icc.settle(caller.tenant_id, container_id ?? null, {
          ...input,
          msg_id: sameMessage(params.msg_id, input.msg_id),
        }),
    }),
    route({
      ...inInbox,
      path: "/api/icc/inbox/:container_id/ack",
      operation: "ackInboxMessage",
      summary: "Acks or fails a message of an inbox.",
      example: { params: BY_CONTAINER, body: MSG, response: SAMPLES.acked },
      handler: async ({ caller, params, body: { container_id, ...input } }) =>
        icc.settle(caller.tenant_id, await icc.same(caller.tenant_id, params.container_id, container_id), input),
    }),
    route({
      ...inInbox,
      params: shapes.byContainer,
      path: "/api/containers/:container_id/inbox/ack",
      operation: "ackContainerMessage",
      summary: "Acks or fails a message of the container's inbox.",
      example: { params: BY_CONTAINER, body: MSG, response: SAMPLES.acked },
      handler: async ({ caller: { tenant_id }, params, body: { container_id, ...input } }) => {
        const { inbox } = await icc.container(tenant_id, params.container_id);
        return icc.settle(tenant_id, await icc.same(tenant_id, inbox, container_id), input);
      },
    }),
  ];
}

function replayRoutes({ icc }: InboxRoutesOptions) {
  const replay = { method: "POST", auth: "tenant", scope: "write", errors: PUBLISH_ERRORS } as const;
  const again = async (asked: Asked, inbox: string, range: z.output<typeof shapes.replayInInbox>) => {
    const { replayed, messages } = await icc.replay(replayerOf(asked), inbox, range);
    return { replayed, messages: messages.map(publishedOf) };
  };
  const inInbox = { ...replay, params: shapes.byInbox, body: shapes.replayInInbox, response: shapes.replayed };
  return [
    route({
      ...replay,
      path: "/api/icc/replay",
      operation: "replayMessages",
      summary: "Publishes messages of an inbox to it once more, with new ids.",
      body: shapes.replayMessages,
      response: shapes.replayed,
      example: { body: { container_id: "{container_id}", state: "acked", limit: 10 }, response: SAMPLES.replayed },
      handler: async (asked) => {
        const { container_id, ...range } = asked.body;
        return again(asked, (await icc.container(asked.caller.tenant_id, container_id)).inbox, range);
      },
    }),
    route({
      ...inInbox,
      path: "/api/icc/inbox/:container_id/replay",
      operation: "replayInbox",
      summary: "Publishes messages of the inbox to it once more, with new ids.",
      example: { params: BY_CONTAINER, body: { state: "acked" }, response: SAMPLES.replayed },
      handler: async (asked) => {
        const { container_id, ...range } = asked.body;
        return again(asked, await icc.same(asked.caller.tenant_id, asked.params.container_id, container_id), range);
      },
    }),
    route({
      ...inInbox,
      params: shapes.byContainer,
      path: "/api/containers/:container_id/inbox/replay",
      operation: "replayContainerInbox",
      summary: "Publishes messages of the container's inbox to it once more, with new ids.",
      example: { params: BY_CONTAINER, body: { state: "acked" }, response: SAMPLES.replayed },
      handler: async (asked) => {
        const { container_id, ...range } = asked.body;
        const { tenant_id } = asked.caller;
        const { inbox } = await icc.container(tenant_id, asked.params.container_id);
        return again(asked, await icc.same(tenant_id, inbox, container_id), range);
      },
    }),
    route({
      ...replay,
      path: "/api/icc/dlq/:stream_seq/replay",
      operation: "replayDeadLetter",
      summary: "Publishes a dead letter again, with a new id; it stays a dead letter.",
      params: shapes.byDeadLetter,
      body: shapes.replayDead,
      response: shapes.published,
      example: { params: { stream_seq: "1" }, body: {}, response: SAMPLES.published },
      handler: async (asked) => {
        const { stream_seq } = asked.params;
        const target = asked.body.replay_to_container ?? null;
        return publishedOf(await icc.replayDead(replayerOf(asked), deadSeqOf(stream_seq), target));
      },
    }),
  ];
}
