// Pictures in grey with their super-pixels tinted; the frame of each shows its own attribution.

function imagesView(model) {
  const last = model.depth - 1;
  const box = h("div", { class: "images" });
  const panels = [];
  let colours = false;
  let first = 0;
  const single = model.raw.view.images.length === 1;
  model.raw.view.images.forEach((image, n) => {
    const canvas = h("canvas", { width: image.width, height: image.height, role: "img" });
    const caption = h("figcaption", {});
    const figure = h("figure", { class: single ? "single" : "" }, canvas, caption);
    box.append(figure);
    const panel = { n, first, image, canvas, caption, figure, labels: labelMap(image.labels, image.width * image.height), pixels: null };
    first += image.count;
    panels.push(panel);
    const source = new Image();
    source.onload = () => {
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.drawImage(source, 0, 0, image.width, image.height);
      panel.pixels = context.getImageData(0, 0, image.width, image.height);
      paint(panel);
    };
    source.src = image.src;
    canvas.addEventListener("pointermove", (event) => {
      const leaf = leafAt(panel, event);
      if (leaf === null) return;
      if (model.mode !== "all" && model.mode < last) model.look(model.mode, model.ancestor(last, leaf, model.mode));
      else model.look(last, leaf);
    });
    canvas.addEventListener("pointerleave", () => model.away());
    canvas.addEventListener("click", (event) => {
      const leaf = leafAt(panel, event);
      if (leaf === null) return;
      for (let k = 0; k < last; k++) model.open.add(`${k}:${model.ancestor(last, leaf, k)}`);
      model.set({ open: model.open });
      model.set({ focus: [last, leaf], pinned: true });
      if (model.reveal) model.reveal(last, leaf);
    });
  });

  function leafAt(panel, event) {
    const box = panel.canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) * panel.image.width) / box.width);
    const y = Math.floor(((event.clientY - box.top) * panel.image.height) / box.height);
    const inside = x >= 0 && y >= 0 && x < panel.image.width && y < panel.image.height;
    return inside ? panel.first + panel.labels[y * panel.image.width + x] : null;
  }

  function paint(panel) {
    const { image, canvas, labels, pixels } = panel;
    const level = model.mode === "all" ? last : model.mode;
    const most = largest(model.values(level));
    const shares = new Float32Array(image.count);
    const state = new Uint8Array(image.count); // 0 plain, 1 looked at, 2 not looked at while something else is
    const lit = model.focus ? new Set(model.leavesOf(model.focus[0], model.focus[1])) : null;
    for (let l = 0; l < image.count; l++) {
      const leaf = panel.first + l;
      const shown = level < last || model.shown.has(leaf);
      shares[l] = shown ? model.value(level, model.ancestor(last, leaf, level)) / most : 0;
      state[l] = lit ? (lit.has(leaf) ? 1 : 2) : 0;
    }
    label(panel);
    if (!pixels) return;
    const out = new ImageData(image.width, image.height);
    const a = pixels.data;
    const b = out.data;
    for (let p = 0, q = 0; p < labels.length; p++, q += 4) {
      const l = labels[p];
      const grey = 90 + 0.62 * (0.299 * a[q] + 0.587 * a[q + 1] + 0.114 * a[q + 2]);
      const share = shares[l];
      const alpha = (colours ? 0.6 : 0.85) * Math.abs(share);
      const dim = state[l] === 2 ? 0.45 : 0;
      for (let c = 0; c < 3; c++) {
        const ground = colours ? a[q + c] : grey;
        const mixed = ground * (1 - alpha) + alpha * (share < 0 ? NEGATIVE : POSITIVE)[c];
        b[q + c] = mixed * (1 - dim) + 250 * dim;
      }
      b[q + 3] = 255;
      if (state[l] === 1) {
        const right = p % image.width === image.width - 1 || state[labels[p + 1]] !== 1;
        const left = p % image.width === 0 || state[labels[p - 1]] !== 1;
        const down = p + image.width >= labels.length || state[labels[p + image.width]] !== 1;
        const up = p < image.width || state[labels[p - image.width]] !== 1;
        if (right || left || down || up) b[q] = b[q + 1] = b[q + 2] = 20;
      }
    }
    canvas.getContext("2d").putImageData(out, 0, 0);
  }

  function label(panel) {
    const heavy = largest(model.values(0));
    const whole = single || last === 0;
    const value = whole ? model.values(0).reduce((x, y) => x + y, 0) : model.value(0, panel.n);
    const said = whole ? model.written(sumOf(model, 0, model.values(0).keys())) : model.said(0, panel.n);
    const name = whole ? "sum" : model.name(0, panel.n);
    panel.caption.replaceChildren(name + " ", h("b", {}, said));
    panel.figure.className = `${single ? "single " : ""}${sign(value)}`;
    panel.figure.style.setProperty("--s", whole ? 0 : (Math.abs(value) / heavy).toFixed(3));
    panel.canvas.setAttribute("aria-label", `Picture ${panel.n + 1} of ${panels.length}, ${name}: ${said}`);
    const on = model.focus && model.focus[0] === 0 && model.focus[1] === panel.n && !single;
    panel.figure.classList.toggle("lit", Boolean(on));
  }

  model.listen((changes) => {
    if ("column" in changes || "mode" in changes || "top" in changes || "focus" in changes) panels.forEach(paint);
  });
  panels.forEach(label);
  const box2 = h("input", { type: "checkbox", onchange: (event) => { colours = event.target.checked; panels.forEach(paint); } });
  return h("div", {}, h("label", { class: "check" }, box2, "Keep the picture’s colours"), box);
}

const POSITIVE = [31, 111, 178];
const NEGATIVE = [194, 80, 10];
