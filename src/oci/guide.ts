/** The guide of the image concern. The scripts are examples.ts's. */
import type { Guide } from "../docs/guide.ts";
import { operationStates } from "../operations/schema.ts";
import { IMAGE_EXAMPLES } from "./examples.ts";

export const imagesGuide: Guide<"oci"> = {
  concern: "oci",
  about:
    "An image is the root file system of containers, with a command, an environment and other settings. A tenant sees and runs only images that it pulled and images that the operator shares. The states below are those of a pull.",
  steps: [
    "GET /api/oci/health returns status ok if the image store answers.",
    "POST /api/oci/images/pull with a reference returns the image; with execution=async it returns an operation that shows the progress.",
    "PUT /api/oci/registries/{registry} stores credentials for a registry, which later requests to it use; no response contains the password.",
    "GET /api/oci/images lists the images; GET /api/oci/images/inspect and GET /api/oci/images/history show one.",
    "POST /api/containers with image and oci: true makes a container of an image.",
    "POST /api/oci/images/tag gives an image an additional reference.",
    "DELETE /api/oci/images deletes a reference; the last one deletes the image.",
    "POST /api/build-contexts stores the files that a build copies from; they expire after an hour.",
  ],
  machine: operationStates,
  states: {
    accepted: "The pull is stored.",
    queued: "The pull waits for other pulls.",
    running: "The daemon reads layers from the registry; progress_pct and message show how far it is.",
    succeeded: "The tenant has the image.",
    failed: "The pull failed; error has the reason.",
    cancelled: "A client cancelled the pull.",
    timed_out: "The pull did not end before its deadline.",
  },
  limits: [
    "image_reference_length_max",
    "image_pulls_max",
    "image_pulls_per_tenant_max",
    "image_pull_ms",
    "registry_silence_ms",
    "manifest_bytes_max",
    "registry_config_bytes_max",
    "image_layers_max",
    "image_bytes_max",
    "layer_entries_max",
    "image_details_bytes_max",
    "context_archive_bytes_max",
    "context_bytes_max",
    "context_entries_max",
    "context_seconds",
    "context_uploads_per_tenant_max",
  ],
  examples: IMAGE_EXAMPLES,
};
