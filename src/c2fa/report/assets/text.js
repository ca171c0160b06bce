// The passage: words shaded by their attribution, a line under each sentence by its own.

function textView(model) {
  const { text, steps } = model.raw.view;
  const last = model.depth - 1;
  const words = [];
  const groups = [];
  const passage = h("div", { class: "passage", dir: "auto", tabindex: "0", role: "group",
    "aria-label": `Passage. Arrow keys move from one ${one(model.labels[last])} to the next.` });
  const documents = model.labels[0] === "documents" && Boolean(model.raw.answer);
  const cites = model.raw.answer ? citedBy(model) : () => null;
  let home = passage;
  let held = -1;
  let at = 0;
  let group = null;
  let owner = -1;
  for (let i = 0; i < model.leaves; i++) {
    const start = at + steps[2 * i];
    const end = start + steps[2 * i + 1];
    let gap = text.slice(at, start);
    const document = documents ? model.ancestor(last, i, 0) : -1;
    if (document !== held) {
      held = document;
      gap = "";
      group = null;
      home = h("div", { class: "document-held", dir: "auto" }, documentHead(model, document));
      passage.append(home);
    }
    const mine = last > 0 ? model.parents[last - 1][i] : -1;
    if (!group || mine !== owner) {
      if (gap) home.append(gap);
      group = h("span", { class: "sent" });
      group.i = owner = mine;
      if (last > 1 || (last > 0 && !documents)) {
        groups.push(group);
        if (model.raw.answer) group.id = model.anchor(last - 1, mine);
        group.append(h("span", { class: "count", "aria-hidden": "true" }, String(mine + 1)));
      }
      home.append(group);
    } else if (gap) group.append(gap);
    const word = h("span", { class: "word" }, text.slice(start, end));
    word.i = i;
    if (model.raw.answer) word.id = model.anchor(last, i);
    words.push(word);
    group.append(word);
    for (let k = last; k >= 0; k--) {
      const j = model.ancestor(last, i, k);
      if (i === model.leaves - 1 || model.ancestor(last, i + 1, k) !== j) group.append(cites(k, j) || "");
    }
    at = end;
  }
  home.append(text.slice(at));

  function paint() {
    const values = model.values(last);
    const most = model.most(last);
    const shade = model.mode === "all" || model.mode === last;
    words.forEach((word, i) => {
      const share = values[i] / most;
      const on = shade && model.shown.has(i) && Math.abs(share) > 0.01 && model.settled(last, i);
      word.className = on ? `word ${sign(share)}` : "word";
      if (on) word.style.setProperty("--a", (0.1 + 0.45 * Math.abs(share)).toFixed(3));
    });
    mark();
    if (last === 0) return;
    const level = model.mode === "all" || model.mode === last ? last - 1 : model.mode;
    const heavy = model.most(level);
    const lines = model.mode !== last;
    for (const g of groups) {
      const value = model.value(level, model.ancestor(last - 1, g.i, level));
      g.className = lines ? `sent line ${sign(value)}` : "sent";
      if (model.mode === level && level < last) g.classList.add("wash");
      g.style.setProperty("--s", (0.12 + 0.88 * (Math.abs(value) / heavy)).toFixed(3));
      g.style.setProperty("--a", (0.03 + 0.45 * (Math.abs(value) / heavy)).toFixed(3));
    }
  }

  let lit = [];
  function light() {
    for (const el of lit) el.classList.remove("lit", "kin");
    lit = [];
    passage.classList.toggle("dim", Boolean(model.focus));
    if (!model.focus) return;
    const [k, i] = model.focus;
    const add = (el, name) => { el.classList.add(name); lit.push(el); };
    for (const leaf of model.leavesOf(k, i)) add(words[leaf], "lit");
    if (k === last && last > 0) {
      const part = model.parents[last - 1][i];
      for (const leaf of model.children[last - 1][part]) if (leaf !== i) add(words[leaf], "kin");
      for (const g of groups) if (g.i === part) add(g, "kin");
    } else if (k < last) {
      for (const g of groups) if (model.ancestor(last - 1, g.i, k) === i) add(g, "lit");
    }
  }

  function mark() {
    const marked = new Set(model.marks.flatMap(([k, i]) => model.leavesOf(k, i)));
    words.forEach((word, i) => word.classList.toggle("marked", marked.has(i)));
  }

  const over = (event) => {
    const word = event.target.closest(".word");
    if (word) return model.mode !== "all" && model.mode < last ? model.look(model.mode, model.ancestor(last, word.i, model.mode)) : model.look(last, word.i);
    const g = event.target.closest(".sent");
    if (g && last > 0) model.look(last - 1, g.i);
  };
  passage.addEventListener("pointerover", over);
  passage.addEventListener("pointerleave", () => model.away());
  passage.addEventListener("click", (event) => {
    const word = event.target.closest(".word");
    if (!word) return model.away(true);
    cursor = word.i;
    pin(word.i);
  });
  function pin(i) {
    if (last > 0 && model.mode === "all") {
      for (let k = 0; k < last; k++) model.open.add(`${k}:${model.ancestor(last, i, k)}`);
      model.set({ open: model.open });
    }
    model.set({ focus: [last, i], pinned: true });
    if (model.reveal) model.reveal(last, i);
  }
  let cursor = -1;
  passage.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && cursor >= 0) pin(cursor);
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    cursor = Math.max(0, Math.min(words.length - 1, cursor + step));
    model.away(true);
    model.look(last, cursor);
    words[cursor].scrollIntoView({ block: "nearest" });
  });
  passage.addEventListener("blur", () => model.away());
  model.listen((changes) => {
    if ("column" in changes || "mode" in changes || "top" in changes) paint();
    if ("focus" in changes) light();
    if ("marks" in changes) mark();
  });
  model.wordOf = (k, i) => words[model.leavesOf(k, i)[0]];
  paint();
  return passage;
}
