/** An instance with all optional parts: what stands for any one where instances of two daemons are compared. */
import type { PlacedGpus } from "../gpu/edits.ts";
import type { InstanceClass } from "../ports/instances.ts";

const ANY_CLASS: InstanceClass = {
  key: "",
  image: "",
  scratch_mb: 0,
  runtime_directory: "/",
  resident: { argv: [], open_timeout_ms: 0 },
  foreign: { pinned_files: { "/dev/file": "/file" } },
};
const ANY_GPUS: PlacedGpus = {
  note: { tenant_id: "", gpus: [], environment: {} },
  nodes: [{ source: "", target: "/dev/gpu", type: "c", major: 0, minor: 0, access: "rw", mode: 0, uid: 0, gid: 0 }],
  mounts: [{ source: "", target: "/gpu", is_executable: true }],
  hooks: [],
  gids: [],
};
/** Of an `InstanceSpec`, what differs from instance to instance. */
export const ANY_INSTANCE = {
  ...{ id: "", rootfs: "", uid: 0, netns: "", cgroup: "", pinned: "" },
  class: ANY_CLASS,
  gpus: ANY_GPUS,
};
