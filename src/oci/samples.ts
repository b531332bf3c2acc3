/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import type { OperationRecord } from "../operations/schema.ts";
import type { ImageRecord } from "./schema.ts";

const CONFIG = "sha256:1d34ffeaf190be23d3de5a8de0a436676b758f48f835c3a2d4768b798c15a7f1";
const MANIFEST = "sha256:de4fe7064d8f98419ea6b49190df1abbf43450c1702eeb864fe9ced453c1cc5f";
const LAYER = "sha256:08000c18d16dadf9553d747a58cf44023423a9ab010aab96cf263d2216b8b350";

const image: ImageRecord = {
  id: CONFIG,
  tenant_id: "default",
  reference: "docker.io/library/alpine:3.20",
  registry: "docker.io",
  repository: "library/alpine",
  tag: "3.20",
  manifest_digest: MANIFEST,
  config_digest: CONFIG,
  size_bytes: 8_082_944,
  architecture: "amd64",
  os: "linux",
  entrypoint: null,
  default_cmd: ["/bin/sh"],
  env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  working_dir: "/",
  exposed_ports: [],
  volumes: [],
  labels: {},
  user_spec: null,
  created_at: 1_744_588_800,
  pulled_at: 1_795_262_400,
  last_used_at: null,
  ref_count: 0,
  is_shared: false,
};

export const SAMPLES = {
  image,
  listed: { ...image, manifest_digest: null, config_digest: null },
  shared: { ...image, is_shared: true },
  tagged: { ...image, reference: "docker.io/acme/base:1", repository: "acme/base", tag: "1" },
  layer: {
    digest: LAYER,
    size_bytes: 3_634_744,
    uncompressed_size: 8_082_944,
    media_type: "application/vnd.docker.image.rootfs.diff.tar.gzip",
  },
  manifest_json: JSON.stringify({ schemaVersion: 2, config: { digest: CONFIG }, layers: [{ digest: LAYER }] }),
  config_json: JSON.stringify({ architecture: "amd64", os: "linux", config: { Cmd: ["/bin/sh"] } }),
  history: {
    created_at: 1_744_588_800,
    created_by: "ADD alpine-minirootfs-3.20.6-x86_64.tar.gz / # buildkit",
    comment: "buildkit.dockerfile.v0",
    empty_layer: false,
    size_bytes: 8_082_944,
  },
  pushed: {
    success: true,
    reference: "docker.io/library/alpine:3.20",
    target: "registry.example.com/team/alpine:3.20",
    manifest_digest: MANIFEST,
    error_message: null,
  },
  deleted: { success: true as const, message: "image deleted", reference: "docker.io/library/alpine:3.20" },
  /** A Dockerfile and hello.txt. */
  context_archive:
    "H4sIAAAAAAACA+3UsQrCMBSF4cx9ijxBmtgmAVfFTSpujkUiFosttYKPb8lmwbEV9f+WewnZDueqVExOD7y1cQ7GM+7GZtoYa1x8d9obIa2Ywf3Wl52U4k+pdN0cL6E7VXWYMn+X5+/zz+xr/mb4P+SvyX9ym32xlWXdVtewzNRCJ6tid5BKpmXbJgK/3/9zqOtG9Y9efKz/2o3uv/cZ/Z9FTJ+iAwAAAAAAAAAAAADw1Z4mJ/BoACgAAA==",
  context: {
    context_id: "ctx_6k1wz9v4c2qj8rtd",
    size_bytes: 35,
    created_at: 1_795_262_400,
    expires_at: 1_795_266_000,
  },
  build: {
    operation_id: "op_7bq2m9vtx4c1h8ke",
    operation_type: "oci.build",
    status: "succeeded" as const,
    target_resource_type: "image",
    target_resource_id: "docker.io/acme/app:1",
    progress_pct: 100,
    message: "image built",
    result: { reference: "docker.io/acme/app:1", image_id: CONFIG },
    items: null,
    error: null,
    reason_code: null,
    reason_message: null,
    warnings: [],
    capability_downgrades: [],
    container_id: null,
    snapshot_id: null,
    result_container_id: null,
    status_url: "/api/operations/op_7bq2m9vtx4c1h8ke",
    created_at: 1_795_262_400,
    started_at: 1_795_262_400,
    updated_at: 1_795_262_421,
    completed_at: 1_795_262_421,
  } satisfies OperationRecord,
  pruned: {
    success: true as const,
    images: [{ reference: "docker.io/library/alpine:3.20", id: CONFIG, size_bytes: 8_082_944 }],
    freed_bytes: 8_082_944,
    build_cache_count: 0,
  },
  health: { status: "ok" as const, concern: "oci" as const, image_count: 1, reason: null },
  handle: {
    success: true as const,
    operation_id: "op_7bq2m9vtx4c1h8ke",
    status_url: "/api/operations/op_7bq2m9vtx4c1h8ke",
  },
};
