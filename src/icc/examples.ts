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
  example(
    "Change a container by messages",
    "The daemon applies the payload and replies with the outcome; with DRY_RUN it checks the payload alone.",
    [...USE, "invoke"],
    `
id=$(api /api/containers -d '{"name": "guide-target"}' | get container_id)
${CLEANUP}
apply() { api /api/icc/request -d '{"to": "guide-target", "type": "'"$1"'", "payload": '"$2"'}' | outcome; }
outcome() { python3 -c 'import json, sys; p = json.load(sys.stdin)["reply"]["payload"]; print(p["status"], p["result_version"])'; }
apply file_patch '{"path": "/root/a", "content_type": "text/plain", "patch": "hello"}'
apply exec_command '{"argv": ["cp", "/root/a", "/root/b"]}'
apply lifecycle_action '{"action": "stop", "apply_mode": "DRY_RUN"}'
api "/api/containers/$id/exec" -d '{"command": ["cat", "/root/b"]}' | get stdout
`,
    "APPLIED 1\nAPPLIED 2\nAPPLIED 2\nhello",
  ),
  example(
    "Copy messages to subscribers of a topic",
    "Each subscriber of a topic gets a copy; a queue as subscriber shares the copies among its receivers.",
    USE,
    `
id=$(api /api/containers -d '{"name": "guide-subscriber"}' | get container_id)
${CLEANUP}
api /api/icc/topics/guide-news/subscribers/guide-subscriber -X PUT | get subscribed; echo
api /api/icc/messages -d '{"to": "topic:guide-news", "type": "headline", "payload": "rain"}' >/dev/null
api "/api/icc/inbox/$id?include_message=true" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["messages"][0]["message"]["payload"], end="")'
`,
    "True\nrain",
  ),
  example(
    "Answer requests with a function",
    "A binding calls a function for each message of a queue, and with reply sends its result to the sender.",
    [...USE, "invoke"],
    `
fn=$(api /api/functions -d '{"name": "guide-upper", "handler": "tr a-z A-Z"}' | get id)
trap 'api "/api/functions/$fn" -X DELETE >/dev/null' EXIT
api "/api/functions/$fn/deploy" -d '{}' >/dev/null
api /api/icc/bindings -d '{"function": "guide-upper", "subject": "queue:guide-upper", "reply": true}' | get inbox; echo
api /api/icc/request -d '{"to": "queue:guide-upper", "type": "ask", "payload": "hello"}' |
  python3 -c 'import json, sys; print(json.loads(json.load(sys.stdin)["reply"]["payload"])["MESSAGE"]["PAYLOAD"], end="")'
`,
    "queue:guide-upper\nHELLO",
  ),
];
