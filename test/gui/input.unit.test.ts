/** Events of input: what is refused, and what is sent to the X server. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { inputCommand, readGeometry } from "../../src/gui/input.ts";
import { sendInput } from "../../src/gui/schema.ts";

const parse = (...events: object[]) => sendInput.safeParse({ events });
const command = (...events: object[]) => inputCommand(sendInput.parse({ events }).events).slice(1);

describe("an event", () => {
  it("becomes arguments of xdotool, whatever its text is", () => {
    expect(command({ type: "click", x: 10, y: 20, button: "right" })).toEqual(["mousemove", "10", "20", "click", "3"]);
    expect(command({ type: "type", text: "--delay 1; rm -rf / \n$(id)" }).slice(-2)).toEqual([
      "--",
      "--delay 1; rm -rf / \n$(id)",
    ]);
    expect(command({ type: "key", keys: "Ctrl+PageDown" })).toEqual(["key", "--clearmodifiers", "ctrl+Page_Down"]);
    expect(command({ type: "scroll", x: 1, y: 2, steps_y: -3, steps_x: 1 }).join(" ")).toBe(
      "mousemove 1 2 click --repeat 3 --delay 4 4 click --repeat 1 --delay 4 7",
    );
    expect(command({ type: "pause", duration_ms: 250 })).toEqual(["sleep", "0.25"]);
  });

  it.each([
    ["a type that is none", { type: "exec", text: "id" }],
    ["no place", { type: "click", x: 1 }],
    ["a negative place", { type: "move", x: -1, y: 0 }],
    ["half a pixel", { type: "move", x: 0.5, y: 0 }],
    ["a field of another type", { type: "move", x: 1, y: 1, text: "a" }],
    ["an unknown key", { type: "key", keys: "Blah" }],
    ["an option in place of a key", { type: "key", keys: "--window" }],
    ["a key of a keyboard's other half", { type: "key", keys: "ctrl+" }],
    ["too many steps", { type: "scroll", x: 1, y: 1, steps_y: LIMITS.gui_scroll_steps_max + 1 }],
    ["a NUL", { type: "type", text: "a\0b" }],
    ["no text", { type: "type", text: "" }],
    ["a long pause", { type: "pause", duration_ms: LIMITS.gui_pause_ms_max + 1 }],
  ])("is refused with %s", (_, event) => {
    expect(parse(event).success).toBe(false);
  });

  it("is one of few, with a bounded text and bounded pauses together", () => {
    const move = { type: "move", x: 1, y: 1 };
    expect(parse(...Array(LIMITS.gui_events_max).fill(move)).success).toBe(true);
    expect(parse(...Array(LIMITS.gui_events_max + 1).fill(move)).success).toBe(false);
    const half = { type: "type", text: "a".repeat(LIMITS.gui_text_length_max / 2 + 1) };
    expect([parse(half).success, parse(half, half).success]).toEqual([true, false]);
    const slow = (length: number) => ({ type: "type", text: "é".repeat(length) });
    expect([parse(slow(750)).success, parse(slow(751)).success]).toEqual([true, false]);
    const pause = { type: "pause", duration_ms: LIMITS.gui_pause_ms_max };
    expect([parse(...Array(6).fill(pause)).success, parse(...Array(7).fill(pause)).success]).toEqual([true, false]);
  });
});

describe("the size of a screen", () => {
  it("is read from the program's own form alone", () => {
    expect(readGeometry("WIDTH=1280\nHEIGHT=800\n")).toEqual({ width: 1_280, height: 800 });
    for (const text of ["", "1280 800", "WIDTH=1280\nHEIGHT=800\nrm", "WIDTH=999999\nHEIGHT=1\n"]) {
      expect(readGeometry(text)).toBeNull();
    }
  });
});
