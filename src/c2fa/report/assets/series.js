// Recordings in lanes with tinted windows, and bags of vectors as a grid.

function seriesView(model) {
  const { channels, steps, starts, order, at, lines } = model.raw.view;
  const windows = starts.length;
  const [lane, width] = [64, 900];
  const x = (step) => (width * step) / steps;
  const cells = [];
  const art = s("svg", { viewBox: `0 0 ${width} ${lane * channels}`, class: "series", role: "img", preserveAspectRatio: "none",
    "aria-label": `Recording of ${count(channels, "channels")} in ${count(windows, "windows")}` });
  for (let c = 0; c < channels; c++) {
    for (let w = 0; w < windows; w++) {
      const leaf = order === "channels" ? c * windows + w : w * channels + c;
      const end = w + 1 < windows ? starts[w + 1] : steps;
      const cell = s("rect", { x: x(starts[w]), y: lane * c + 1, width: x(end) - x(starts[w]), height: lane - 2 });
      cells[leaf] = cell;
      cell.i = leaf;
      art.append(cell);
    }
    const points = lines[c].map((v, n) => (v === null ? "" : `${x(at[n] + 0.5).toFixed(1)},${(lane * (c + 0.9 - 0.8 * v)).toFixed(1)}`));
    art.append(s("polyline", { points: points.filter(Boolean).join(" ") }));
  }
  const names = Array.from({ length: channels }, (_, c) =>
    h("li", {}, order === "channels" ? model.names[0][c] : model.names[1][c].split(" · ").pop()));
  return cellView(model, art, cells, h("div", { class: "lanes" }, h("ul", { class: "lane-names", "--n": channels }, names), art));
}

function bagView(model) {
  const features = model.raw.view.features;
  const across = features.length;
  const down = model.raw.widths[0];
  const [wide, tall] = [Math.max(24, 640 / across), 26];
  const cells = [];
  const art = s("svg", { viewBox: `0 0 ${wide * across} ${tall * down}`, class: "grid", role: "img", preserveAspectRatio: "none",
    "aria-label": `${count(down, model.labels[0])} of ${count(across, "features")}` });
  for (let i = 0; i < model.leaves; i++) {
    const cell = s("rect", { x: wide * (i % across) + 1, y: tall * Math.floor(i / across) + 1, width: wide - 2, height: tall - 2, rx: 2 });
    cell.i = i;
    cells.push(cell);
    art.append(cell);
  }
  const heads = across <= 12 ? h("ul", { class: "heads", "--n": across }, features.map((name) => h("li", { title: name }, name))) : null;
  const names = model.names[0].map((name) => h("li", {}, name));
  return cellView(model, art, cells, h("div", { class: "lanes" }, h("ul", { class: "lane-names", "--n": down }, names), art, heads));
}

function cellView(model, art, cells, box) {
  const last = model.depth - 1;
  function paint() {
    const level = model.mode === "all" ? last : model.mode;
    const most = largest(model.values(level));
    const lit = model.focus ? new Set(model.leavesOf(model.focus[0], model.focus[1])) : null;
    cells.forEach((cell, i) => {
      const share = model.value(level, model.ancestor(last, i, level)) / most;
      const shown = level < last || model.shown.has(i);
      cell.setAttribute("class", `cell ${sign(share)}${lit ? (lit.has(i) ? " lit" : " far") : ""}`);
      cell.setAttribute("fill-opacity", shown ? (0.75 * Math.abs(share)).toFixed(3) : 0);
    });
  }
  art.addEventListener("pointerover", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    if (model.mode !== "all" && model.mode < last) model.look(model.mode, model.ancestor(last, cell.i, model.mode));
    else model.look(last, cell.i);
  });
  art.addEventListener("pointerleave", () => model.away());
  model.listen((changes) => {
    if ("column" in changes || "mode" in changes || "top" in changes || "focus" in changes) paint();
  });
  paint();
  return box;
}
