// All numbers of a level: sorted by a click on a heading, copied as tab-separated text.

function tableView(model, say) {
  const raw = model.raw;
  const body = h("tbody", {});
  const heads = [["name", "Name"], ["part", "Part of"], ["value", model.unit ? `Attribution (${model.unit})` : "Attribution"], ["error", "Standard error"]];
  if (raw.prior) heads.push(["prior", "From prior"]);
  const numbers = ["value", "error", "prior"];
  const most = 2000; // rows that a browser lays out at once; all of them are copied
  let sorted = "value";
  let up = false;
  const cells = heads.map(([id, label]) => h("th", { scope: "col", class: numbers.includes(id) ? "num" : "" },
    h("button", { type: "button", onclick: () => { up = sorted === id ? !up : id !== "value"; sorted = id; render(); } }, label,
      h("span", { class: "arrow", "aria-hidden": "true" }))));
  const caption = h("caption", {});
  const table = h("table", {}, caption, h("thead", {}, h("tr", {}, cells)), body);
  const copy = h("button", { type: "button", class: "button", onclick: () => copyTable() }, "Copy table");
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of attributions" }, table);
  const details = h("details", { class: "numbers" }, h("summary", {}, "All numbers as a table"), h("div", { class: "tools" }, copy), scroll);

  const level = () => (model.mode === "all" ? model.depth - 1 : model.mode);

  function rows() {
    const k = level();
    const out = Array.from(model.values(k), (_, i) => ({
      i, value: model.units(k, i), name: model.name(k, i), error: model.errors(k, i), prior: model.prior(k, i), part: k ? model.name(k - 1, model.parents[k - 1][i]) : "",
    }));
    const by = {
      name: (a, b) => a.name.localeCompare(b.name), part: (a, b) => a.part.localeCompare(b.part),
      value: (a, b) => a.value - b.value, error: (a, b) => (a.error || 0) - (b.error || 0), prior: (a, b) => a.prior - b.prior,
    }[sorted];
    out.sort((a, b) => (up ? by(a, b) : by(b, a)) || a.i - b.i);
    return out;
  }

  function render() {
    if (!details.open) return;
    const k = level();
    const cut = model.raw.widths[k] > most ? `; the first ${most} are shown, all are copied` : "";
    caption.textContent = `${capital(count(model.raw.widths[k], model.labels[k]))}, ${raw.answer ? shownStatement(model) : `target ${raw.classes[model.column].name}`}${cut}`;
    cells.forEach((th, n) => {
      const on = heads[n][0] === sorted;
      on ? th.setAttribute("aria-sort", up ? "ascending" : "descending") : th.removeAttribute("aria-sort");
      th.querySelector(".arrow").textContent = on ? (up ? " ▲" : " ▼") : "";
    });
    body.replaceChildren(...rows().slice(0, most).map((row) => {
      const tr = h("tr", {}, h("th", { scope: "row", dir: "auto" }, short(row.name, 120)), h("td", { dir: "auto" }, short(row.part || "–", 80)),
        h("td", { class: "num" }, model.said(k, row.i)), h("td", { class: "num" }, model.written(row.error, false)),
        raw.prior ? h("td", { class: "num" }, model.number(row.prior)) : null);
      tr.i = row.i;
      return tr;
    }));
  }

  async function copyTable() {
    const clean = (text) => String(text).replace(/[\t\r\n\u2028\u2029]+/g, " ");
    const k = level();
    const lines = rows().map((r) => [clean(r.name), clean(r.part), model.said(k, r.i).replace("−", "-"), raw.stderr ? model.written(r.error, false) : "", ...(raw.prior ? [model.number(r.prior).replace("−", "-")] : [])].join("\t"));
    const text = [heads.map((x) => x[1]).join("\t"), ...lines].join("\n");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Pages from a file, and frames, may not have a clipboard: select a field and let the browser copy it.
      const field = h("textarea", { "aria-hidden": "true", tabindex: "-1", class: "hidden" });
      field.value = text;
      details.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    details.copied = text;
    say(`Copied ${count(lines.length, "rows")}`);
  }

  body.addEventListener("pointerover", (event) => {
    const tr = event.target.closest("tr");
    if (tr) model.look(level(), tr.i);
  });
  body.addEventListener("pointerleave", () => model.away());
  details.addEventListener("toggle", render);
  model.listen((changes) => { if ("column" in changes || "mode" in changes) render(); });
  return details;
}
