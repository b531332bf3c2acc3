/** The bounds of tenants' images, with those of registries and layers: a part of LIMITS. */
import { BUILD_LIMITS } from "./build-limits.ts";
import { LAYER_LIMITS } from "./layer-limits.ts";
import { PROFILE_LIMITS } from "./profile-limits.ts";
import { REGISTRY_LIMITS } from "./registry-limits.ts";

export const IMAGE_LIMITS = {
  ...BUILD_LIMITS,
  ...LAYER_LIMITS,
  ...PROFILE_LIMITS,
  ...REGISTRY_LIMITS,
  /** Pulls that run at once, as many as the engine runs (`image_pulls_at_once`): each has a process of buildah. */
  image_pulls_max: 4,
  image_pulls_per_tenant_max: 2,
  /** A nearly full disk evicts images until it is so much below the limit. */
  image_disk_margin_percent: 5,
  /** It evicts none that was pulled or used within this time, and so many references in a round. */
  image_evict_age_seconds: 600,
  image_evictions_per_pass: 100,
  /** Longest age for a request to prune: ten years. */
  image_prune_age_seconds_max: 315_360_000,
  /** Pushes that run at once: each has the image's layers on the data disk. */
  image_pushes_max: 4,
  image_pushes_per_tenant_max: 2,
  /** From the acceptance of a push to its end. */
  image_push_ms: 3_600_000,
  /** Archives of images that clients read at once: each has the image's layers on the data disk. */
  image_saves_max: 8,
  image_saves_per_tenant_max: 2,
  /** Until the first byte of an archive's layers, and until its last byte. */
  image_export_ms: 1_800_000,
  image_save_ms: 3_600_000,
  /** An archive of an image as sent, and unpacked: it lies on the data disk while it is loaded. */
  image_archive_bytes_max: 16 * 1024 * 1024 * 1024,
  image_archive_entries_max: 10_000,
  /** Images of one archive. */
  image_archive_images_max: 32,
  /** Bytes of a file of an archive in one read. */
  image_load_read_bytes: 256 * 1024,
  /** Archives that are loaded at once. */
  image_loads_max: 4,
  image_loads_per_tenant_max: 2,
  /**
   * Attempts of buildah in one pull while deletions by other tenants take layers that the pull has found. On a slow disk six
   * attempts in a row have met one.
   */
  image_pull_attempts_max: 16,
  /** Attempts of buildah in one pull if it fails for another reason: mostly the image, which fails each time. */
  image_pull_faults_max: 3,
  /** From the acceptance of a pull to its end. */
  image_pull_ms: 3_600_000,
  /** Rest between two events about the progress of one pull: events are kept for days. */
  image_progress_interval_ms: 5_000,
  /** `linux/<architecture>/<variant>`. */
  image_platform_length_max: 64,
  registry_username_length_max: 256,
  /** Registries of clouds take tokens of some 4 KB. */
  registry_password_length_max: 8_192,
  /** The operator's file of credentials: some 300 bytes for each registry. */
  registry_auth_file_bytes_max: 1024 * 1024,
  /** Environment, labels and other fields of a record: builders keep up to 100 KB in labels. */
  image_details_bytes_max: 256 * 1024,
  /** A build context as sent, as raw bytes; in JSON `base64_body_bytes_max` holds. */
  context_archive_bytes_max: 192 * 1024 * 1024,
  /** Its files and its entries: the largest projects with their dependencies have some 100,000. */
  context_bytes_max: 2 * 1024 * 1024 * 1024,
  context_entries_max: 200_000,
  /** Disk of a context in MiB: its files, the rest of their last blocks, and what btrfs needs for each entry. */
  context_disk_mb: 3_072,
  /** Counted beside the bytes of files: what an entry takes on the disk. */
  context_entry_bytes: 2_048,
  /** From the upload of a context to its end. */
  context_seconds: 3_600,
  /** Uploads at once: each has a process and 2 MB of buffers. */
  context_uploads_per_tenant_max: 2,
  context_uploads_max: 8,
  /** Part of the storage pool that contexts of all tenants may take, and those of one tenant by default. */
  context_disk_ratio: 0.25,
  tenant_context_disk_ratio: 0.05,
  /** Contexts of a tenant, unless the operator sets another limit. */
  tenant_contexts_default: 20,
  /** Images of a tenant, unless the operator sets another limit. */
  tenant_images_default: 200,
  /** Temporary files of one tenant on the data disk: what is added for uploads, and the part of the disk that they have at most. */
  temporary_uploads_mb: 1_024,
  temporary_disk_ratio: 0.25,
  /** Part of the image store's disk that images of one tenant may need. */
  tenant_images_ratio: 0.1,
} as const;
