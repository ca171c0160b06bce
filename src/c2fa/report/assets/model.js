// One explanation, unpacked, with the choices that a reader makes: class, level, number of leaves, what is looked at.

function readModel(raw) {
  const depth = raw.widths.length;
  const leaves = raw.widths[depth - 1];
  const parents = raw.parents.map((p) => (p.owners ? Int32Array.from(p.owners) : fromCounts(p.counts)));
  const children = parents.map((owner, k) => {
    const own = Array.from({ length: raw.widths[k] }, () => []);
    owner.forEach((j, i) => own[j].push(i));
    return own;
  });
  const all = raw.values.map(halves);
  const at = (of) => (k, i) => (of ? of[k][model.column * raw.widths[k] + i] : null);
  const names = raw.names.slice();
  if (names[depth - 1] === null) names[depth - 1] = spelled(raw.view);
  const cells = raw.view && raw.view.cells;
  const listeners = [];
  const model = {
    raw, depth, leaves, parents, children, names,
    labels: raw.labels,
    column: raw.target,
    mode: depth > 1 ? "all" : 0,
    top: 0,
    open: new Set(),
    sorted: raw.widths[0] > 20,
    focus: null,
    pinned: false,
    unit: raw.unit || (raw.answer ? raw.answer.unit : ""),
    marks: [], // features that are pointed out together: the sources of a statement
    anchor: ((own) => (k, i) => `${own}-${k}-${i}`)(fresh("at")),
    // What colours and bars are measured by: of an answer's statement that rests on nothing, noise must stay pale.
    most: (k) => Math.max(largest(model.values(k)), raw.answer ? raw.answer.least : 0),
    // Of an answer, only what is more than two standard errors from 0 is shaded, as only that is named as a source.
    settled: (k, i) => !raw.answer || Math.abs(model.value(k, i)) > 2 * (model.error(k, i) || 0),
    value: at(all),
    values: (k) => all[k].subarray(model.column * raw.widths[k], (model.column + 1) * raw.widths[k]),
    // In units of the last digit that is shown: these add up as they are written.
    units: at(raw.units.map(wholes)),
    written: (units, signs = true) => written(units, raw.classes[model.column].digits, signs),
    said: (k, i) => model.written(model.units(k, i)),
    number: (value) => number(value, raw.classes[model.column].digits),
    errors: at(raw.stderr && raw.stderr.map(wholes)),
    error: (k, i) => (model.errors(k, i) || 0) / 10 ** raw.classes[model.column].digits,
    plusMinus: (k, i) => (Number.isFinite(model.errors(k, i) ?? NaN) ? ` ± ${model.written(model.errors(k, i), false)}` : ""),
    prior: at(raw.prior && raw.prior.map(halves)), // what other inputs taught, and this input's answers did not say
    name(k, i) {
      // A part that is one column shows the column's value.
      while (sameAsOnlyChild(model, k, i)) i = children[k++][i][0];
      return k === depth - 1 && cells && cells[i] !== undefined ? `${names[k][i]} = ${cells[i]}` : names[k][i];
    },
    ancestor(k, i, level) {
      while (k > level) i = parents[--k][i];
      return i;
    },
    leavesOf(k, i) {
      let found = [i];
      for (; k < depth - 1; k++) found = found.flatMap((j) => children[k][j]);
      return found;
    },
    listen: (f) => listeners.push(f),
    set(changes) {
      Object.assign(model, changes);
      if ("top" in changes || "column" in changes) model.shown = topLeaves(model);
      for (const f of listeners) f(changes);
    },
    look(k, i, pinned = false) {
      if (model.pinned && !pinned) return;
      if (model.focus && model.focus[0] === k && model.focus[1] === i && model.pinned === pinned) return;
      model.set({ focus: [k, i], pinned });
    },
    away(force = false) {
      if (!model.focus || (model.pinned && !force)) return;
      model.set({ focus: null, pinned: false });
    },
  };
  // At first the leaves that matter: those with at least a tenth of the largest one’s weight, but neither few nor many.
  const values = model.values(depth - 1);
  const tenth = largest(values) / 10;
  const heavy = Math.min(40, Math.max(5, values.reduce((n, v) => n + (Math.abs(v) >= tenth), 0)));
  model.top = leaves <= 12 ? leaves : stopsFor(leaves).find((n) => n >= heavy);
  model.shown = topLeaves(model);
  const order = byWeight(model.values(0));
  const first = raw.widths[0] <= 6 ? order : order.slice(0, 3);
  if (depth > 1) for (const i of first) model.open.add(`0:${i}`);
  return model;
}

function sameAsOnlyChild(model, k, i) {
  const own = k < model.depth - 1 ? model.children[k][i] : [];
  return own.length === 1 && model.names[k + 1][own[0]] === model.names[k][i];
}

function stopsFor(leaves) {
  const steps = [1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10000];
  return [0, ...steps.filter((n) => n < leaves), leaves];
}

function fromCounts(counts) {
  const out = [];
  counts.forEach((n, j) => { for (let i = 0; i < n; i++) out.push(j); });
  return Int32Array.from(out);
}

function spelled(view) {
  const out = [];
  let at = 0;
  for (let i = 0; i < view.steps.length; i += 2) {
    const start = at + view.steps[i];
    at = start + view.steps[i + 1];
    out.push(view.text.slice(start, at));
  }
  return out;
}

function byWeight(values) {
  return Array.from(values.keys()).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]) || a - b);
}

function topLeaves(model) {
  return new Set(byWeight(model.values(model.depth - 1)).slice(0, model.top));
}

// What a reader is told about a feature, in one sentence.
function sentenceAbout(model, k, i) {
  const value = model.said(k, i) + model.plusMinus(k, i);
  let text = `${capital(one(model.labels[k]))} “${short(model.name(k, i), 90)}”: ${value}`;
  if (k > 0) {
    const j = model.parents[k - 1][i];
    const numbered = numberedPart(model, k - 1, j);
    const name = short(model.name(k - 1, j), 60);
    text += `, in ${name === numbered ? name : `${numbered} “${name}”`}: ${model.said(k - 1, j)}`;
  } else if (model.depth > 1 && !model.raw.contradiction) {
    text += `, the sum of its ${count(model.leavesOf(k, i).length, model.labels[model.depth - 1])}`;
  }
  return text;
}

function numberedPart(model, k, j) {
  return `${one(model.labels[k])} ${j + 1}`;
}

// What a screen reader adds to a row's name and value.
function spokenAbout(model, k, i) {
  const own = k < model.depth - 1 && !model.raw.contradiction ? `, the sum of its ${count(model.leavesOf(k, i).length, model.labels[model.depth - 1])}` : "";
  const place = k > 0 ? ` in ${numberedPart(model, k - 1, model.parents[k - 1][i])}` : "";
  return `${model.plusMinus(k, i)}, ` + one(model.labels[k]) + place + own;
}

function short(text, most) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= most ? line || "(empty)" : line.slice(0, most - 1).trimEnd() + "…";
}

// What some features of a level make together, in units.
function sumOf(model, k, some) {
  let sum = 0;
  for (const i of some) sum += model.units(k, i);
  return sum;
}
