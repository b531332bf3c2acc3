/** The form that asks for a key, and says what is wrong with the one it got. */
import { h } from "./dom.js";
import { act, problem } from "./widgets.js";

/** @import { Api } from "./api.js" */

/**
 * @param {Api} api
 * @param {string} reason why somebody who was signed in is asked again; empty otherwise
 * @param {() => void} onSignedIn
 */
export function signIn(api, reason, onSignedIn) {
  const trouble = problem();
  const key = h("input", {
    id: "key",
    type: "password",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
  });
  const button = h("button", { class: "primary", type: "submit", text: "Sign in" });
  /** @param {SubmitEvent} event */
  const onsubmit = (event) => {
    event.preventDefault();
    void act(button, trouble, async () => {
      try {
        await api.signIn(key.value.trim());
      } catch (error) {
        key.select();
        throw error;
      }
      onSignedIn();
    });
  };
  if (reason !== "") trouble.update(reason);
  const form = h(
    "form",
    { class: "card sign-in", onsubmit, "aria-label": "Sign in" },
    h("h1", {}, h("img", { src: "/page/icon.svg", alt: "", width: 28, height: 28 }), "hearth"),
    h("label", { for: "key", text: "API key" }),
    key,
    trouble.element,
    button,
    h(
      "p",
      { class: "hint" },
      "The daemon printed a key at its first start and keeps it in the file ",
      h("code", { text: "key" }),
      " of its data directory. This tab keeps it until you sign out or close it.",
    ),
  );
  return { element: form, focus: () => key.focus() };
}
