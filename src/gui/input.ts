/** Input events as arguments of xdotool, which sends them to the X server of its container. */
import { KEY_DELAY_MS, keyDelayMs, keyNames } from "./keys.ts";
import type { InputEvent } from "./schema.ts";

const XDOTOOL = "/usr/bin/xdotool";
const BUTTONS = { left: "1", middle: "2", right: "3" } as const;
/** Buttons of the wheel, as X11 has them. */
const WHEEL = { up: "4", down: "5", left: "6", right: "7" } as const;
/** Between two clicks: programs miss faster ones. */
const CLICK_DELAY_MS = "40";

/** Asks for the size of the screen: its answer is two lines, WIDTH=… and HEIGHT=…. */
export const GEOMETRY = [XDOTOOL, "getdisplaygeometry", "--shell"];

/** Returns the size that xdotool answered; null for another answer. */
export function readGeometry(output: string): { readonly width: number; readonly height: number } | null {
  const [, width, height] = /^WIDTH=(\d{1,5})\nHEIGHT=(\d{1,5})\n$/.exec(output) ?? [];
  return width === undefined ? null : { width: Number(width), height: Number(height) };
}

/** Returns the one command that sends all events. */
export function inputCommand(events: readonly InputEvent[]): string[] {
  return [XDOTOOL, ...events.flatMap(argumentsOf)];
}

/** The schema holds that the fields of its type are there. */
function argumentsOf({ type, x = 0, y = 0, button = "left", ...event }: InputEvent): string[] {
  const move = ["mousemove", String(x), String(y)];
  switch (type) {
    case "move":
      return move;
    case "click":
      return [...move, "click", BUTTONS[button]];
    case "double_click":
      return [...move, "click", "--repeat", "2", "--delay", CLICK_DELAY_MS, BUTTONS[button]];
    case "press":
      return [...move, "mousedown", BUTTONS[button]];
    case "release":
      return [...move, "mouseup", BUTTONS[button]];
    case "scroll":
      return [
        ...move,
        ...turn(event.steps_y ?? 0, WHEEL.up, WHEEL.down),
        ...turn(event.steps_x ?? 0, WHEEL.left, WHEEL.right),
      ];
    case "key":
      return ["key", "--clearmodifiers", keyNames(event.keys ?? "") ?? ""];
    case "type":
      // `--args 1`: it takes the rest of the line otherwise. `--`: the text may begin with a dash.
      return ["type", "--delay", delayOf(event.text), "--clearmodifiers", "--args", "1", "--", event.text ?? ""];
    case "pause":
      return ["sleep", String((event.duration_ms ?? 0) / 1_000)];
  }
}

const delayOf = (text = ""): string => String(keyDelayMs(text));

const turn = (steps: number, back: string, forth: string) =>
  steps === 0
    ? []
    : ["click", "--repeat", String(Math.abs(steps)), "--delay", String(KEY_DELAY_MS), steps < 0 ? back : forth];
