/** The system-call filters of API containers, one for each set of capabilities, compiled at the first start of its kind. */

import { writeFileSync } from "node:fs";
import { bareSpec, containerConfig } from "../bundles/container.ts";
import { ETC_FILES } from "../bundles/etc-files.ts";
import type { EngineHost } from "../host/host.ts";
import type { Filter } from "../oci/filters.ts";

/** Id of the container that the runtime creates to compile a filter. */
const COMPILER = "container-filter";

export class ContainerFilters {
  readonly #host: EngineHost;
  readonly #made = new Map<string, Promise<Filter>>();

  constructor(host: EngineHost) {
    this.#host = host;
  }

  get(capabilities: readonly string[]): Promise<Filter> {
    const key = capabilities.join();
    const found = this.#made.get(key);
    if (found !== undefined) return found;
    const making = this.#make(capabilities);
    this.#made.set(key, making);
    making.catch(() => this.#made.delete(key));
    return making;
  }

  /** Has the next one who asks get it made anew. */
  drop(capabilities: readonly string[]): void {
    this.#made.delete(capabilities.join());
    this.#host.filters.drop(capabilities);
  }

  async #make(capabilities: readonly string[]): Promise<Filter> {
    const { filters, images, options, visible_groups } = this.#host;
    if (!filters.areKept) return filters.rules(capabilities);
    const kept = filters.kept(capabilities);
    if (kept !== null) return kept;
    const { path } = images.pinned;
    return this.#host.compile(COMPILER, capabilities, (slot, { bundle, cgroup }) => {
      const spec = { ...bareSpec(COMPILER), strict: true, read_only_root: true };
      const placement = {
        run: COMPILER,
        image_id: "",
        rootfs: path,
        minit: options.minit,
        etc: bundle,
        trust: null,
        slot_index: slot.index,
        netns: slot.netns,
        user: null,
        cgroup,
        visible_groups,
        filter: filters.rules(capabilities),
        has_socket_limit: false,
        mounts: [],
        socket: null,
        gpus: null,
      };
      for (const name of ETC_FILES) writeFileSync(`${bundle}/${name}`, "");
      return containerConfig(spec, placement);
    });
  }
}
