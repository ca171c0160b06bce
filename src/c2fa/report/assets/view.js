// One explanation: summary, controls, the input and its tree side by side, the table below.

function explanationView(raw, heading = "") {
  const model = readModel(raw);
  const status = h("p", { class: "status", role: "status" });
  const idle = "Point at anything, or move to it by keys, to see what it belongs to.";
  const say = (text) => { status.textContent = text; };
  say(idle);
  const root = h("div", { class: "explanation" });
  const input = { text: textView, images: imagesView, series: seriesView, bag: bagView }[raw.kind];
  const drawn = input && raw.view ? input(model) : null;
  // Levels that contradict each other are lists of their own: no part is shown as the sum of its leaves.
  const trees = raw.contradiction ? model.labels.map((_, k) => treeView(model, k)) : [treeView(model)];
  const lists = trees.map((tree, k) => [raw.contradiction && h("h3", { class: "level" }, capital(model.labels[k])), tree]);
  model.reveal = (k, i) => trees.forEach((tree) => tree.reveal(k, i));
  const panes = h("div", { class: drawn ? "panes" : "panes alone" },
    drawn && h("section", { class: "pane input", "aria-label": "The input" }, drawn, raw.kind === "images" ? null : legend(model)),
    h("section", { class: "pane", "aria-label": "Attributions" }, sums(model), treeTools(model), lists, drawn ? null : legend(model)));
  const above = raw.answer ? [answerView(model, heading), factsView(model)] : [summaryView(model)];
  fill(root, null, [raw.contradiction && h("p", { class: "warnings contradiction" }, "⚠ ", capital(raw.contradiction), "."), above, warningList(raw), controls(model), status, panes, tableView(model, say)]);
  model.listen((changes) => {
    if (!("focus" in changes)) return;
    say(model.focus ? sentenceAbout(model, ...model.focus) + (model.pinned ? " (kept; Escape lets go)" : "") : idle);
  });
  root.addEventListener("keydown", (event) => { if (event.key === "Escape") model.away(true); });
  let before = null;
  const opened = () => { before = new Set(model.open); for (let i = 0; i < raw.widths[0]; i++) model.open.add(`0:${i}`); model.set({ open: model.open }); };
  window.addEventListener("beforeprint", () => { if (!before && root.isConnected) opened(); });
  window.addEventListener("afterprint", () => { if (before) { model.set({ open: before }); before = null; } });
  return root;
}

function summaryView(model) {
  const raw = model.raw;
  const value = h("span", { class: "big" });
  const name = h("span", { class: "what", dir: "auto" });
  const scale = h("span", { class: "quiet" });
  function render() {
    const chosen = raw.classes[model.column];
    value.textContent = number(chosen.output);
    name.textContent = chosen.name;
    scale.textContent = raw.unit ? ` (${raw.unit} ${number(chosen.linked)}, which the attributions are in)` : "";
  }
  render();
  model.listen((changes) => { if ("column" in changes) render(); });
  const pred = h("p", { class: "prediction" }, h("span", { class: "quiet" }, "The model says "), value, h("span", { class: "quiet" }, " for "), name, scale);
  return h("div", { class: "summary" }, pred, factsView(model));
}

function factsView(model) {
  const raw = model.raw;
  const fact = (term, ...text) => h("div", {}, h("dt", {}, term), h("dd", {}, text));
  const spent = [`${raw.queries} rows`];
  if (raw.recalled) spent.push(`${raw.recalled} from the ledger`);
  if (raw.dropped) spent.push(`${raw.dropped} dropped`);
  if (raw.cost !== null) spent.push(`cost ${number(raw.cost)}`);
  const fits = fitted(model);
  return h("dl", { class: "facts" },
    fact("Spent", spent.join(", ")),
    fits.length ? fact("Fit", fits) : null,
    fact("Method", [raw.method || "–", /[<>]/.test(raw.model) ? "" : raw.model].filter(Boolean).join(" · ")),
    fact("Levels", raw.widths.map((n, k) => count(n, model.labels[k])).join(" › ")));
}

// As the text has it: what is exact and how well rows that are left out are predicted, or the fit of each level.
function fitted(model) {
  const { exact, levels } = model.raw;
  const rated = (r2, text) => h("span", { class: `fit ${quality(r2)}` }, `${text} (${quality(r2)})`);
  if (!exact.length) return levels.flatMap((fit, k) => fit.rows ? [rated(fit.r2, `${model.labels[k]} R² ${number(fit.r2, 2)}`)] : []);
  const said = model.labels.filter((_, k) => exact[k]).map((label) => h("span", { class: "fit good" }, `${label} exact`));
  const leftOut = levels[levels.length - 1].r2_left_out;
  if (leftOut !== null && !exact.every(Boolean)) said.push(rated(leftOut, `R² ${number(leftOut, 2)} of rows left out`));
  return said;
}

function quality(r2) {
  return r2 === null ? "unknown" : r2 >= 0.8 ? "good" : r2 >= 0.5 ? "fair" : "weak";
}

