/** The form that asks for a key or a password, and says what is wrong with the one it got. */
import { h, setText, show } from "./dom.js";
import { act, problem } from "./widgets.js";

/** @import { Api } from "./api.js" */

/** @typedef {"key" | "password" | "register"} Way */

/** @type {Readonly<Record<Way, string>>} */
const SUBMIT = { key: "Sign in", password: "Sign in", register: "Create account" };
/** Names of the buttons that change the way. @type {Readonly<Record<Way, string>>} */
const CHOICE = { key: "Use an API key", password: "Use a password", register: "New account" };

/**
 * Ways that the setting of the daemon allows, the first one first.
 * @param {string} users
 * @returns {readonly Way[]}
 */
function waysOf(users) {
  if (users === "on") return ["password", "register", "key"];
  return users === "login" ? ["password", "key"] : ["key"];
}

/** @param {string} id @param {string} label @param {Record<string, string | boolean>} attributes */
function field(id, label, attributes) {
  const input = h("input", { id, required: true, spellcheck: "false", autocapitalize: "off", ...attributes });
  return { input, element: h("div", {}, h("label", { for: id, text: label }), input) };
}

/**
 * @param {Api} api
 * @param {string} reason why a person who was signed in has to sign in again; empty otherwise
 * @param {() => void} onSignedIn
 */
export function signIn(api, reason, onSignedIn) {
  const trouble = problem();
  const key = field("key", "API key", { type: "password", autocomplete: "off" });
  const email = field("email", "E-mail", { type: "email", autocomplete: "username" });
  const password = field("password", "Password", { type: "password", autocomplete: "current-password" });
  const name = field("name", "Name", { type: "text", autocomplete: "name" });
  /** @type {Readonly<Record<Way, readonly ReturnType<typeof field>[]>>} */
  const fields = { key: [key], password: [email, password], register: [name, email, password] };
  const button = h("button", { class: "primary", type: "submit" });
  const choices = h("div", { class: "choices" });
  const keyHint = h(
    "p",
    { class: "hint" },
    "The daemon printed a key at its first start and keeps it in the file ",
    h("code", { text: "key" }),
    " of its data directory. This tab keeps it until you sign out or close it.",
  );
  const userHint = h("p", { class: "hint", text: "This tab stays signed in until you sign out or close it." });
  const state = { way: /** @type {Way} */ ("key"), ways: waysOf("off") };

  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      const used = { email: email.input.value.trim(), password: password.input.value };
      try {
        if (state.way === "key") await api.signIn(key.input.value.trim());
        else await api.signInUser(state.way === "password" ? used : { ...used, name: name.input.value.trim() });
      } catch (error) {
        (state.way === "key" ? key : password).input.select();
        throw error;
      }
      onSignedIn();
    });
  };

  /** @param {Way} way */
  const choose = (way) => {
    state.way = way;
    for (const { element, input } of [key, name, email, password]) {
      const isShown = fields[way].some((one) => one.input === input);
      show(element, isShown);
      input.disabled = !isShown;
    }
    password.input.autocomplete = way === "register" ? "new-password" : "current-password";
    setText(button, SUBMIT[way]);
    show(keyHint, way === "key");
    show(userHint, way !== "key");
    const others = state.ways.filter((one) => one !== way);
    const onclick = (/** @type {Way} */ one) => () => {
      trouble.update(null);
      choose(one);
      focus();
    };
    choices.replaceChildren(
      ...others.map((one) => h("button", { type: "button", class: "quiet", text: CHOICE[one], onclick: onclick(one) })),
    );
  };
  const focus = () => fields[state.way][0]?.input.focus();

  /** Learned behind the form: a key can be typed at once, and then the form stays as it is. */
  const learn = async () => {
    state.ways = waysOf(await api.users());
    const hasTyped = key.input.value !== "";
    choose(hasTyped ? "key" : (state.ways[0] ?? "key"));
    if (!hasTyped && state.way !== "key") focus();
  };

  if (reason !== "") trouble.update(reason);
  choose("key");
  const form = h(
    "form",
    { class: "card sign-in", onsubmit, "aria-label": "Sign in" },
    h("h1", {}, h("img", { src: "/page/icon.svg", alt: "", width: 28, height: 28 }), "hearth"),
    ...[name, email, password, key].map(({ element }) => element),
    trouble.element,
    button,
    choices,
    keyHint,
    userHint,
  );
  // A daemon that does not answer now is asked at the sign-in.
  void learn().catch(() => {});
  return { element: form, focus };
}
