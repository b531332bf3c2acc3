/** Names of keys that input may press: those of X11 (keysymdef.h), and the short names that people use for them. */

const LETTERS = "abcdefghijklmnopqrstuvwxyz";
const FUNCTION_KEYS = Array.from({ length: 24 }, (_, i) => `F${i + 1}`);
const KEYPAD = [
  ..."0123456789",
  ..."Enter Add Subtract Multiply Divide Decimal Home End Up Down Left Right Prior Next Insert Delete Begin".split(" "),
].map((name) => `KP_${name}`);
const NAMED = [
  "Return Escape Tab ISO_Left_Tab BackSpace Delete Insert Home End Prior Next Page_Up Page_Down Left Right Up Down",
  "space Menu Print Pause Break Scroll_Lock Num_Lock Caps_Lock",
  "Shift_L Shift_R Control_L Control_R Alt_L Alt_R Meta_L Meta_R Super_L Super_R ISO_Level3_Shift",
  "ctrl alt shift super meta",
  "exclam quotedbl numbersign dollar percent ampersand apostrophe parenleft parenright asterisk plus comma minus period",
  "slash colon semicolon less equal greater question at bracketleft backslash bracketright asciicircum underscore grave",
  "braceleft bar braceright asciitilde",
].flatMap((names) => names.split(" "));

const KEYS = [...LETTERS, ...LETTERS.toUpperCase(), ..."0123456789", ...FUNCTION_KEYS, ...KEYPAD, ...NAMED];

/** Short names, in lower case. */
const SHORT: Readonly<Record<string, string>> = {
  enter: "Return",
  esc: "Escape",
  del: "Delete",
  ins: "Insert",
  pageup: "Page_Up",
  pagedown: "Page_Down",
  control: "ctrl",
  win: "super",
  cmd: "super",
  option: "alt",
};

/** By their names, and longer ones whatever the case. */
const BY_NAME = new Map([
  ...KEYS.filter((name) => name.length > 1).map((name) => [name.toLowerCase(), name] as const),
  ...Object.entries(SHORT),
  ...KEYS.map((name) => [name, name] as const),
]);

/** Returns a key's name in X11; null for an unknown key. */
const keyName = (name: string): string | null => BY_NAME.get(name) ?? BY_NAME.get(name.toLowerCase()) ?? null;

/** Returns names of keys that are pressed together, as X11 has them; null if one is unknown. */
export function keyNames(keys: string): string | null {
  const names = keys.split("+").map(keyName);
  return names.includes(null) ? null : names.join("+");
}

/** Between keys: programs miss faster ones. */
export const KEY_DELAY_MS = 4;
/** For other characters than ASCII xdotool changes the keyboard's layout; programs read the new one before the next key. */
const LAYOUT_DELAY_MS = 40;

/** Returns the milliseconds between the keys of a text. */
export const keyDelayMs = (text: string): number => (/^[\n\t -~]*$/.test(text) ? KEY_DELAY_MS : LAYOUT_DELAY_MS);
