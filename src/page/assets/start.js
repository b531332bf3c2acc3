/**
 * Loads the page, and loads it again when a part of it has not come: Chromium gives up connections that are being made
 * while an address of the machine comes or goes, and beside a daemon that starts containers some do all the time.
 */

const COUNT = "hearth.loads";
const LOADS_MAX = 5;

async function start() {
  const styles = /** @type {NodeListOf<HTMLLinkElement>} */ (document.querySelectorAll("link[rel=stylesheet]"));
  const isStyled = [...styles].every(({ sheet }) => sheet !== null);
  const isLoaded =
    isStyled &&
    (await import("./main.js")
      .then(({ begin }) => begin())
      .then(
        () => true,
        () => false,
      ));
  const load_count = Number(sessionStorage.getItem(COUNT)) + 1;
  if (isLoaded || load_count >= LOADS_MAX) return sessionStorage.removeItem(COUNT);
  sessionStorage.setItem(COUNT, String(load_count));
  location.reload();
}

void start();
