// The start of a page, of one explanation or of many, and of a view in a notebook.

function themeButton(root) {
  const names = ["auto", "light", "dark"];
  const button = h("button", { type: "button", class: "button theme" });
  const show = () => {
    const now = root.getAttribute("data-theme") || "auto";
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[now] + " " + now;
    button.setAttribute("aria-label", `Colours: ${now}. Change.`);
  };
  button.addEventListener("click", () => {
    const now = root.getAttribute("data-theme") || "auto";
    const next = names[(names.indexOf(now) + 1) % names.length];
    next === "auto" ? root.removeAttribute("data-theme") : root.setAttribute("data-theme", next);
    show();
  });
  show();
  return button;
}

function bootReport() {
  const root = document.getElementById("c2fa");
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const index = read("c2fa-index");
  const load = (n) => read(`c2fa-data-${n}`);
  const head = h("header", { class: "top" }, h("h1", { dir: "auto" }, index.title), themeButton(root));
  const main = h("main", {});
  root.append(head, main);
  if (index.cards.length) main.append(...galleryView(index, load));
  else main.append(explanationView(load(0), index.title));
}

// In a notebook: a tree of its own that neither reads nor changes anything around it.
function bootIsland(name, css, raw) {
  const host = document.getElementById(name);
  if (!host || host.shadowRoot || !host.attachShadow) return;
  const style = document.createElement("style");
  style.textContent = css;
  const root = h("div", { class: "c2fa-root island" });
  const dark = document.body && document.body.getAttribute("data-jp-theme-light");
  if (dark) root.setAttribute("data-theme", dark === "false" ? "dark" : "light");
  root.append(h("div", { class: "corner" }, themeButton(root)), explanationView(raw));
  host.attachShadow({ mode: "open" }).append(style, root);
}
