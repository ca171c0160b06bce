// Many explanations: what they have in common, then cards that open, to be sorted, filtered and searched.

// A card is made when it is first shown: a page may have thousands.
function card(info, n, load) {
  const panel = h("div", { class: "panel", id: fresh("panel"), hidden: true });
  const most = largest(info.lead.map(([, value]) => value));
  const bars = info.lead.map(([name, value]) => h("span", { class: "card-bar" },
    h("bdi", { class: "card-name" }, short(name, 40)),
    h("span", { class: `card-track ${sign(value)}`, "--w": `${(100 * Math.abs(value)) / most}%`, "aria-hidden": "true" }),
    h("b", { class: sign(value) }, written(value, info.digits, true))));
  const note = h("span", { class: "card-note" });
  const button = h("button", { type: "button", class: "card-head", "aria-expanded": "false", "aria-controls": panel.id },
    h("span", { class: "card-title", dir: "auto" }, info.title),
    h("span", { class: "card-side" },
      h("span", { class: "card-pred" }, h("b", {}, number(info.prediction)), " ", info.target),
      info.unsupported ? h("span", { class: "card-warn" }, "⚠ ", info.unsupported) : null,
      info.warnings ? h("span", { class: "card-warn" }, "⚠ ", count(info.warnings, "warnings")) : null, note),
    h("span", { class: "card-bars" }, bars));
  const li = h("li", { class: "card" }, h("h2", {}, button), panel);
  button.addEventListener("click", () => {
    const open = panel.hidden;
    if (open && !panel.firstChild) panel.append(explanationView(load(n), info.title));
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    li.classList.toggle("open", open);
  });
  li.note = note;
  return li;
}

function picker(label, options, change) {
  const id = fresh("choice");
  const option = ([value, text]) => h("option", { value }, text);
  const group = (each) => typeof each[1] === "string" ? option(each) : h("optgroup", { label: each[0] }, each[1].map(option));
  const select = h("select", { id, onchange: () => change() }, options.map(group));
  return [h("div", { class: "field" }, h("label", { for: id }, label), select), select];
}

function galleryView(index, load) {
  const infos = index.cards;
  const overall = index.overall;
  const texts = infos.map((info) => `${info.title} ${info.text} ${info.target}`.toLowerCase());
  const made = new Map();
  const step = 50;
  let shown = step;
  const values = new Map(); // of each name that matters: what it has in the inputs that have cards
  for (const output of overall ? overall.outputs : []) for (const feature of output.features) {
    if (!values.has(feature.name)) values.set(feature.name, new Map());
    for (const [n, value] of feature.cards) values.get(feature.name).set(n, value);
  }
  const orders = { input: null, prediction: (n) => infos[n].prediction, warnings: (n) => infos[n].warnings || null,
    fit: (n) => infos[n].fit === null ? null : 1 - infos[n].fit };
  const names = [...values.keys()].map((name) => [`name:${name}`, short(name, 60)]);
  const [sortField, sort] = picker("Sort by", [["input", "place in the dataset"], ["prediction", "prediction"], ["warnings", "warnings"],
    ["fit", "disagreement with the model"], ...(names.length ? [["value of", names]] : [])], () => render());
  const [targetField, target] = picker("Output", [["", "all"], ...[...new Set(infos.map((info) => info.target))].slice(0, 100).map((name) => [name, short(name, 60)])], () => render());
  const kinds = overall ? overall.warnings : [];
  const [warnedField, warned] = picker("Warnings", [["", "with or without"], ["any", "with any"], ["none", "without"],
    ...kinds.map((kind, n) => [String(n), short(kind.text, 60)])], () => render());
  const upwards = h("input", { type: "checkbox", onchange: () => render() });
  const id = fresh("search");
  const field = h("input", { id, type: "search", placeholder: "words in the input, a class, a title", autocomplete: "off", oninput: () => render() });
  const found = h("p", { class: "found", role: "status" });
  const none = h("p", { class: "none", hidden: true }, "Nothing matches.");
  const list = h("ul", { class: "cards" });
  const more = h("button", { type: "button", class: "button more", onclick: () => {
    const first = list.children.length;
    shown += step;
    render(false);
    list.children[first].querySelector("button").focus();
  } });

  function render(anew = true) {
    if (anew) shown = step;
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const some = warned.value && kinds[warned.value] ? new Set(kinds[warned.value].cards) : null;
    const fits = (n) => wanted.every((word) => texts[n].includes(word)) && (!target.value || infos[n].target === target.value)
      && (!some || some.has(n)) && (warned.value !== "any" || infos[n].warnings) && (warned.value !== "none" || !infos[n].warnings);
    const chosen = infos.map((_, n) => n).filter(fits);
    const own = sort.value.startsWith("name:") ? values.get(sort.value.slice(5)) : null;
    const key = own ? (n) => own.get(n) : orders[sort.value];
    const down = upwards.checked ? -1 : 1;
    if (key) {
      const known = (n) => key(n) !== undefined && key(n) !== null;
      // What has no value comes last, and those of equal value stay in their order.
      chosen.sort((a, b) => known(b) - known(a) || (known(a) ? down * (key(b) - key(a)) : 0) || a - b);
    } else if (upwards.checked) chosen.reverse();
    const now = chosen.slice(0, shown);
    list.replaceChildren(...now.map((n) => {
      if (!made.has(n)) made.set(n, card(infos[n], n, load));
      const li = made.get(n);
      const value = key && sort.value !== "prediction" && sort.value !== "warnings" ? key(n) : undefined;
      li.note.textContent = value === undefined || value === null ? "" : own ? `${short(sort.value.slice(5), 20)} ${number(value)}` : `R² ${number(1 - value, 2)}`;
      return li;
    }));
    found.textContent = now.length < chosen.length ? `${now.length} of ${chosen.length} that match, of ${infos.length}` : `${chosen.length} of ${infos.length}`;
    none.hidden = chosen.length > 0;
    more.hidden = now.length === chosen.length;
    more.textContent = `Show ${Math.min(step, chosen.length - now.length)} more`;
  }
  render();
  const pick = (name) => {
    sort.value = `name:${name}`;
    render();
    field.scrollIntoView({ block: "start" });
    sort.focus({ preventScroll: true });
  };
  return [overall && overallView(overall, infos.length, pick),
    h("section", { "aria-label": "The inputs, one by one" },
      h("div", { class: "search" }, h("label", { for: id }, "Search"), field, found),
      h("div", { class: "controls picking" }, sortField, h("label", { class: "check" }, upwards, "Reversed"), targetField, warnedField),
      list, none, more)].filter(Boolean);
}

