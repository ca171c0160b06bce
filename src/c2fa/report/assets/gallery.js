// The page: one explanation, or many as cards that open; and the start of it all.

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

function spark(values) {
  const most = largest(values);
  const width = 100 / Math.max(values.length, 1);
  return s("svg", { class: "spark", viewBox: "0 0 100 32", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("line", { x1: 0, x2: 100, y1: 16, y2: 16 }),
    values.map((v, i) => s("rect", { class: sign(v), x: width * (i + 0.1), width: width * 0.8, y: v > 0 ? 16 - (15 * v) / most : 16, height: v ? Math.max((15 * Math.abs(v)) / most, 0.3) : 0 })));
}

function card(info, n, load) {
  const panel = h("div", { class: "panel", id: fresh("panel"), hidden: true });
  const button = h("button", { type: "button", class: "card-head", "aria-expanded": "false", "aria-controls": panel.id },
    h("span", { class: "card-title", dir: "auto" }, info.title),
    h("span", { class: "card-text", dir: "auto" }, info.lead.map(([name, value], n) => [n ? " · " : "", h("bdi", {}, short(name, 40)), h("b", { class: sign(value) }, " " + written(value, info.digits, true))])),
    h("span", { class: "card-side" }, spark(info.parts),
      h("span", { class: "card-pred" }, h("b", {}, number(info.prediction)), " ", info.target),
      info.unsupported ? h("span", { class: "card-warn" }, "⚠ ", info.unsupported) : null,
      info.warnings ? h("span", { class: "card-warn" }, "⚠ ", count(info.warnings, "warnings")) : null));
  const li = h("li", { class: "card" }, h("h2", {}, button), panel);
  button.addEventListener("click", () => {
    const open = panel.hidden;
    if (open && !panel.firstChild) panel.append(explanationView(load(n), info.title));
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    li.classList.toggle("open", open);
  });
  li.search = `${info.title} ${info.text} ${info.target}`.toLowerCase();
  return li;
}

function galleryView(index, load) {
  const cards = index.cards.map((info, n) => card(info, n, load));
  const id = fresh("search");
  const found = h("p", { class: "found", role: "status" });
  const none = h("p", { class: "none", hidden: true }, "Nothing matches.");
  const field = h("input", { id, type: "search", placeholder: "words in the input, a class, a title", autocomplete: "off" });
  const search = () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const li of cards) {
      li.hidden = !wanted.every((word) => li.search.includes(word));
      if (!li.hidden) shown++;
    }
    found.textContent = `${shown} of ${cards.length}`;
    none.hidden = shown > 0;
  };
  field.addEventListener("input", search);
  search();
  return [h("div", { class: "search" }, h("label", { for: id }, "Search"), field, found), h("ul", { class: "cards" }, cards), none];
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
