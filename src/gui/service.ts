/**
 * Desktops of containers of the profile prod-gui: URLs of viewers, viewers, screenshots and input.
 *
 * D1. Viewers, screenshots and input have bounds for a container, a tenant and this node; each counts as a command of its
 *     container too, so that a container with an open viewer is not idle.
 * D2. No viewer outlives its container, the daemon, or the credential that its URL was made with.
 * D3. The daemon stores no text that is typed.
 */
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import { type ReachedBound, Shares } from "../base/shares.ts";
import { CLOSE, Upgrade } from "../base/sockets.ts";
import { type Containers, DESKTOP_PROFILE, imageName, isDesktop } from "../containers/service.ts";
import type { Engine, GatheredExit, RunRequest } from "../engine/ports.ts";
import { type Backends, BRIDGE, unreachable } from "./backends.ts";
import { GEOMETRY, inputCommand, readGeometry } from "./input.ts";
import { isSide, pngSize, type Size } from "./png.ts";
import type { InputEvent } from "./schema.ts";
import { GuiTokens, type Recheck } from "./tokens.ts";
import { Viewer } from "./viewer.ts";

/** A command that is counted until `release`, as the service of commands in containers gives it. */
export interface Commands {
  /** Throws NOT_FOUND, NOT_RUNNING, NOT_RESPONDING, CONCURRENCY_LIMIT, CAPACITY_FULL. */
  begin(
    tenant_id: string,
    container_id: string,
    wanted: {
      readonly command: readonly string[];
      readonly environment: Readonly<Record<string, string>>;
      readonly working_directory: string;
      readonly timeout_ms: number;
    },
  ): Promise<{
    readonly request: Pick<RunRequest, "argv" | "environment" | "working_directory" | "timeout_ms" | "grace_ms">;
    release(): void;
  }>;
}

