/** Composes the parts that bring images to this node, build them, and send them elsewhere. */
import type { Clock } from "./base/clock.ts";
import type { Config } from "./base/config.ts";
import type { Ids } from "./base/ids.ts";
import type { Log } from "./base/log.ts";
import type { Outgoing } from "./base/outgoing-requests.ts";
import type { Engine } from "./engine/ports.ts";
import type { Events } from "./events/service.ts";
import type { FunctionImages } from "./functions/versions/images.ts";
import { ImageArrivals } from "./oci/arrivals.ts";
import { BuildCache } from "./oci/builds/cache.ts";
import { GitTrees } from "./oci/builds/git/trees.ts";
import { BuildLayers } from "./oci/builds/layers.ts";
import { Builds, type BuildsOptions } from "./oci/builds/service.ts";
import { Commits } from "./oci/commits.ts";
import type { RegistryCredentials } from "./oci/credentials/service.ts";
import { ImageImports } from "./oci/imports.ts";
import { LayerChecks } from "./oci/layers/checker.ts";
import { ImageLoads } from "./oci/loads/service.ts";
import { type ProfileImages, Pulls } from "./oci/pulls.ts";
import { Pushes } from "./oci/pushes.ts";
import { RegistryGateway } from "./oci/registry/gateway.ts";
import { Saves } from "./oci/saves.ts";
import type { TenantImages } from "./oci/service.ts";
import type { Operations } from "./operations/service.ts";
import type { Store, StoredNode } from "./store/store.ts";

interface Parts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Steps that take the parts down. */
  readonly undo: { add(step: () => Promise<unknown>): void };
}

/** Pulls, imports and pushes of images, through a gateway that alone speaks with registries, and archives of images. */
export function makeTransfers(
  { config, clock, ids, log, undo }: Parts,
  parts: {
    readonly engine: Engine;
    readonly events: Events;
    readonly operations: Operations;
    readonly tenant_images: TenantImages;
    readonly registry_credentials: RegistryCredentials;
    readonly outgoing: Outgoing;
    readonly profiles: ProfileImages;
  },
) {
  const checker = new LayerChecks(log);
  undo.add(() => checker.close());
  const gateway = new RegistryGateway({
    clock,
    ids,
    outgoing: parts.outgoing,
    mirrors: config.registry_mirrors,
    insecure: config.insecure_registries,
    checker,
    directory: `${config.data_dir}/registry`,
    disks: [config.data_dir, config.image_dir],
  });
  const images = () => parts.engine.images;
  const { tenant_images } = parts;
  const arrivals = new ImageArrivals({ tenant_images, images, log });
  const common = { ...parts, images, gateway, clock, log };
  return {
    pulls: new Pulls({ ...common, arrivals, policy_file: config.signature_policy }),
    imports: new ImageImports({ tenant_images, arrivals, gateway }),
    pushes: new Pushes(common),
    saves: new Saves(common),
    loads: new ImageLoads({ ...common, arrivals, ids, directory: `${config.data_dir}/image-loads` }),
  };
}

type OwnParts = "cache" | "layers" | "trees" | "running_max" | "trusted" | "directory";

/** Builds of images on containers of this node, and images of the files of containers. */
export function makeBuilds(
  { config, clock, log, ids, undo }: Parts,
  parts: Omit<BuildsOptions, OwnParts | "clock" | "log" | "ids"> & {
    readonly store: Store;
    readonly node: StoredNode;
  },
): { readonly builds: Builds; readonly commits: Commits } {
  const layers = new BuildLayers(log);
  undo.add(() => layers.close());
  const trees = new GitTrees(log);
  undo.add(() => trees.close());
  const cache = new BuildCache({ ...parts, storage: () => parts.engine.storage, clock, ids, log });
  const { builds_max: running_max, data_dir, trust } = config;
  const common = { ...parts, layers, clock, log, ids };
  const trusted = trust?.environment ?? {};
  return {
    builds: new Builds({ ...common, trees, cache, running_max, trusted, directory: `${data_dir}/builds` }),
    commits: new Commits({ ...common, directory: `${data_dir}/commits` }),
  };
}

/** The images of functions are those of tenants, whose concern reads in turn what functions use. */
export function functionImages(engine: Engine, tenant_images: () => TenantImages): FunctionImages {
  return {
    resolve: (tenant_id, text) => tenant_images().resolve(tenant_id, text),
    config: (image_id) => engine.images.config(image_id),
    reserve: async (image_id) => (await engine.images.reserve(image_id)).release,
  };
}
