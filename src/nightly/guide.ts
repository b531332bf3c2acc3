/** The guide of the concern nightly. */
import { example, type Guide } from "../docs/guide.ts";
import { profileStates } from "./states.ts";

export const nightlyGuide: Guide<"nightly"> = {
  concern: "nightly",
  about:
    "A profile is a curated image of this node. A release is one built version of it, with a list of its packages and their licences. A channel names a release: latest the newest one of the current recipe, stable the one that the operator chose.",
  steps: [
    "GET /api/nightly/profiles lists the profiles; a container or function takes the name of one as image.",
    "The first use of a profile without a release builds it. The creation of the container or function waits for that; with execution=async the operation of a container shows the progress.",
    "GET /api/nightly/profiles/{profile}/resolve returns the immutable reference of the release that a channel names.",
    "POST /api/oci/images/pull takes that reference, from this node and no registry; POST /api/containers then takes it as image with oci: true.",
    "image also takes <profile>:stable, <profile>:latest and <profile>@<version>.",
    "GET /api/nightly/profiles/{profile}/releases/{version} lists packages and licences; …/diff/{other} compares two releases.",
    "GET /api/nightly/profiles/{profile}/updates lists packages with newer versions, security updates among them.",
    "The operator builds ahead with POST …/build, moves a channel with POST …/promote, and returns it with POST …/rollback.",
  ],
  machine: profileStates,
  states: {
    absent: "The node has no release of the recipe; the first use builds one.",
    building: "A build runs; progress_pct and message show the progress.",
    ready: "latest names a release.",
    failed: "The last build failed, and no release is there. The next use starts another build after a backoff.",
  },
  limits: [
    "profile_build_ms",
    "profile_wait_ms",
    "profile_waiters_per_tenant_max",
    "profile_waiters_max",
    "profile_backoff_ms",
    "profile_backoff_ms_max",
    "profile_updates_kept_seconds",
  ],
  examples: [
    example(
      "A container of a pinned release",
      "Resolves a channel, pulls the reference and makes a container of it.",
      ["read", "write"],
      `
reference=$(api '/api/nightly/profiles/prod/resolve?channel=latest' | get oci_reference)
api /api/oci/images/pull -d '{"reference": "'"$reference"'"}' > /dev/null
id=$(api /api/containers -d '{"name": "pinned", "image": "'"$reference"'", "oci": true}' | get container_id)
api /api/containers/$id/exec -d '{"command": ["python3", "-c", "print(6 * 7)"]}' | get stdout
api /api/containers/$id -X DELETE > /dev/null
`,
      "42\n",
    ),
  ],
};
