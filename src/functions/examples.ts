/** Scripts of the function concern's guide. Each is whole, prints just `output`, and removes what it made. */
import type { Scope } from "../base/caller.ts";
import { example, type GuideExample } from "../docs/guide.ts";

/** What to do first in every script that makes one function, whose id is in `$id`. */
const CLEANUP = `trap 'api "/api/functions/$id" -X DELETE >/dev/null' EXIT`;

const USE: readonly Scope[] = ["write", "invoke"];
const ALL_OF_IT: readonly Scope[] = ["read", "write", "invoke"];

export const FUNCTION_EXAMPLES: readonly GuideExample[] = [
  example(
    "Check the health",
    "The daemon is alive and can serve calls.",
    ["read"],
    `
daemon=$(curl -sS --fail-with-body "$HEARTH_URL/health" | get status)
functions=$(api /api/functions/health | get status)
echo "daemon: $daemon, functions: $functions"
`,
    "daemon: ok, functions: ok\n",
  ),
  example(
    "Create, deploy, call",
    "The payload is the handler's standard input; the record has its standard output.",
    USE,
    `
id=$(api /api/functions -d '{"name": "guide-hello", "handler": "echo hello, $(cat)"}' | get id)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
api /api/functions/invoke/guide-hello -d '{"payload": "world"}' | get stdout
`,
    "hello, world\n",
  ),
  example(
    "A payload from a file",
    "Send a file as a JSON string; the handler receives its exact bytes. Other JSON values arrive as JSON text.",
    USE,
    String.raw`
file=$(mktemp)
trap 'rm "$file"' EXIT
id=$(api /api/functions -d '{"name": "guide-lines", "handler": "wc -l"}' | get id)
trap 'rm "$file"; api "/api/functions/$id" -X DELETE >/dev/null' EXIT
api "/api/functions/$id/deploy" -X POST >/dev/null
printf 'one\ntwo, "in quotes"\nthree\n' >"$file"
python3 -c 'import json, sys; print(json.dumps({"payload": sys.stdin.read()}))' <"$file" |
  api "/api/functions/$id/invoke" --data-binary @- | get stdout
`,
    "3\n",
  ),
  example(
    "A handler in Python",
    "A handler may use any program of the image: bash, python3, curl, coreutils.",
    USE,
    `
id=$(api /api/functions -d @- <<'END' | get id
{"name": "guide-sum", "handler": "python3 -c 'import json, sys; print(sum(json.load(sys.stdin)))'"}
END
)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
api /api/functions/invoke/guide-sum -d '{"payload": "[1, 2, 3]"}' | get stdout
`,
    "6\n",
  ),
  example(
    "Versions and rollback",
    "PUT creates the next version and activates it; a rollback activates an earlier one. No call fails meanwhile.",
    ALL_OF_IT,
    `
call() { api /api/functions/invoke/guide-versions -X POST | get stdout; }
id=$(api /api/functions -d '{"name": "guide-versions", "handler": "echo first"}' | get id)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
call
api "/api/functions/$id" -X PUT -d '{"handler": "echo second"}' >/dev/null
call
api "/api/functions/$id/rollback" -d '{"version": 1}' >/dev/null
call
api "/api/functions/$id/versions" |
  python3 -c 'import json, sys; [print(v["version"], v["is_active"]) for v in json.load(sys.stdin)["versions"]]'
`,
    "first\nsecond\nfirst\n2 False\n1 True\n",
  ),
  example(
    "Pause and resume",
    "A paused function has no instances and refuses calls with 409 WRONG_STATE and a hint.",
    USE,
    `
id=$(api /api/functions -d '{"name": "guide-pause", "handler": "echo awake"}' | get id)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
api "/api/functions/$id/pause" -X POST | get message; echo
curl -sS -H "X-Api-Key: $HEARTH_KEY" "$HEARTH_URL/api/functions/$id/invoke" -X POST | get hint; echo
api "/api/functions/$id/resume" -X POST >/dev/null
api "/api/functions/$id/invoke" -X POST | get stdout
`,
    "function paused\nresume it first\nawake\n",
  ),
  example(
    "Records",
    "The status is 200 if a handler fails, too. The daemon keeps the record with its result.",
    ALL_OF_IT,
    `
id=$(api /api/functions -d '{"name": "guide-records", "handler": "echo oh no >&2; exit 3"}' | get id)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
call=$(api "/api/functions/$id/invoke" -X POST | get invocation_id)
record=$(api "/api/functions/$id/invocations/$call")
printf '%s' "$record" | get status; echo
printf '%s' "$record" | get exit_code; echo
printf '%s' "$record" | get stderr
api "/api/functions/$id/invocations?limit=10" |
  python3 -c 'import json, sys; print(len(json.load(sys.stdin)["invocations"]), "kept")'
`,
    "failed\n3\noh no\n1 kept\n",
  ),
  example(
    "Environment",
    "Variables of the call override those of the function.",
    USE,
    `
id=$(api /api/functions -d @- <<'END' | get id
{"name": "guide-environment", "handler": "echo $GREETING, $WHO", "environment": {"GREETING": "hello", "WHO": "nobody"}}
END
)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
api "/api/functions/$id/invoke" -X POST | get stdout
api "/api/functions/$id/invoke" -d '{"environment": {"WHO": "you"}}' | get stdout
`,
    "hello, nobody\nhello, you\n",
  ),
  example(
    "Warm instances",
    "With min_instances, deploy responds when they are ready, and the first call is warm.",
    ALL_OF_IT,
    `
id=$(api /api/functions -d '{"name": "guide-warm", "handler": "cat", "min_instances": 2}' | get id)
${CLEANUP}
api "/api/functions/$id/deploy" -X POST >/dev/null
ready=$(api "/api/functions/$id/pool" | get ready_count)
cold=$(api "/api/functions/$id/invoke" -X POST | get cold_start)
echo "ready: $ready, cold: $cold"
`,
    "ready: 2, cold: False\n",
  ),
  example(
    "Code for nodejs",
    "Send a folder as tar.gz, then make a version with it. The record has the returned value as result.",
    USE,
    `
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/index.mjs" <<'END'
export const handler = ({ numbers }) => ({ sum: numbers.reduce((sum, n) => sum + n, 0) });
END
id=$(api /api/functions -d '{"name": "guide-node", "runtime": "nodejs", "handler": "index.mjs#handler"}' | get id)
trap 'rm -r "$folder"; api "/api/functions/$id" -X DELETE >/dev/null' EXIT
tar cz -C "$folder" . |
  api "/api/functions/$id/code?note=first" -X PUT -H "Content-Type: application/gzip" --data-binary @- | get version; echo
api "/api/functions/$id/deploy" -X POST >/dev/null
api "/api/functions/$id/invoke" -d '{"payload": {"numbers": [1, 2, 3]}}' | get result
`,
    "2\n{'sum': 6}",
  ),
  example(
    "A deployment of Python, and a smoke call that refuses",
    "A deployment creates or updates functions, all or none. With dry_run it only reports the changes.",
    USE,
    String.raw`
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
upload() {
  printf '%s\n' "$1" >"$folder/main.py"
  tar cz -C "$folder" main.py | api /api/functions/code -H "Content-Type: application/gzip" --data-binary @- | get code_sha256
}
deploy() {
  curl -sS -H "X-Api-Key: $HEARTH_KEY" "$HEARTH_URL/api/functions/deployments" -d @- <<END
{"dry_run": $2, "functions": [{"name": "guide-python", "runtime": "python3", "handler": "main.py:handler",
  "code_sha256": "$1", "smoke": {"payload": [1, 2]}}]}
END
}
action() { python3 -c 'import json, sys; print(json.load(sys.stdin)["functions"][0]["action"])'; }
good=$(upload 'handler = lambda payload, context: sum(payload)')
deploy "$good" true | action
id=$(deploy "$good" false | python3 -c 'import json, sys; print(json.load(sys.stdin)["functions"][0]["function_id"])')
trap 'rm -r "$folder"; api "/api/functions/$id" -X DELETE >/dev/null' EXIT
bad=$(upload 'handler = lambda payload, context: payload["a"]')
deploy "$bad" true | action
deploy "$bad" false | get error; echo
api "/api/functions/$id/invoke" -d '{"payload": [3, 4]}' | get result
`,
    "created\nupdated\nsmoke call: expected success, got failed: TypeError: list indices must be integers or slices, not str\n7",
  ),
  example(
    "A function that calls another",
    "With api_access, a handler has HEARTH_URL and HEARTH_KEY, which is valid until its call ends.",
    USE,
    String.raw`
inner=$(api /api/functions -d '{"name": "guide-inner", "handler": "tr a-z A-Z"}' | get id)
trap 'api "/api/functions/$inner" -X DELETE >/dev/null' EXIT
outer=$(api /api/functions -d @- <<'END' | get id
{"name": "guide-outer", "api_access": true, "handler": "curl -sS -H \"X-Api-Key: $HEARTH_KEY\" $HEARTH_URL/api/functions/invoke/guide-inner -d '{\"payload\": \"from inside\"}' | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"stdout\"])'"}
END
)
trap 'for id in "$outer" "$inner"; do api "/api/functions/$id" -X DELETE >/dev/null; done' EXIT
for id in "$inner" "$outer"; do api "/api/functions/$id/deploy" -X POST >/dev/null; done
api "/api/functions/$outer/invoke" -X POST | get stdout
`,
    "FROM INSIDE\n",
  ),
  example(
    "A key with fewer scopes, and a token",
    "Keys have scopes; tokens expire. Revoking a key ends the key and its tokens immediately.",
    ["read", "admin"],
    String.raw`
made=$(api /api/api-keys -d '{"name": "guide-reader", "scopes": ["read"]}')
key_id=$(echo "$made" | get id)
trap 'api "/api/api-keys/$key_id" -X DELETE >/dev/null' EXIT
token=$(curl -sS --fail-with-body -H "X-Api-Key: $(echo "$made" | get key)" \
  "$HEARTH_URL/api/auth/token" -d '{"expires_in": 60}' | get access_token)
try() { curl -sS -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $token" "$HEARTH_URL$@"; }
try /api/functions
try /api/functions/invoke/anything -X POST
api "/api/api-keys/$key_id" -X DELETE | get message; echo
trap - EXIT
try /api/functions
`,
    "200\n403\napi key revoked\n401\n",
  ),
];
