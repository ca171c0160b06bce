
// The page that answers back: what the kernel knows is in the widget's state, what a reader wants is sent to it.

function liveView(widget) {
  const told = h("p", { class: "live-answer", role: "status" });
  const spent = h("p", { class: "live-spent" });
  const span = h("section", { class: "live-span", hidden: true, "aria-label": "What the words rest on" });
  const boxes = new Map();
  const settled = [];
  const root = h("section", { class: "live", "aria-label": "Ask the model" });

  function busy(is) {
    root.setAttribute("aria-busy", String(is));
    if (is) told.textContent = "Asking the model …";
  }

  function ask(message) {
    busy(true);
    widget.send(message);
  }

  function switchOff() {
    busy(true);
    widget.set("off", [...boxes].filter(([, box]) => !box.checked).map(([leaf]) => leaf));
    widget.save_changes();
  }

  function show() {
    const off = new Set(widget.get("off"));
    boxes.forEach((box, leaf) => { box.checked = !off.has(leaf); });
    settled.forEach((settle) => settle());
  }

  const list = h("ul", { class: "live-parts" }, widget.get("parts").map(({ name, leaves }) => {
    const whole = h("input", { type: "checkbox", checked: true });
    const settle = () => {
      const on = leaves.filter(([leaf]) => boxes.get(leaf).checked).length;
      whole.checked = on > 0;
      whole.indeterminate = on > 0 && on < leaves.length;
    };
    const own = leaves.map(([leaf, label]) => {
      const box = h("input", { type: "checkbox", checked: true, onchange: () => { settle(); switchOff(); } });
      boxes.set(leaf, box);
      return h("li", {}, h("label", {}, box, h("span", { dir: "auto" }, label)));
    });
    settled.push(settle);
    whole.addEventListener("change", () => {
      leaves.forEach(([leaf]) => { boxes.get(leaf).checked = whole.checked; });
      settle();
      switchOff();
    });
    const inner = h("ul", { hidden: true, class: "live-leaves", id: fresh("leaves") }, own);
    const open = h("button", {
      type: "button", class: "button", "aria-expanded": "false", "aria-controls": inner.id, "aria-label": `What is in ${name}`,
      onclick: () => { inner.hidden = !inner.hidden; open.setAttribute("aria-expanded", String(!inner.hidden)); open.textContent = inner.hidden ? "+" : "−"; },
    }, "+");
    const alone = leaves.length === 1 && leaves[0][1] === name;
    return h("li", {}, !alone && open, h("label", {}, whole, h("span", { dir: "auto" }, name)), inner);
  }));

  const reset = h("button", { type: "button", class: "button", onclick: () => { boxes.forEach((box) => { box.checked = true; }); settled.forEach((settle) => settle()); switchOff(); } }, "All on");
  const rows = h("input", { type: "number", min: 1, value: 100, step: 50, id: fresh("rows"), class: "live-rows" });
  const spend = h("button", {
    type: "button", class: "button",
    onclick: () => ask({ rows: Math.max(1, Number(rows.value) || 1) }),
  }, "Spend more rows");

  function tell() {
    const answer = widget.get("answer");
    busy(false);
    spent.textContent = `${answer.rows} of ${count(answer.budget, "rows")} asked` + (answer.cost === null ? "" : `, cost ${number(answer.cost)}`);
    const unit = answer.unit ? ` ${answer.unit}` : "";
    told.classList.toggle("bad", Boolean(answer.error));
    if (answer.error) told.textContent = answer.error;
    else if (answer.span) told.textContent = `${answer.span.title}: see the list.`;
    else if (!answer.off) told.textContent = "Switch anything off to see what the model says without it.";
    else {
      told.textContent = `${capital(answer.target)} with ${answer.off} off: the model says ${number(answer.says)}${unit}, the explanation predicted ${number(answer.predicted)}${unit} (${number(Math.abs(answer.says - answer.predicted))} apart).`;
    }
    if (answer.span) {
      span.hidden = false;
      span.replaceChildren(h("h3", { dir: "auto" }, answer.span.title),
        h("ul", {}, answer.span.values.map(([name, value]) => h("li", {}, h("code", {}, value), " ", h("span", { dir: "auto" }, name)))));
    }
  }
  widget.on("change:answer", tell);
  widget.on("change:off", show);
  fill(root, null, [
    h("h2", { class: "level" }, "Ask the model"),
    h("div", { class: "controls" }, reset, h("label", { for: rows.id }, "Rows"), rows, spend),
    chosenWords(widget, ask), list, span,
  ]);
  show();
  tell();
  return [root, h("div", { class: "live live-bar" }, told, spent)];
}

// Words of a cited answer: selected in it, or typed.
function chosenWords(widget, ask) {
  const cited = widget.get("block").answer;
  if (!cited || !cited.unit) return null;
  const words = h("input", { type: "text", id: fresh("words"), class: "live-words", dir: "auto" });
  const send = () => ask({ words: words.value });
  words.addEventListener("keydown", (event) => { if (event.key === "Enter") send(); });
  const take = () => {
    const holder = words.getRootNode();
    const selection = holder.getSelection ? holder.getSelection() : window.getSelection();
    const text = selection ? String(selection).trim() : "";
    if (text && cited.statements.some((statement) => statement.text.includes(text))) words.value = text;
  };
  document.addEventListener("pointerup", () => setTimeout(take));
  return h("div", { class: "controls" }, h("label", { for: words.id }, "Words of the answer"), words,
    h("button", { type: "button", class: "button", onclick: send }, "Explain these words"),
    h("span", { class: "quiet" }, "Select them in the answer, or type them."));
}

export default {
  render({ model: widget, el }) {
    const css = h("style");
    css.textContent = widget.get("style_sheet");
    const root = h("div", { class: "c2fa-root island" });
    const light = document.body && document.body.getAttribute("data-jp-theme-light");
    if (light) root.setAttribute("data-theme", light === "false" ? "dark" : "light");
    const page = h("div");
    const draw = () => page.replaceChildren(explanationView(widget.get("block")));
    draw();
    widget.on("change:block", draw);
    root.append(h("div", { class: "corner" }, themeButton(root)), page, ...liveView(widget));
    const host = h("div");
    host.attachShadow({ mode: "open" }).append(css, root);
    el.append(host);
  },
};
