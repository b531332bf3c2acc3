/** The bounds of tenants' images, with those of registries and layers: a part of LIMITS. */
import { LAYER_LIMITS } from "./layer-limits.ts";
import { REGISTRY_LIMITS } from "./registry-limits.ts";

export const IMAGE_LIMITS = {
  ...LAYER_LIMITS,
  ...REGISTRY_LIMITS,
  /** Pulls that run at once, as many as the engine runs (`image_pulls_at_once`): each has a process of buildah. */
  image_pulls_max: 4,
  image_pulls_per_tenant_max: 2,
  /** Attempts of buildah in one pull, where it fails for another reason than the registry or the image. */
  image_pull_attempts_max: 3,
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
  /** Images of a tenant, unless the operator sets another limit. */
  tenant_images_default: 200,
  /** Part of the image store's disk that images of one tenant may need. */
  tenant_images_ratio: 0.1,
} as const;
