/** Bounds of what the daemon takes from registries of images: part of `LIMITS`, with the same rules. */
export const REGISTRY_LIMITS = {
  /** Answers that the daemon reads as streams at once: a layer each, six of one pull. */
  outgoing_streams_max: 128,
  /** Registry and repository together, and a tag (OCI distribution specification). */
  image_name_length_max: 255,
  /** Most manifests and configurations have some kilobytes. The store of the daemon has both, for each reference of a tenant. */
  manifest_bytes_max: 512 * 1024,
  /** A container is made of no larger one (image_config_bytes_max). */
  registry_config_bytes_max: 512 * 1024,
  /** Manifests in one index, one for each platform; indexes inside indexes, below the first. */
  index_manifests_max: 1_000,
  index_depth_max: 2,
  /** Layers of one image: as many as Docker takes. Each is a lower directory of an overlay mount. */
  image_layers_max: 127,
  /** Compressed layers of one image together. */
  image_bytes_max: 64 * 1024 * 1024 * 1024,
  /** Entries of a list in an error's details. */
  platforms_shown_max: 32,
  /** A token of a registry becomes a header. */
  registry_token_bytes_max: 64 * 1024,
  registry_token_length_max: 12 * 1024,
  /** Certificates of one registry in the operator's directory. */
  registry_certificates_bytes_max: 1024 * 1024,
  /** A registry sends its headers, and then in each such time so much of a body, unless that ends: below 2 KiB/s is a drip. */
  registry_silence_ms: 30_000,
  registry_silence_bytes_min: 64 * 1024,
  /** A manifest, a configuration, a token; one layer. */
  registry_answer_ms: 60_000,
  registry_layer_ms: 4 * 3_600_000,
  /** Attempts in a row that bring less than the progress; resumptions of one layer in all. */
  registry_attempts_max: 4,
  registry_progress_bytes: 1024 * 1024,
  registry_resumes_max: 32,
  /** First pause between two attempts; it doubles. A registry that asks for a longer one ends the pull. */
  registry_pause_ms: 250,
  registry_pause_ms_max: 10_000,
  /** Times that one pull asks for a new token. */
  registry_tokens_max: 16,
  /** Layers that one push uploads at once. */
  registry_uploads_max: 3,
  /** From the last byte of a layer to the registry's answer: some read the whole layer again. */
  registry_commit_ms: 300_000,
  /** An answer to an upload or a manifest; its body counts for nothing. */
  registry_upload_answer_bytes_max: 64 * 1024,
  /** Layers that one pull reads at once to prove that the registry serves them. */
  registry_proofs_max: 3,
  /** Requests of buildah for one layer in one attempt: its own retries. */
  registry_layer_requests_max: 4,
  /** Bytes of all layers of a pull between two looks at the disks, and what stays free on each. */
  image_disk_check_bytes: 16 * 1024 * 1024,
  image_disk_free_bytes_min: 1024 * 1024 * 1024,
  /** Progress of a pull is reported this often. */
  registry_progress_ms: 200,
} as const;
