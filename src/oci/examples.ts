/** Scripts of the image concern's guide. Each is whole, prints just `output`, and removes what it made. */
import { example, type GuideExample } from "../docs/guide.ts";

export const IMAGE_EXAMPLES: readonly GuideExample[] = [
  example(
    "Pull an image and run it",
    "The image is docker.io/library/alpine:3.20 in full. The container keeps the image that the reference names now.",
    ["write", "invoke"],
    `
api /api/oci/images/pull -d '{"reference": "alpine:3.20"}' >/dev/null
id=$(api /api/containers -d '{"name": "guide-alpine", "image": "alpine:3.20", "oci": true, "command": ["sleep", "600"]}' | get container_id)
trap 'api "/api/containers/$id" -X DELETE >/dev/null; api "/api/oci/images?reference=alpine:3.20" -X DELETE >/dev/null' EXIT
api "/api/containers/$id/exec" -d '{"command": ["sh", "-c", "echo hello from an image"]}' | get stdout
`,
    "hello from an image\n",
  ),
  example(
    "Watch a pull",
    "With execution=async the pull is an operation, whose record shows the progress and can be cancelled.",
    ["read", "write"],
    `
trap 'api "/api/oci/images?reference=alpine:3.20" -X DELETE >/dev/null' EXIT
operation=$(api "/api/oci/images/pull?execution=async" -d '{"reference": "alpine:3.20"}' | get operation_id)
api "/api/operations/$operation?wait_seconds=60" | get status; echo
api "/api/oci/images/inspect?reference=alpine:3.20" | python3 -c 'import json, sys; print(json.load(sys.stdin)["image"]["reference"])'
`,
    "succeeded\ndocker.io/library/alpine:3.20\n",
  ),
];