export interface DesktopsOptions {
  readonly containers: Pick<Containers, "row" | "held">;
  readonly commands: Commands;
  readonly engine: Pick<Engine, "containers">;
  readonly backends: Backends;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** Shows the desktop with its pointer. A low effort of compression: a screen of text gets no smaller by a higher one. */
const SCREENSHOT = ["/usr/bin/maim", "-f", "png", "-m", "3"];
const ENVIRONMENT = { DISPLAY: ":0", LANG: "C.UTF-8" };

export class Desktops {
  readonly #options: DesktopsOptions;
  readonly #tokens: GuiTokens;
  readonly #viewersOfContainers = new Shares({
    each_max: LIMITS.gui_viewers_per_container_max,
    all_max: LIMITS.gui_viewers_max,
  });
  readonly #viewers = new Shares({ each_max: LIMITS.gui_viewers_per_tenant_max, all_max: LIMITS.gui_viewers_max });
  readonly #screenshots = new Shares({
    each_max: LIMITS.gui_screenshots_per_tenant_max,
    all_max: LIMITS.gui_screenshots_max,
  });
  readonly #inputs = new Shares({ each_max: LIMITS.gui_inputs_per_tenant_max, all_max: LIMITS.gui_inputs_max });

  constructor(options: DesktopsOptions) {
    this.#options = options;
    this.#tokens = new GuiTokens(options.clock, options.ids);
  }

  /** Returns a URL of a viewer. Throws NOT_FOUND, INVALID_ARGUMENT, NOT_RUNNING, NOT_RESPONDING, CAPACITY_FULL. */
  async url(tenant_id: string, id: string, recheck: Recheck) {
    const container_id = await this.#reachable(tenant_id, id);
    const token = this.#tokens.make({ tenant_id, container_id, recheck });
    const expires_at = toEpochSeconds(this.#options.clock.epochMs()) + LIMITS.gui_token_seconds;
    return { gui_url: `/gui/${container_id}/?gui_token=${token}`, expires_at };
  }

  /** Resolves for a token that opens the viewer of a container. Rejects with UNAUTHORIZED. */
  async check(container_id: string, token: string): Promise<void> {
    await this.#tokens.find(container_id, token);
  }

  /** Connects a viewer. Throws UNAUTHORIZED, NOT_RUNNING, NOT_RESPONDING, CONCURRENCY_LIMIT, CAPACITY_FULL. */
  async attach(container_id: string, token: string): Promise<Upgrade> {
    const found = await this.#tokens.find(container_id, token);
    const { tenant_id, recheck } = found;
    const { backends, clock } = this.#options;
    const taken: (() => void)[] = [];
    const release = () => {
      for (const give of taken.splice(0)) give();
    };
    try {
      taken.push(this.#viewersOfContainers.take(container_id, tooMany("viewers of the container")));
      taken.push(this.#viewers.take(tenant_id, tooMany("viewers of the tenant")));
      const begun = await this.#begin(tenant_id, container_id, BRIDGE, 0);
      taken.push(begun.release);
      const backend = await backends.connect(container_id, begun.request);
      taken.push(() => backend.close());
      return new Upgrade(
        (socket) => {
          const viewer = new Viewer(socket, backend, clock, release);
          const ending = this.#tokens.open(found, () => viewer.end(CLOSE.done, "the session has reached its limit"));
          taken.push(ending.close);
          return viewer;
        },
        release,
        recheck,
      );
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Returns the desktop as a PNG. Throws NOT_FOUND, INVALID_ARGUMENT, NOT_RUNNING, NOT_RESPONDING, CAPACITY_FULL. */
  async screenshot(tenant_id: string, id: string, signal: AbortSignal) {
    const container_id = await this.#desktop(tenant_id, id);
    const give = this.#screenshots.take(tenant_id, tooMany("screenshots"));
    try {
      const { stdout, stdout_truncated, exit_code } = await this.#run(tenant_id, container_id, SCREENSHOT, {
        timeout_ms: LIMITS.gui_screenshot_ms,
        output_bytes_max: LIMITS.gui_screenshot_bytes_max,
        signal,
      });
      const size = exit_code === 0 && !stdout_truncated ? pngSize(stdout) : null;
      if (size === null) throw unreachable(container_id);
      return { container_id, bytes: stdout, ...size };
    } finally {
      give();
    }
  }

  /** Sends events to the desktop. Throws as `screenshot`, and INVALID_ARGUMENT for a place beyond the screen. */
  async input(tenant_id: string, id: string, events: readonly InputEvent[], signal: AbortSignal) {
    const container_id = await this.#desktop(tenant_id, id);
    const give = this.#inputs.take(tenant_id, tooMany("requests with input"));
    try {
      const bounds = { output_bytes_max: 4_096, signal };
      const asked = { ...bounds, timeout_ms: LIMITS.gui_check_ms };
      const size = readGeometry((await this.#run(tenant_id, container_id, GEOMETRY, asked)).stdout.toString("latin1"));
      if (size === null || !isSide(size.width) || !isSide(size.height)) throw unreachable(container_id);
      checkPlaces(events, size);
      const command = inputCommand(events);
      const { exit_code, timed_out } = await this.#run(tenant_id, container_id, command, {
        ...bounds,
        timeout_ms: LIMITS.gui_input_ms,
      });
      if (timed_out) throw new AppError("TIMEOUT", `the input did not end within ${LIMITS.gui_input_ms} ms`);
      if (exit_code !== 0) throw unreachable(container_id);
      return { success: true as const, event_count: events.length, ...size };
    } finally {
      give();
    }
  }

  /** Returns the id of a container that has a desktop. Throws NOT_FOUND, WRONG_STATE, INVALID_ARGUMENT. */
  async #desktop(tenant_id: string, id: string): Promise<string> {
    const row = await this.#options.containers.held(tenant_id, id);
    if (isDesktop(row)) return row.id;
    const received = imageName(row);
    throw new AppError("INVALID_ARGUMENT", `container '${id}' has no desktop: its image is '${received}'`, {
      details: { expected: [DESKTOP_PROFILE], received },
      hint: "create a container with image prod-gui",
    });
  }

  async #reachable(tenant_id: string, id: string): Promise<string> {
    const container_id = await this.#desktop(tenant_id, id);
    // Throws unless the container runs.
    (await this.#begin(tenant_id, container_id, BRIDGE, 0)).release();
    if (!(await this.#options.backends.isReachable(container_id))) throw unreachable(container_id);
    return container_id;
  }

  #begin(tenant_id: string, container_id: string, command: readonly string[], timeout_ms: number) {
    const wanted = { command, environment: ENVIRONMENT, working_directory: "/", timeout_ms };
    return this.#options.commands.begin(tenant_id, container_id, wanted);
  }

  async #run(
    tenant_id: string,
    container_id: string,
    command: readonly string[],
    { timeout_ms, output_bytes_max, signal }: RunBounds,
  ): Promise<GatheredExit> {
    const { request, release } = await this.#begin(tenant_id, container_id, command, timeout_ms);
    try {
      const { exited, close } = this.#options.engine.containers.run(container_id, {
        ...request,
        output_bytes_max,
        is_stream: false,
      });
      if (signal.aborted) close();
      signal.addEventListener("abort", close);
      return await exited
        .catch(() => {
          throw unreachable(container_id);
        })
        .finally(() => signal.removeEventListener("abort", close));
    } finally {
      release();
    }
  }
}

interface RunBounds {
  readonly timeout_ms: number;
  readonly output_bytes_max: number;
  readonly signal: AbortSignal;
}

function checkPlaces(events: readonly InputEvent[], { width, height }: Size): void {
  for (const [i, { x = 0, y = 0 }] of events.entries()) {
    if (x < width && y < height) continue;
    throw new AppError("INVALID_ARGUMENT", `events.${i}: beyond the screen: ${x}, ${y}`, {
      details: { expected: [`x below ${width}`, `y below ${height}`], received: `${x}, ${y}` },
      hint: "read the size of the screen from a screenshot",
    });
  }
}

const tooMany = (of: string) => (reached: ReachedBound, max: number) =>
  reached === "each_max"
    ? new AppError("CONCURRENCY_LIMIT", `too many ${of} (limit ${max})`, { retry_after: 1 })
    : new AppError("CAPACITY_FULL", `too many desktops in use on this node (limit ${max})`, { retry_after: 5 });
