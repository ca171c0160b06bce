
// The page that answers back: what the kernel knows is in the widget's state, what a reader wants is sent to it.

function liveView(widget) {
  const told = h("p", { class: "status live-answer", role: "status" });
  const spent = h("p", { class: "quiet live-spent" });
  const closer = h("div", { class: "live-closer" });
  const rows = h("input", { type: "number", min: 1, value: 100, step: 50, id: fresh("rows"), class: "live-rows" });
  const part = h("select", { id: fresh("part") }, h("option", { value: "" }, "the whole input"));
  const list = h("ul", { class: "live-parts" });
  const boxes = new Map();
  const settled = [];
  const root = h("section", { class: "live", "aria-label": "Ask the model" });

  function busy(is) {
    root.setAttribute("aria-busy", String(is));
    if (is) told.textContent = "Asking the model …";
  }

  function send() {
    const off = [...boxes].filter(([, box]) => !box.checked).map(([leaf]) => leaf);
    busy(true);
    widget.set("off", off);
    widget.save_changes();
  }

  widget.get("parts").forEach(({ name, leaves }, j) => {
    part.append(h("option", { value: j }, name.length > 60 ? name.slice(0, 59) + "…" : name));
    const whole = h("input", { type: "checkbox", checked: true });
    const own = leaves.map(([leaf, label]) => {
      const box = h("input", { type: "checkbox", checked: true, onchange: () => { settle(); send(); } });
      boxes.set(leaf, box);
      return h("li", {}, h("label", {}, box, h("span", { dir: "auto" }, label)));
    });
    const settle = () => {
      const on = leaves.filter(([leaf]) => boxes.get(leaf).checked).length;
      whole.checked = on > 0;
      whole.indeterminate = on > 0 && on < leaves.length;
    };
    settled.push(settle);
    whole.addEventListener("change", () => {
      leaves.forEach(([leaf]) => { boxes.get(leaf).checked = whole.checked; });
      settle();
      send();
    });
    const alone = leaves.length === 1 && leaves[0][1] === name;
    const inner = h("ul", { hidden: true, class: "live-leaves" }, own);
    const open = h("button", {
      type: "button", class: "button", "aria-expanded": "false", "aria-label": `Show what is in ${name}`,
      onclick: () => { inner.hidden = !inner.hidden; open.setAttribute("aria-expanded", String(!inner.hidden)); open.textContent = inner.hidden ? "+" : "−"; },
    }, "+");
    list.append(h("li", {}, !alone && open, h("label", {}, whole, h("span", { dir: "auto" }, name)), inner));
  });

  const reset = h("button", { type: "button", class: "button", onclick: () => { boxes.forEach((box) => { box.checked = true; }); settled.forEach((settle) => settle()); send(); } }, "All on");
  const spend = h("button", {
    type: "button", class: "button",
    onclick: () => { busy(true); widget.send({ rows: Math.max(1, Number(rows.value) || 1), part: part.value === "" ? null : Number(part.value) }); },
  }, "Spend");

  function tell() {
    const answer = widget.get("answer");
    busy(false);
    spent.textContent = `${answer.rows} rows asked in all` + (answer.cost === null ? "" : `, cost ${number(answer.cost)}`);
    const unit = answer.unit ? ` ${answer.unit}` : "";
    told.classList.toggle("bad", Boolean(answer.error));
    if (answer.error) told.textContent = answer.error;
    else if (answer.off === undefined) told.textContent = "Switch anything off to see what the model says without it.";
    else {
      told.textContent = `${capital(answer.target)} with ${answer.off} off: the model says ${number(answer.says)}${unit}, the explanation predicted ${number(answer.predicted)}${unit} (${number(Math.abs(answer.says - answer.predicted))} apart).`;
    }
    if (answer.part) {
      closer.replaceChildren(h("p", {}, "With everything else kept:"), h("ul", {}, answer.part.map(([name, value]) => h("li", {}, h("code", {}, value), " ", h("span", { dir: "auto" }, name)))));
      told.textContent = "The part was explained by itself, below.";
    }
  }
  tell();
  widget.on("change:answer", tell);
  widget.on("change:off", () => {
    const off = new Set(widget.get("off"));
    boxes.forEach((box, leaf) => { box.checked = !off.has(leaf); });
    settled.forEach((settle) => settle());
  });
  fill(root, null, [
    h("h2", { class: "level" }, "Ask the model"), told, spent,
    h("div", { class: "controls" }, reset, h("label", { for: rows.id }, "Rows"), rows, h("label", { for: part.id }, "more on"), part, spend),
    list, closer,
  ]);
  return root;
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
    root.append(h("div", { class: "corner" }, themeButton(root)), page, liveView(widget));
    const host = h("div");
    host.attachShadow({ mode: "open" }).append(css, root);
    el.append(host);
  },
};
