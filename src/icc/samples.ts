/** Answers of a daemon to the examples of the routes, as the description of the API shows them. */
const ENVELOPE =
  "CAESFG1zZ183azJtOXF4NGh4MXY4YzBiOgNhcGlCFGN0cl9jMXY4aHgybTlxazR0ZTdiWKDNtOerNGCAuJkpaAF6MgowCiBhcHBsaWNhdGlvbi9qc29uOyB0eXBlPXRhc2suY3JlYXRlZBIMeyJuIjo0Mn0=";

const published = {
  msg_id: "msg_7k2m9qx4hx1v8c0b",
  container_id: "ctr_c1v8hx2m9qk4te7b",
  stream: "INBOX_CTR_C1V8HX2M9QK4TE7B",
  subject: "jets.cmd.ctr_c1v8hx2m9qk4te7b",
  stream_seq: 1,
  duplicate: false,
};

const envelope_summary = {
  msg_id: published.msg_id,
  from: "api",
  to: published.container_id,
  request_id: "",
  permission_level: "READ_ONLY",
  payload_kind: "state_snapshot",
  type: "task.created",
  trace_id: "",
  correlation_id: "",
  causation_id: "",
  sent_at: 1_795_600_000_000,
  ttl_ms: 604_800_000,
};

const inboxMessage = {
  msg_id: published.msg_id,
  stream: published.stream,
  stream_seq: 1,
  envelope_b64: ENVELOPE,
  envelope_summary,
  state: "unread" as const,
  deliveries: 0,
  is_leased: false,
  created_at: 1_795_600_000,
  expires_at: 1_796_204_800,
};

const message = {
  msg_id: published.msg_id,
  from: "api",
  to: published.container_id,
  type: "task.created",
  payload: { n: 42 },
};

const stream = {
  container_id: published.container_id,
  stream: published.stream,
  subject: published.subject,
  last_seq: 1,
  unread: 1,
  messages: 1,
  bytes: 430,
  state_version: 0,
};

export const SAMPLES = {
  ENVELOPE,
  published,
  inbox: { container_id: published.container_id, stream: published.stream, messages: [inboxMessage] },
  received: {
    messages: [
      {
        ...inboxMessage,
        ...{ deliveries: 1, is_leased: true, lease: "lease_1", lease_expires_at: 1_795_600_030 },
        message,
      },
    ],
  },
  replied: {
    ...published,
    reply: { ...message, from: published.container_id, to: "api", correlation_id: published.msg_id },
  },
  acked: {
    msg_id: published.msg_id,
    container_id: published.container_id,
    new_state: "acked" as const,
    dlq_forwarded: false,
  },
  replayed: { replayed: 1, messages: [published] },
  dead: {
    stream: "JETS_DLQ",
    last_seq: 1,
    messages: [
      {
        ...{ msg_id: published.msg_id, stream: "JETS_DLQ", stream_seq: 1, envelope_b64: ENVELOPE, envelope_summary },
        container_id: published.container_id,
        original_stream: published.stream,
        original_stream_seq: 1,
        ...{ reason: "max_deliver", deliveries: 5, created_at: 1_795_600_300, replayed_at: null },
      },
    ],
  },
  broadcast: {
    request_id: "req_2v8c0b7k9m4x1hqt",
    accepted: 1,
    failed: 0,
    results: [{ target: published.container_id, msg_id: "msg_7k2m9qx4hx1v8c0b-1", result: published, error: null }],
  },
  command: {
    succeeded: 1,
    failed: 0,
    results: [
      {
        ...{ container_id: published.container_id, job_id: "job_4m0v9c2x7k1t8r6d", exit_code: 0 },
        ...{ stdout: "ready\n", stderr: "", timed_out: false, error: null },
      },
    ],
  },
  streams: { streams: [stream], next_after: null },
  container: { ...stream, permission_level: "READ_ONLY" as const },
  permission: { container_id: published.container_id, permission_level: "EXECUTE" as const },
  topics: { topics: [{ topic: "topic:prices", subscribers: 1 }], next_after: null },
  subscribers: {
    topic: "topic:prices",
    subscribers: [{ container_id: published.container_id, created_at: 1_795_600_000 }],
    next_after: null,
  },
  subscription: { topic: "topic:prices", container_id: published.container_id, subscribed: true },
  overview: {
    backend: "embedded" as const,
    sync_mode: "write-ahead log, synced before a publish is answered, not before an ack",
    dlq: { stream: "JETS_DLQ", subject: "jets.dlq" },
    socket: "/run/hearth/icc.sock",
  },
};
