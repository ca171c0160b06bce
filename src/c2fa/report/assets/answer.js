// A cited answer: its statements, each beside the sentences that it rests on; choosing one shows its numbers below.

function answerView(model, heading) {
  const { query, written, statements, whole } = model.raw.answer;
  const several = statements.length > 1;
  const items = statements.map((statement, n) => statementItem(model, statement, n, several));
  const all = several && choice(model, whole, "Show the whole answer");
  const told = h("p", { class: "whole" }, h("b", {}, several ? "The whole answer: " : "The answer: "), whole.told);
  model.listen((changes) => {
    if (!("column" in changes)) return;
    const marks = chosenMarks(model);
    for (const [k, i] of marks) for (let above = 0; above < k; above++) model.open.add(`${above}:${model.ancestor(k, i, above)}`);
    model.set({ marks, open: model.open });
    if (marks.length && model.wordOf) bring(model.wordOf(...marks[0]));
  });
  return h("section", { class: "pane answer", "aria-label": "The answer" },
    query !== heading && h("p", { class: "query", dir: "auto" }, h("span", { class: "quiet" }, "Query "), query),
    h("h2", {}, written ? "The model’s answer" : "The given answer", h("span", { class: "quiet hint" }, " and what each statement rests on")),
    h("ol", { class: "statements" }, items),
    several && h("div", { class: "whole-answer" }, told, all));
}

function statementItem(model, statement, n, several) {
  const id = model.anchor("statement", n);
  const text = h("span", { dir: "auto" }, statement.text);
  const choosable = several && statement.column !== null;
  const head = choosable ? h("button", { type: "button", class: "statement", "aria-pressed": "false" }, text) : h("p", { class: "statement" }, text);
  const nothing = statement.verdict === "nothing";
  const told = h("p", { class: `told ${statement.verdict}` }, nothing && h("span", { "aria-hidden": "true" }, "⚠ "), statement.told);
  const sources = statement.sources.map((source) => h("li", {}, sourceLink(model, source, choosable ? statement.column : model.column)));
  const li = h("li", { id, tabindex: "-1" }, h("div", { class: "said" }, h("span", { class: "count", "aria-hidden": "true" }, `[${n + 1}]`), head),
    h("div", { class: "basis" }, told, sources.length ? h("ul", {}, sources) : null));
  const marks = statement.sources.map((source) => source.at);
  li.addEventListener("pointerenter", () => model.set({ marks }));
  li.addEventListener("pointerleave", () => model.set({ marks: chosenMarks(model) }));
  if (choosable) chooses(model, head, li, statement.column);
  return li;
}

// The sources of the statement that is chosen.
function chosenMarks(model) {
  const { statements } = model.raw.answer;
  const chosen = statements.length > 1 && statements.find((statement) => statement.column === model.column);
  return chosen ? chosen.sources.map((source) => source.at) : [];
}

function sourceLink(model, source, column) {
  const [k, i] = source.at;
  const link = h("a", { href: `#${model.anchor(k, i)}`, class: "source" },
    h("b", { class: "val" }, source.told), " ",
    source.document && h("bdi", { class: "document" }, source.document), source.document && source.text ? " " : "",
    source.text && h("bdi", {}, short(source.text, 220)));
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (column !== model.column) model.set({ column });
    model.set({ focus: [k, i], pinned: true });
    if (!model.wordOf) return;
    const word = model.wordOf(k, i);
    if (model.reveal) model.reveal(k, i);
    word.scrollIntoView({ block: "center" });
    word.closest(".passage").focus({ preventScroll: true });
  });
  return link;
}

// In a pane that scrolls by itself, show a sentence without moving the page.
function bring(word) {
  const pane = word.closest(".pane");
  if (pane.scrollHeight > pane.clientHeight) {
    pane.scrollTop += word.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 3;
  }
}

// A button that shows an output's numbers, pressed while they are shown; pressed again it gives back the whole answer's.
function chooses(model, button, holder, column) {
  const whole = model.raw.answer.whole.column;
  const show = () => {
    const on = model.column === column;
    button.setAttribute("aria-pressed", String(on));
    holder.classList.toggle("chosen", on);
  };
  button.addEventListener("click", () => model.set({ column: model.column === column && whole !== null ? whole : column }));
  model.listen((changes) => { if ("column" in changes) show(); });
  show();
}

function choice(model, output, label) {
  if (output.column === null) return null;
  const button = h("button", { type: "button", class: "button" }, label);
  const show = () => { button.hidden = model.column === output.column; };
  button.addEventListener("click", () => model.set({ column: output.column }));
  model.listen((changes) => { if ("column" in changes) show(); });
  show();
  return button;
}

// Which output the numbers below are of, in words.
function shownStatement(model) {
  const n = model.raw.answer.statements.findIndex((statement) => statement.column === model.column);
  return n < 0 || model.raw.answer.statements.length === 1 ? "the whole answer" : `statement [${n + 1}]`;
}

// Above each document its name and what it adds; the sums of its sentences.
function documentHead(model, j) {
  const value = h("bdi", { class: "val", dir: "ltr" });
  const head = h("div", { class: "document-head", id: model.depth > 1 ? model.anchor(0, j) : null }, h("bdi", { class: "document" }, model.names[0][j]), " ", value);
  const show = () => {
    value.textContent = model.said(0, j) + model.plusMinus(0, j);
    value.className = `val ${sign(model.value(0, j))}`;
  };
  model.listen((changes) => { if ("column" in changes) show(); });
  show();
  return head;
}

// After a sentence, the numbers of the statements that rest on it.
function citedBy(model) {
  const found = new Map();
  model.raw.answer.statements.forEach((statement, n) => {
    for (const source of statement.sources) {
      const key = source.at.join(":");
      found.set(key, [...(found.get(key) || []), n]);
    }
  });
  return (k, i) => {
    const cites = found.get(`${k}:${i}`);
    return cites ? h("sup", { class: "cites" }, cites.map((n) => {
      const link = h("a", { href: `#${model.anchor("statement", n)}`, "aria-label": `Cited by statement ${n + 1}` }, `[${n + 1}]`);
      link.addEventListener("click", (event) => {
        event.preventDefault();
        event.stopPropagation();
        const li = link.getRootNode().getElementById(model.anchor("statement", n));
        li.scrollIntoView({ block: "nearest" });
        li.focus({ preventScroll: true });
      });
      return link;
    })) : null;
  };
}
