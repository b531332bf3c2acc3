/** Shapes of the routes of desktops. */
import { z } from "zod";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement, epochSeconds, wellFormed, whole } from "../base/schema.ts";
import { byContainer } from "../containers/schema.ts";
import { keyDelayMs, keyNames } from "./keys.ts";

export { byContainer };

export const guiUrl = z
  .object({
    gui_url: z.string().describe("Path and query of the viewer, relative to the address of the API."),
    expires_at: epochSeconds.describe("Time until which the URL opens a viewer; an open viewer stays open."),
  })
  .meta({ id: "GuiUrl" });

export const viewerQuery = z.object({ gui_token: z.string().describe("Token from gui_url.") });
/** The viewer's own paths take an id alone: a name could become another container's. */
export const byDesktop = z.object({
  container_id: z.string().meta({ description: "Id of the container.", examples: ["ctr_c1v8hx2m9qk4te7b"] }),
});

export const screenshot = z
  .object({
    container_id: z.string().describe("Id of the container."),
    content_type: z.literal("image/png").describe("Always image/png."),
    width: z.int().describe("Width in pixels."),
    height: z.int().describe("Height in pixels."),
    data_b64: z.string().describe("PNG file in base64."),
  })
  .meta({ id: "Screenshot" });

/** Fields of each kind of event: those that it needs, and further ones that it may have. */
const EVENT_FIELDS = {
  move: { needed: ["x", "y"], allowed: [] },
  click: { needed: ["x", "y"], allowed: ["button"] },
  double_click: { needed: ["x", "y"], allowed: ["button"] },
  press: { needed: ["x", "y"], allowed: ["button"] },
  release: { needed: ["x", "y"], allowed: ["button"] },
  scroll: { needed: ["x", "y"], allowed: ["steps_x", "steps_y"] },
  key: { needed: ["keys"], allowed: [] },
  type: { needed: ["text"], allowed: [] },
  pause: { needed: ["duration_ms"], allowed: [] },
} as const;
const EVENT_TYPES = Object.keys(EVENT_FIELDS) as (keyof typeof EVENT_FIELDS)[];

const pixels = whole(0, LIMITS.gui_side_max - 1).optional();
const steps = whole(-LIMITS.gui_scroll_steps_max, LIMITS.gui_scroll_steps_max).optional();

const inputEvent = z
  .object({
    type: z
      .enum(EVENT_TYPES)
      .describe(
        "move, click, double_click, press and release of a button, scroll: at x, y. key: keys. type: text. pause: waits before the next event.",
      ),
    x: pixels.describe("Pixels from the left edge."),
    y: pixels.describe("Pixels from the top edge."),
    button: z.enum(["left", "middle", "right"]).optional().describe("Mouse button (default: left)."),
    steps_x: steps.describe("Steps of the wheel to the right; negative: to the left."),
    steps_y: steps.describe("Steps of the wheel down; negative: up."),
    keys: wellFormed
      .max(LIMITS.gui_keys_length_max)
      .refine((keys) => keyNames(keys) !== null, {
        error: "expected names of X11 keys, such as Return, Page_Down or ctrl+shift+t",
      })
      .optional()
      .describe("Names of X11 keys, joined by +."),
    text: wellFormed
      .min(1)
      .max(LIMITS.gui_text_length_max)
      .refine((text) => !text.includes("\0"), { error: "must not contain a NUL" })
      .optional()
      .describe("Text to type; a newline is the key Return."),
    duration_ms: whole(1, LIMITS.gui_pause_ms_max).optional().describe("Milliseconds of a pause."),
  })
  .superRefine((event, context) => {
    const { needed, allowed } = EVENT_FIELDS[event.type];
    const known: readonly string[] = ["type", ...needed, ...allowed];
    for (const [field, value] of Object.entries(event)) {
      if (value === undefined || known.includes(field)) continue;
      context.addIssue({ code: "custom", path: [field], message: `does not belong to an event of type ${event.type}` });
    }
    for (const field of needed) {
      if (event[field] !== undefined) continue;
      context.addIssue({ code: "custom", path: [field], message: `missing in an event of type ${event.type}` });
    }
  });
export type InputEvent = z.output<typeof inputEvent>;

export const sendInput = z
  .object({
    events: z
      .array(inputEvent)
      .min(1)
      .max(LIMITS.gui_events_max)
      .refine((all) => lengthOf(all) <= LIMITS.gui_text_length_max, {
        error: `must not type more than ${LIMITS.gui_text_length_max} characters`,
      })
      .refine((all) => pauseOf(all) <= LIMITS.gui_input_ms / 2, {
        error: `must not pause for more than ${LIMITS.gui_input_ms / 2} ms`,
      })
      .refine((all) => typingOf(all) <= LIMITS.gui_typing_ms_max, {
        error: `must not take more than ${LIMITS.gui_typing_ms_max} ms to type: a text with other characters than ASCII takes ${keyDelayMs("é")} ms for each`,
      })
      .describe("Events, in their order."),
  })
  .meta({ id: "SendInput" });

const lengthOf = (events: readonly InputEvent[]) => events.reduce((sum, event) => sum + (event.text?.length ?? 0), 0);
const typingOf = (events: readonly InputEvent[]) =>
  events.reduce((sum, { text = "" }) => sum + text.length * keyDelayMs(text), 0);
const pauseOf = (events: readonly InputEvent[]) => events.reduce((sum, event) => sum + (event.duration_ms ?? 0), 0);

export const sentInput = z
  .object({
    success: acknowledgement.shape.success,
    event_count: z.int().describe("Number of events that were sent."),
    width: z.int().describe("Width of the screen in pixels."),
    height: z.int().describe("Height of the screen in pixels."),
  })
  .meta({ id: "SentInput" });
