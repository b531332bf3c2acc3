/** Terminal sessions of a daemon under test, in one container that stands as long as the daemon. */
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { type Daemon, KEY, NOTHING_LEFT } from "./daemon.ts";
import { TerminalTab } from "./socket.ts";

/** Settings of a daemon under test that serves terminals. */
export const SETTINGS = { HEARTH_CELLS: "0", HEARTH_LOG_LEVEL: "warn" };

type Query = Readonly<Record<string, string | number>>;

export class TerminalUser {
  /** Name of the container. */
  readonly name = "terminals";
  container_id = "";
  readonly tabs: TerminalTab[] = [];
  readonly #daemon: Daemon;

  constructor(daemon: Daemon) {
    this.#daemon = daemon;
    beforeAll(async () => {
      await daemon.start(SETTINGS);
      this.container_id = await this.makeContainer(this.name);
    });
    afterEach(async () => {
      for (const tab of this.tabs.splice(0)) tab.socket.terminate();
      for (const { id } of await this.sessions()) await daemon.call("DELETE", `/api/terminal/sessions/${id}`);
    });
    afterAll(async () => {
      await daemon.call("DELETE", `/api/containers/${this.container_id}`);
      await daemon.stop();
      expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
      await daemon.dispose();
    });
  }

  async makeContainer(name: string, key = KEY, more: object = {}): Promise<string> {
    const { status, body } = await this.#daemon.call(
      "POST",
      "/api/containers",
      { name, ...more },
      { "x-api-key": key },
    );
    expect(status, JSON.stringify(body)).toBe(201);
    return body.container_id;
  }

  async make(more: object = {}) {
    const asked = { container_id: this.container_id, ...more };
    const { status, body } = await this.#daemon.call("POST", "/api/terminal/sessions", asked);
    expect(status, JSON.stringify(body)).toBe(201);
    return body;
  }

  async get(id: string) {
    return (await this.#daemon.call("GET", `/api/terminal/sessions/${id}`)).body;
  }

  async sessions() {
    return (await this.#daemon.call("GET", "/api/terminal/sessions")).body.sessions;
  }

  attachUrl(query: Query): string {
    const fields = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    return `${this.#daemon.url}/ws/terminal/attach?${fields.join("&")}`;
  }

  async attach(query: Query, key: string | null = KEY): Promise<TerminalTab> {
    const tab = await TerminalTab.open(this.attachUrl(query), key);
    this.tabs.push(tab);
    return tab;
  }

  /** Opens a session and attaches to it. */
  async open(more: object = {}): Promise<{ id: string; tab: TerminalTab }> {
    const { id } = await this.make(more);
    const tab = await this.attach({ session_id: id });
    await tab.frame("ready");
    return { id, tab };
  }

  async run(command: readonly string[], id = this.container_id) {
    return (await this.#daemon.call("POST", `/api/containers/${id}/exec`, { command })).body;
  }

  /** Command lines of what runs in a container, by pid inside. */
  async processes(id = this.container_id): Promise<Map<number, string>> {
    const { body } = await this.#daemon.call("GET", `/api/containers/${id}/processes`);
    return new Map(body.processes.map(({ pid, command }: { pid: number; command: string }) => [pid, command]));
  }
}
