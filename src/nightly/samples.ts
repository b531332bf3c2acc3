/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import type { OperationRecord } from "../operations/schema.ts";
import type { ProfileRecord, ReleaseRecord } from "./schema.ts";

const DIGEST = "sha256:5b0bcabd1ed22e9fb1310cf6c2dec7cdef19f0ad69efa1f392e94a4333501270";
const IMAGE = "sha256:1d34ffeaf190be23d3de5a8de0a436676b758f48f835c3a2d4768b798c15a7f1";
const REFERENCE = `profiles.hearth.internal/rlm@${DIGEST}`;
const VERSION = "aff86b1b1fee-23a826b2";
const OTHER = "aff86b1b1fee-7c01d5e9";

const profile: ProfileRecord = {
  profile: "rlm",
  title: "Python",
  description: "Python 3 with venv, pip and packages for data.",
  from: "prod",
  state: "ready",
  progress_pct: null,
  message: null,
  recipe_id: "aff86b1b1fee",
  channels: { latest: VERSION, stable: null },
  size_bytes: 807_534_592,
  own_bytes: 549_015_040,
  package_count: 238,
  release_count: 1,
  disk_bytes: 549_015_040,
  tools: ["python3", "pip", "ipython3", "git", "rg", "jq"],
  updates: null,
  last_failure: null,
};

const release: ReleaseRecord = {
  profile: "rlm",
  version: VERSION,
  channels: ["latest"],
  recipe_id: "aff86b1b1fee",
  suite: "bookworm",
  platform: "linux/amd64",
  oci_reference: REFERENCE,
  oci_digest: DIGEST,
  image_id: IMAGE,
  base_version: "05a51011b5dd-611c1ce4",
  created_at: 1_795_262_400,
  size_bytes: 807_534_592,
  own_bytes: 549_015_040,
  package_count: 238,
};

const operation: Pick<OperationRecord, "operation_id"> = { operation_id: "op-4mf9kq7w2xj8" };

export const SAMPLES = {
  ids: { profile: "rlm", version: VERSION, other: OTHER },
  profile,
  release,
  detail: {
    ...release,
    packages: [
      {
        ...{ name: "bash", version: "5.2.15-2+b7", architecture: "amd64", source: "bash" },
        ...{ licences: ["GPL-3+"], size_kb: 7_164, kind: "deb" as const },
      },
    ],
  },
  resolved: {
    ...{ profile: "rlm", channel: "latest" as const, platform: "linux/amd64" },
    ...{ oci_reference: REFERENCE, version: VERSION, oci_digest: DIGEST },
  },
  diff: {
    ...{ profile: "rlm", version: VERSION, other: OTHER },
    added: [],
    removed: [],
    changed: [{ name: "openssl", from: "3.0.15-1~deb12u1", to: "3.0.16-1~deb12u1" }],
    size_delta_bytes: 4_096,
  },
  updates: {
    ...{ profile: "rlm", version: VERSION, checked_at: 1_795_262_400 },
    updates: [
      {
        ...{ name: "openssl", version: "3.0.15-1~deb12u1", new_version: "3.0.16-1~deb12u1" },
        ...{ origin: "Debian-Security:12/stable-security", is_security: true },
      },
    ],
  },
  handle: {
    ...{ success: true as const, operation_id: operation.operation_id },
    status_url: `/api/operations/${operation.operation_id}`,
  },
  moved: {
    ...{ success: true as const, message: "stable moved", profile: "rlm", channel: "stable" as const },
    ...{ version: VERSION, previous_version: null },
  },
  health: { status: "ok" as const, concern: "nightly" as const, profile_count: 7, ready_count: 2, reason: null },
};
