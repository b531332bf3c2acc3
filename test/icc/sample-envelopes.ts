/** An envelope of each payload kind with every field set, and its bytes as `protoc --encode=jets.Envelope` made them. */
import type { Envelope, Payload } from "../../src/icc/envelope/envelope.ts";

export const SENT_AT = 1_700_000_000_000;

export const HEAD = {
  version: 1,
  msg_id: "msg-1",
  request_id: "req-1",
  trace_id: "trace-1",
  correlation_id: "cor-1",
  causation_id: "cau-1",
  from: "ctr_a",
  to: "ctr_b",
  stream_key: "ctr_b",
  seq: 7,
  sent_at: SENT_AT,
  ttl_ms: 60_000,
  permission_level: "FULL",
  idempotency_key: "key-1",
} as const;

const HEAD_B64 =
  "CAESBW1zZy0xGgVyZXEtMSIHdHJhY2UtMSoFY29yLTEyBWNhdS0xOgVjdHJfYUIFY3RyX2JKBWN0cl9iUAdYgNCV/7wxYODUA2gFcgVrZXktMX";

const PAYLOADS: readonly (readonly [Payload, string])[] = [
  [
    { kind: "state_snapshot", value: { content_type: "application/json", data: Buffer.from("{}") } },
    "oYChYKEGFwcGxpY2F0aW9uL2pzb24SAnt9",
  ],
  [
    {
      kind: "state_patch",
      value: {
        content_type: "application/json",
        patch: Buffer.from([1, 255]),
        desired_state_version: Number.MAX_SAFE_INTEGER,
        apply_mode: "DRY_RUN",
      },
    },
    "ojEiEKEGFwcGxpY2F0aW9uL2pzb24SAgH/GP////////8PIAE=",
  ],
  [
    {
      kind: "exec_command",
      value: {
        argv: ["sh", "", "-c"],
        timeout_ms: 1_000,
        workdir: "/work",
        env: { A: "ä", B: "" },
        desired_state_version: 3,
        apply_mode: "ENFORCE",
      },
    },
    "oqGigKAnNoCgAKAi1jEOgHGgUvd29yayIHCgFBEgLDpCIFCgFCEgAoAzAC",
  ],
  [
    {
      kind: "file_patch",
      value: {
        path: "/etc/a",
        content_type: "text/plain",
        patch: Buffer.from("x"),
        desired_state_version: 1,
        apply_mode: "ENFORCE",
      },
    },
    "odIhsKBi9ldGMvYRIKdGV4dC9wbGFpbhoBeCABKAI=",
  ],
  [
    {
      kind: "env_patch",
      value: { set: { A: "1" }, unset: ["B"], desired_state_version: 2, apply_mode: "DRY_RUN" },
    },
    "oRKg8KBgoBQRIBMRIBQhgCIAE=",
  ],
  [
    { kind: "lifecycle_action", value: { action: "stop", desired_state_version: 4, apply_mode: "ENFORCE" } },
    "oMMgoKBHN0b3AQBBgC",
  ],
  [
    {
      kind: "ack",
      value: {
        status: "CONFLICT",
        applied_at: SENT_AT + 1,
        previous_version: 5,
        result_version: 6,
        error_code: "VERSION_CONFLICT",
        error_message: "no",
      },
    },
    "oVOhMIAxCB0JX/vDEYBSAGKAMyAm5v",
  ],
  [
    { kind: "error", value: { code: "IDMP_REPLAY", message: "again", details: { k: "v" } } },
    "oTQhEICBIFYWdhaW4aBgoBaxIBdg==",
  ],
];

export interface Sample {
  readonly kind: Payload["kind"];
  readonly envelope: Envelope;
  readonly bytes: Buffer;
}

export const SAMPLES: readonly Sample[] = PAYLOADS.map(([payload, tail]) => ({
  kind: payload.kind,
  envelope: { ...HEAD, payload },
  bytes: Buffer.from(HEAD_B64 + tail, "base64"),
}));

export function sample(kind: Payload["kind"]): Sample {
  const found = SAMPLES.find((one) => one.kind === kind);
  if (found === undefined) throw new Error(`no sample of ${kind}`);
  return found;
}
