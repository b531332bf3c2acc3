/** Scripts of the guide of messages. Each is whole, prints just `output`, and removes what it made. */
import type { Scope } from "../base/caller.ts";
import { example, type GuideExample } from "../docs/guide.ts";

const USE: readonly Scope[] = ["write", "read"];
const CLEANUP = `trap 'api "/api/containers/$id" -X DELETE >/dev/null' EXIT`;

export const ICC_EXAMPLES: readonly GuideExample[] = [
  example(
    "Send a message and receive it",
    "A receiver holds the message until it acks it; a message without an ack comes again when its lease ends.",
    USE,
    `
id=$(api /api/containers -d '{"name": "guide-inbox"}' | get container_id)
${CLEANUP}
api /api/icc/messages -d '{"to": "guide-inbox", "type": "task.created", "payload": {"n": 42}}' | get stream_seq; echo
msg=$(api "/api/icc/inbox/$id/receive" -d '{"wait_ms": 5000}' | python3 -c '
import json, sys
(one,) = json.load(sys.stdin)["messages"]
print(one["message"]["payload"]["n"], file=sys.stderr)
print(one["msg_id"])
' 2>/tmp/guide-payload)
cat /tmp/guide-payload; rm /tmp/guide-payload
api /api/icc/ack -d '{"msg_id": "'"$msg"'"}' | get new_state
`,
    "1\n42\nacked",
  ),
  example(
    "Replay a dead letter",
    "A nack fails a message and makes it a dead letter, which can be published again.",
    USE,
    `
id=$(api /api/containers -d '{"name": "guide-dead"}' | get container_id)
${CLEANUP}
msg=$(api /api/icc/messages -d '{"to": "guide-dead", "type": "task.created", "payload": null}' | get msg_id)
api "/api/icc/inbox/$id/ack" -d '{"msg_id": "'"$msg"'", "action": "nack", "reason": "bad input"}' | get new_state; echo
dead=$(api /api/icc/dlq | python3 -c 'import json, sys; print(json.load(sys.stdin)["messages"][-1]["stream_seq"])')
api "/api/icc/dlq/$dead/replay" -d '{}' | get stream_seq
`,
    "failed\n2",
  ),
];
