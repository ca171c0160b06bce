// The tree of bars: under an open part its children run as a waterfall that ends where the part's own bar does.
// With a level it is a list of that level's features alone.

function treeView(model, level = null) {
  const list = h("ul", { role: "tree", class: "tree", "aria-label": level === null ? "Attributions" : model.labels[level] });
  const mode = () => (level === null ? model.mode : level);
  const items = new Map();
  let scale = null;

  const key = (k, i) => `${k}:${i}`;

  // Rows under a feature: its children that are shown, the rest together, and what they miss of it, if anything.
  function below(k, i, start) {
    const own = model.children[k][i];
    const last = k + 1 === model.depth - 1;
    const shown = last ? own.filter((c) => model.shown.has(c)) : own.slice();
    if (last) shown.sort((a, b) => Math.abs(model.value(k + 1, b)) - Math.abs(model.value(k + 1, a)) || a - b);
    const rows = [];
    const end = start + model.value(k, i);
    let at = start;
    for (const c of shown) {
      rows.push({ kind: "feature", k: k + 1, i: c, start: at, value: model.value(k + 1, c), units: model.units(k + 1, c) });
      at += model.value(k + 1, c);
    }
    if (shown.length < own.length) {
      const chosen = new Set(shown);
      const hidden = own.filter((c) => !chosen.has(c));
      const rest = hidden.reduce((sum, c) => sum + model.value(k + 1, c), 0);
      const n = own.length - shown.length;
      const name = shown.length ? `${n} more` : count(n, model.labels[k + 1]);
      rows.push({ kind: "rest", name, k: k + 1, start: at, value: rest, units: sumOf(model, k + 1, hidden) });
      at += rest;
    }
    const gap = model.units(k, i) - sumOf(model, k + 1, own);
    if (gap) rows.push({ kind: "gap", name: "gap to its own value", k: k + 1, start: at, value: end - at, units: gap });
    rows.forEach((row, n) => Object.assign(row, { inner: true, joined: n > 0, joins: n < rows.length - 1 }));
    return rows;
  }

  function measure() {
    const values = model.values(0);
    scale = { size: largest(values), low: 0, high: 0 };
    const reach = (v) => { scale.low = Math.min(scale.low, v); scale.high = Math.max(scale.high, v); };
    if (mode() === "all") {
      values.forEach((v, i) => {
        const error = model.error(0, i) || 0;
        reach(v - error);
        reach(v + error);
        if (model.depth > 1) for (const row of below(0, i, 0)) { reach(row.start); reach(row.start + row.value); }
      });
    } else model.values(mode()).forEach(reach);
    if (model.raw.answer) reach(model.raw.answer.least);
    const pad = 0.03 * (scale.high - scale.low || 1);
    scale.low -= pad;
    scale.high += pad;
  }

  const place = (v) => (100 * (v - scale.low)) / (scale.high - scale.low);

  function piece(name, left, width) {
    const el = h("span", { class: name });
    el.style.left = left.toFixed(2) + "%";
    el.style.width = width.toFixed(2) + "%";
    return el;
  }

  function bar(row) {
    if (row.kind === "rest" && !row.inner) return h("span", { class: "track", "aria-hidden": "true" });
    const a = place(Math.min(row.start, row.start + row.value));
    const width = row.value ? Math.max(place(Math.max(row.start, row.start + row.value)) - a, 0.4) : 0;
    const kind = row.kind === "feature" ? (row.k === model.depth - 1 && model.depth > 1 ? "leaf" : "part") : row.kind;
    const drawn = row.units ? kind : "none"; // 0.000 has no bar, only the lines that pass it
    const kids = [piece(`bar ${drawn} ${sign(row.value)}${row.joined ? " joined" : ""}${row.joins ? " joins" : ""}`, a, width)];
    const error = row.kind === "feature" && kind === "part" ? model.error(row.k, row.i) : 0;
    if (error) {
      const from = place(row.start + row.value - error);
      kids.push(piece("err", from, place(row.start + row.value + error) - from));
    }
    return h("span", { class: "track", "aria-hidden": "true" }, kids);
  }

  // The rows of a tree stand in one flat list, as ARIA allows, so that a part's name does not contain its leaves'.
  function item(row, level, position, size, end) {
    const feature = row.kind === "feature";
    const name = feature ? own(row) : row.name;
    const branch = feature && mode() === "all" && row.k < model.depth - 1 && !sameAsOnlyChild(model, row.k, row.i);
    const open = branch && model.open.has(key(row.k, row.i));
    const spoken = short(name, 200) + " " + model.written(row.units) + (feature ? spokenAbout(model, row.k, row.i) : "");
    const line = h("div", { class: `row ${row.kind} d${level}` },
      h("span", { class: "name", dir: "auto", title: name.length > 40 ? name : null }, short(name, 200)),
      bar(row),
      " ",
      h("span", { class: "val" }, model.written(row.units)));
    const li = h("li", {
      role: "treeitem", "aria-level": level, "aria-posinset": position, "aria-setsize": size, "aria-label": spoken,
      "aria-expanded": branch ? String(open) : null, tabindex: "-1", "--end": end,
    }, line);
    li.row = row;
    if (feature) items.set(key(row.k, row.i), li);
    if (!open) return [li];
    const rows = below(row.k, row.i, row.start);
    const here = place(row.start + row.value) + "%";
    return [li, ...rows.flatMap((r, n) => item(r, level + 1, n + 1, rows.length, here))];
  }

  // Under its part, a leaf need not say its part's name again, nor its number: pulse · 0–19, 2 · width, image 3 #5.
  function own(row) {
    const name = model.name(row.k, row.i);
    if (!row.inner) return name;
    const part = model.names[row.k - 1][model.parents[row.k - 1][row.i]];
    if (name.startsWith(`${part} #`)) return name.slice(part.length + 1);
    const prefix = [part, part.split(" ").pop()].map((said) => `${said} · `).find((said) => name.startsWith(said));
    return prefix ? name.slice(prefix.length) : name;
  }

  function render() {
    const held = list.contains(active()) ? active().row : null;
    measure();
    items.clear();
    list.style.setProperty("--zero", place(0) + "%");
    const k = mode() === "all" ? 0 : mode();
    const values = model.values(k);
    const flat = mode() !== "all" || model.depth === 1 || model.sorted;
    let order = flat ? byWeight(values) : Array.from(values.keys());
    if (k === model.depth - 1) order = order.filter((i) => model.shown.has(i));
    const rows = order.map((i) => ({ kind: "feature", k, i, start: 0, value: values[i], units: model.units(k, i) }));
    if (order.length < values.length) {
      const chosen = new Set(order);
      const hidden = Array.from(values.keys()).filter((i) => !chosen.has(i));
      const rest = hidden.reduce((sum, i) => sum + values[i], 0);
      rows.push({ kind: "rest", name: `${hidden.length} more`, k, start: 0, value: rest, units: sumOf(model, k, hidden) });
    }
    list.replaceChildren(...rows.flatMap((row, n) => item(row, 1, n + 1, rows.length)));
    const back = held && held.kind === "feature" && items.get(key(held.k, held.i));
    const start = back || list.querySelector("[role=treeitem]");
    if (start) start.tabIndex = 0;
    if (back) back.focus({ preventScroll: true });
    light();
  }

  const active = () => list.getRootNode().activeElement;

  function toggle(li, want) {
    const { k, i } = li.row;
    if (!li.hasAttribute("aria-expanded")) return;
    const open = model.open.has(key(k, i));
    if (want === open) return;
    open ? model.open.delete(key(k, i)) : model.open.add(key(k, i));
    model.set({ open: model.open });
  }

  function light() {
    for (const li of list.querySelectorAll(".lit, .kin")) li.classList.remove("lit", "kin");
    if (!model.focus) return;
    let [k, i] = model.focus;
    const exact = items.get(key(k, i));
    if (exact) exact.firstChild.classList.add("lit");
    for (; k > 0; k--) {
      i = model.parents[k - 1][i];
      const li = items.get(key(k - 1, i));
      if (li) li.firstChild.classList.add("kin");
    }
  }

  function above(li) {
    const level = Number(li.getAttribute("aria-level"));
    let other = li.previousElementSibling;
    while (other && Number(other.getAttribute("aria-level")) >= level) other = other.previousElementSibling;
    return other;
  }

  function move(li) {
    if (!li) return;
    for (const other of list.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    li.tabIndex = 0;
    li.focus();
  }

  list.addEventListener("keydown", (event) => {
    const li = event.target.closest("[role=treeitem]");
    if (!li || event.altKey || event.ctrlKey || event.metaKey) return;
    const every = Array.from(list.querySelectorAll("[role=treeitem]"));
    const at = every.indexOf(li);
    const actions = {
      ArrowDown: () => move(every[at + 1]),
      ArrowUp: () => move(every[at - 1]),
      Home: () => move(every[0]),
      End: () => move(every[every.length - 1]),
      ArrowRight: () => (li.getAttribute("aria-expanded") === "true" ? move(every[at + 1]) : toggle(li, true)),
      ArrowLeft: () => (li.getAttribute("aria-expanded") === "true" ? toggle(li, false) : move(above(li))),
      Enter: () => toggle(li),
      " ": () => toggle(li),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });
  const look = (event) => {
    const li = event.target.closest("[role=treeitem]");
    if (li && li.row.kind === "feature") model.look(li.row.k, li.row.i);
    else if (li) model.away();
  };
  list.addEventListener("focusin", look);
  list.addEventListener("pointerover", look);
  list.addEventListener("pointerleave", () => model.away());
  list.addEventListener("focusout", (event) => { if (!list.contains(event.relatedTarget)) model.away(); });
  list.addEventListener("click", (event) => {
    const li = event.target.closest("[role=treeitem]");
    if (!li) return;
    move(li);
    toggle(li);
  });
  model.listen((changes) => {
    if ("column" in changes || "mode" in changes || "top" in changes || "open" in changes || "sorted" in changes) render();
    else if ("focus" in changes) light();
  });
  render();
  list.reveal = (k, i) => {
    const li = items.get(key(k, i));
    if (li) li.firstChild.scrollIntoView({ block: "nearest" });
  };
  return list;
}