function warningList(raw) {
  const warnings = raw.warnings.length && h("ul", { class: "warnings", "aria-label": "Warnings" },
    raw.warnings.map((text) => h("li", {}, h("span", { "aria-hidden": "true" }, "⚠ "), text)));
  const notes = raw.notes.length && h("ul", { class: "notes quiet" }, raw.notes.map((text) => h("li", {}, text)));
  return [warnings || null, notes || null];
}

// What the parts make together, and how far that is from what the model says.
function sums(model) {
  const line = h("p", { class: "sums" });
  const raw = model.raw;
  function render() {
    const { base, linked, digits } = raw.classes[model.column];
    const total = sumOf(model, 0, model.values(0).keys());
    const unit = model.unit ? ` ${model.unit}` : "";
    const adds = raw.consistency !== null && raw.consistency < 1e-6;
    line.replaceChildren(
      raw.answer ? h("b", {}, `For ${shownStatement(model)}: `) : "", base ? `base ${model.written(base)} and ` : "", `${model.labels[0]} ${model.written(total)} make `,
      h("b", {}, model.written((base || 0) + total, false)), `${unit}; the model says ${number(linked, digits)}${unit}. `,
      model.depth < 2 || raw.contradiction ? "" : adds ? `Every bar is the sum of the bars under it.` : h("span", { class: "bad" }, "With this method the levels do not add up."));
  }
  render();
  model.listen((changes) => { if ("column" in changes) render(); });
  return line;
}

function legend(model) {
  const words = model.labels[model.depth - 1];
  const dotted = model.raw.kind === "text" ? h("span", { class: "hint" }, `${capital(words)} against are dotted. `, model.raw.answer ? `What is within two standard errors of 0 is not shaded. ` : "", model.depth > 2 || (model.depth > 1 && !model.raw.answer) ? `Lines under ${words}: their ${one(model.labels[model.depth - 2])}.` : "") : null;
  return h("div", { class: "legend" }, h("span", {}, "− against"), h("span", { class: "ramp", role: "img", "aria-label": "Colour scale: orange speaks against the target, blue for it" }), h("span", {}, "for +"), dotted);
}

function segments(label, choices, chosen, change) {
  const name = fresh("choice");
  return h("fieldset", { class: "segments" }, h("legend", {}, label),
    choices.map(([value, text]) => h("label", {},
      h("input", { type: "radio", name, value: String(value), checked: value === chosen, onchange: () => change(value) }), h("span", { dir: "auto" }, text))));
}

function controls(model) {
  const raw = model.raw;
  const out = [];
  if (raw.classes.length > 1 && !raw.answer) {
    const choices = raw.classes.map((c, n) => [n, c.name]);
    const long = choices.length > 4 || choices.some((c) => c[1].length > 24);
    if (!long) out.push(segments("Target", choices, model.column, (column) => model.set({ column })));
    else {
      const id = fresh("target");
      out.push(h("div", { class: "field" }, h("label", { for: id }, "Target"),
        h("select", { id, onchange: (event) => model.set({ column: Number(event.target.value) }) },
          raw.classes.map((c, n) => h("option", { value: n, selected: n === model.column }, `${c.name} (${number(c.output)})`)))));
    }
  }
  if (model.depth > 1) {
    const choices = [["all", model.depth === 2 ? "both" : "all"], ...model.labels.map((label, k) => [k, label])];
    out.push(segments("Level", choices, model.mode, (mode) => model.set({ mode })));
  }
  out.push(slider(model));
  return h("div", { class: "controls" }, out);
}

// What concerns the tree alone stands above it.
function treeTools(model) {
  const raw = model.raw;
  if (model.depth < 2 || raw.contradiction) return null;
  const all = (open) => {
    model.open.clear();
    if (open) for (let k = 0; k < model.depth - 1; k++) for (let i = 0; i < raw.widths[k]; i++) model.open.add(`${k}:${i}`);
    model.set({ open: model.open });
  };
  const sorted = h("input", { type: "checkbox", checked: model.sorted, onchange: (event) => model.set({ sorted: event.target.checked }) });
  model.listen((changes) => { if ("mode" in changes) box.hidden = model.mode !== "all"; });
  const box = h("div", { class: "tools" },
    h("button", { type: "button", class: "button", onclick: () => all(true) }, "Expand all"),
    h("button", { type: "button", class: "button", onclick: () => all(false) }, "Collapse all"),
    h("label", { class: "check" }, sorted, "Largest first"));
  return box;
}

function slider(model) {
  const stops = stopsFor(model.leaves);
  const id = fresh("leaves");
  const label = model.labels[model.depth - 1];
  const shown = h("output", { for: id });
  const range = h("input", { id, type: "range", min: 0, max: stops.length - 1, step: 1, value: Math.max(0, stops.indexOf(model.top)) });
  const tell = () => {
    const text = `${model.top} of ${model.leaves}`;
    shown.textContent = text;
    range.setAttribute("aria-valuetext", `${text} ${label}`);
  };
  range.addEventListener("input", () => {
    model.set({ top: stops[Number(range.value)] });
    tell();
  });
  tell();
  return h("div", { class: "field slider" }, h("label", { for: id }, `Top ${label}`), range, shown);
}