// What all inputs have in common, be they on the page or not.
function overallView(overall, cards, pick) {
  const body = h("div", {});
  const named = (output) => output.name === null ? "all answers" : output.name;
  const draw = (k) => body.replaceChildren(...outputView(overall, overall.outputs[k], named(overall.outputs[k]), pick));
  const large = (n) => n.toLocaleString("en");
  const explained = overall.inputs - overall.failed;
  const choices = overall.outputs.map((output, k) => [k, `${short(named(output), 40)} (${large(output.inputs)})`]);
  if (overall.outputs.length) draw(0);
  const list = (title, items) => items.length ? [h("h3", {}, title), h("ul", { class: "tally" }, items.map(([n, text]) => h("li", {}, h("b", {}, large(n)), " × ", text)))] : null;
  const warnings = overall.warnings.map((kind) => [kind.inputs, kind.text]);
  const errors = overall.errors.map((error) => [error.inputs, `${error.text} (${error.inputs === 1 ? "input" : "inputs"} ${error.first.join(", ")}${error.inputs > error.first.length ? ", …" : ""})`]);
  return h("section", { class: "pane overall", "aria-label": "All inputs" },
    h("h2", {}, "All inputs"),
    h("p", {}, `${large(overall.inputs)} inputs, ${large(explained)} explained`, overall.failed ? [", ", h("span", { class: "bad" }, `${large(overall.failed)} set aside`)] : "",
      explained > cards ? `; the first ${large(cards)} have a card below` : "", "."),
    choices.length > 1 ? segments("Explained", choices, 0, draw) : null, body,
    list("Warnings", warnings), list("Set aside", errors));
}

function outputView(overall, output, name, pick) {
  const unit = overall.unit ? ` (${overall.unit})` : "";
  const rows = output.features;
  const most = largest(rows.flatMap((f) => [...f.dots, f.low, f.high]));
  const digits = digitsFor(largest(rows.map((f) => f.mean_abs)));
  const signed = (value) => written(value * 10 ** digits, digits, true);
  const x = (value) => 100 + (98 * value) / most;
  const wide = (f) => (f.dots.length > 50 ? 1 : 2.5); // few marks must be seen, many told apart
  const spread = (f) => s("svg", { class: "spread", viewBox: "0 0 200 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("line", { x1: 100, x2: 100, y1: 0, y2: 24 }),
    f.dots.map((value, n) => s("rect", { class: sign(value), x: x(value) - wide(f) / 2, width: wide(f), y: 1 + ((n * 7) % 19), height: 2 + wide(f) })),
    s("path", { class: "interval", d: `M${x(f.low)} 12H${x(f.high)}M${x(f.mean)} 5V19` }));
  const head = (text, kind) => h("th", { scope: "col", class: kind }, text);
  const table = rows.length ? h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `The ${overall.level} that matter most` }, h("table", {},
    h("caption", {}, `The ${overall.level} that matter most for ${name}, by the size of their attributions: the mean${unit}, and a mark for each input. Choose a name to sort the cards by its value.`),
    h("thead", {}, h("tr", {}, head(capital(one(overall.level))), head("Inputs", "num"), head("Mean", "num"), head("95 % interval", "num wide-only"), head("In each input", "spread-head"))),
    h("tbody", {}, rows.map((f) => h("tr", {},
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", onclick: () => pick(f.name) }, h("bdi", {}, short(f.name, 60)))),
      h("td", { class: "num" }, f.inputs.toLocaleString("en")), h("td", { class: `num ${sign(f.mean)}` }, signed(f.mean)),
      h("td", { class: "num wide-only" }, `${signed(f.low)} to ${signed(f.high)}`), h("td", {}, spread(f))))))) : null;
  return [output.ends && histogram(output, name), table].filter(Boolean);
}

function histogram(output, name) {
  const [low, high] = output.ends;
  const most = Math.max(...output.bins);
  const text = `Predictions of ${name}: ` + (low === high ? `all ${number(low)}` : `from ${number(low)} to ${number(high)}, median ${number(output.median)}`);
  return h("figure", { class: "histogram" },
    low < high && s("svg", { viewBox: "0 0 200 40", preserveAspectRatio: "none", role: "img", "aria-label": text },
      output.bins.map((n, k) => s("rect", { class: "pos", x: 10 * k + 0.5, width: 9, y: 40 - (38 * n) / most, height: (38 * n) / most }))),
    h("figcaption", {}, text));
}
