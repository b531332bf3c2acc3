/** Keys and values of the tenant for a container that asks by its socket. */
import { LIMITS } from "../../base/limits.ts";
import type { Publishing } from "../publishing.ts";
import { newsItem, stateItem } from "../state/entries.ts";
import type { States } from "../state/service.ts";
import type { InsideStates, Self, Sent, StateEntry, StateWrite } from "./inside.ts";

export interface ContainerStatesOptions {
  readonly states: States;
  readonly publishing: Pick<Publishing, "checkStateKey">;
}

export class ContainerStates implements InsideStates {
  readonly #options: ContainerStatesOptions;

  constructor(options: ContainerStatesOptions) {
    this.#options = options;
  }

  /** The first page; a watch has all. */
  async list({ tenant_id }: Self, prefix: string): Promise<readonly StateEntry[]> {
    const page = { prefix, after: "", entries_max: LIMITS.state_page_max };
    return (await this.#options.states.list(tenant_id, page)).entries.map(stateItem);
  }

  async get({ tenant_id }: Self, key: string): Promise<StateEntry> {
    return stateItem(await this.#options.states.get(tenant_id, key));
  }

  async put({ tenant_id, container_id }: Self, key: string, { value, if_version }: StateWrite): Promise<StateEntry> {
    const { states, publishing } = this.#options;
    await publishing.checkStateKey(container_id, key);
    return stateItem(await states.putJson(tenant_id, { key, value, if_version, from: container_id }));
  }

  async delete({ tenant_id, container_id }: Self, key: string): Promise<Sent> {
    const { states, publishing } = this.#options;
    await publishing.checkStateKey(container_id, key);
    return { key, version: await states.delete(tenant_id, key, null), is_deleted: true };
  }

  async watch({ tenant_id }: Self, prefix: string, signal: AbortSignal): Promise<AsyncIterable<StateEntry>> {
    return entries(this.#options.states.watch(tenant_id, prefix, signal));
  }
}

async function* entries(news: ReturnType<States["watch"]>): AsyncGenerator<StateEntry, void> {
  for await (const one of news) yield newsItem(one);
}
