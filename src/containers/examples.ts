/** Scripts of the container concern's guide. Each is whole, prints just `output`, and removes what it made. */
import type { Scope } from "../base/caller.ts";
import { example, type GuideExample } from "../docs/guide.ts";

const USE: readonly Scope[] = ["write", "invoke"];
const ALL_OF_IT: readonly Scope[] = ["read", "write", "invoke"];
/** What to do first in every script that makes one container, whose id is in `$id`. */
const CLEANUP = `trap 'api "/api/containers/$id" -X DELETE >/dev/null' EXIT`;

export const CONTAINER_EXAMPLES: readonly GuideExample[] = [
  example(
    "Run a command in a container",
    "The container is ready when the response arrives. The response of an exec has the output, whatever the exit code.",
    USE,
    `
id=$(api /api/containers -d '{"name": "guide-box"}' | get container_id)
${CLEANUP}
api "/api/containers/$id/exec" -d '{"command": ["sh", "-c", "echo from $(hostname)"]}' | get stdout
`,
    "from guide-box\n",
  ),
  example(
    "Watch a command while it runs",
    "One JSON object per line, streamed; output is in base64.",
    USE,
    `
id=$(api /api/containers -d '{"name": "guide-stream"}' | get container_id)
${CLEANUP}
api "/api/containers/$id/stream" -N -d '{"command": ["sh", "-c", "echo one; echo two >&2; exit 3"]}' | python3 -c '
import base64, json, sys
for frame in map(json.loads, sys.stdin):
    if frame["type"] in ("stdout", "stderr"):
        print(frame["type"], base64.b64decode(frame["data_b64"]).decode().strip())
    if frame["type"] == "exit":
        print("exit", frame["code"])
' | sort
`,
    "exit 3\nstderr two\nstdout one\n",
  ),
  example(
    "A main command and its log",
    "A container with a command runs until the command exits; the daemon keeps its log and its files.",
    ALL_OF_IT,
    `
id=$(api /api/containers -d '{"name": "guide-job", "command": ["sh", "-c", "echo working; exit 4"]}' | get container_id)
${CLEANUP}
until [ "$(api "/api/containers/$id" | get state)" = exited ]; do sleep 0.1; done
echo "exit code $(api "/api/containers/$id" | get exit_code)"
api "/api/containers/$id/logs" | python3 -c 'import json, sys; print(json.load(sys.stdin)["logs"][0]["message"])'
`,
    "exit code 4\nworking\n",
  ),
  example(
    "A user and a health check",
    "Every command of the container runs as the user. The record and the events show the health.",
    ALL_OF_IT,
    `
health='{"command": ["test", "-e", "/tmp/ready"], "interval_seconds": 1}'
id=$(api /api/containers -d '{"name": "guide-health", "user": "nobody", "health": '"$health"'}' | get container_id)
${CLEANUP}
api "/api/containers/$id/exec" -d '{"command": ["id", "-un"]}' | get stdout
api "/api/containers/$id/exec" -d '{"command": ["touch", "/tmp/ready"]}' >/dev/null
status() { api "/api/containers/$id" | python3 -c 'import json, sys; print(json.load(sys.stdin)["health"]["status"])'; }
until [ "$(status)" = healthy ]; do sleep 0.2; done
echo healthy
`,
    "nobody\nhealthy\n",
  ),
];
