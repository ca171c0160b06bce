// Pictures in grey with their super-pixels tinted; the frame of each shows its own attribution.

function imagesView(model) {
  const last = model.depth - 1;
  const box = h("div", { class: "images" });
  const panels = [];
  let colours = false;
  let first = 0;
  const single = model.raw.view.images.length === 1;
  model.raw.view.images.forEach((image, n) => {
    // Small pictures are drawn larger than they are, so that lines and numbers on them are thin and sharp.
    const scale = Math.max(1, Math.ceil((single ? 512 : 256) / Math.max(image.width, image.height)));
    const canvas = h("canvas", { width: image.width * scale, height: image.height * scale, role: "img" });
    const caption = h("figcaption", {});
    const figure = h("figure", { class: single ? "single" : "" }, canvas, caption);
    box.append(figure);
    const labels = labelMap(image.labels, image.width * image.height);
    const panel = { n, first, image, canvas, caption, figure, labels, scale, pixels: null, edges: {} };
    panel.middles = middles(panel);
    first += image.count;
    panels.push(panel);
    const source = new Image();
    source.onload = () => {
      panel.tinted = h("canvas", { width: image.width, height: image.height });
      const context = panel.tinted.getContext("2d", { willReadFrequently: true });
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
    const { image, labels, pixels } = panel;
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
      const light = (0.299 * a[q] + 0.587 * a[q + 1] + 0.114 * a[q + 2]) / 255;
      const dim = state[l] === 2 ? 0.45 : 0;
      for (let c = 0; c < 3; c++) {
        const mixed = tint(light, colours ? a[q + c] : 90 + 158 * light, shares[l], c);
        b[q + c] = mixed * (1 - dim) + 250 * dim;
      }
      b[q + 3] = 255;
    }
    panel.tinted.getContext("2d").putImageData(out, 0, 0);
    draw(panel, level, shares, state);
  }

  // The tinted picture, the outlines of its features and the numbers of its weightiest super-pixels.
  function draw(panel, level, shares, state) {
    const { image, canvas, scale } = panel;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = Math.max(image.width, image.height) >= 64;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.drawImage(panel.tinted, 0, 0);
    panel.edges[level] = panel.edges[level] || edges(panel, (l) => model.ancestor(last, panel.first + l, level));
    context.lineWidth = 1 / scale;
    context.strokeStyle = "rgb(27 31 36 / 0.5)";
    context.stroke(panel.edges[level]);
    if (state.includes(1)) {
      context.lineWidth = 3 / scale;
      context.strokeStyle = "rgb(27 31 36)";
      context.stroke(edges(panel, (l) => state[l] === 1));
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (level < last) return;
    context.font = `600 ${Math.min(20, Math.max(12, Math.round(canvas.width / 32)))}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 3;
    context.strokeStyle = "rgb(255 255 255 / 0.9)";
    context.fillStyle = "rgb(27 31 36)";
    for (const l of byWeight(shares).slice(0, single ? 8 : 3)) {
      if (Math.abs(shares[l]) < 0.1 || !panel.middles[l]) continue;
      const [x, y] = panel.middles[l].map((at) => (at + 0.5) * scale);
      context.strokeText(l + 1, x, y);
      context.fillText(l + 1, x, y);
    }
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

  const ends = [h("span", {}), h("span", {})];
  function scaleEnds() {
    const k = model.mode === "all" ? last : model.mode;
    const most = largest(Array.from(model.values(k).keys(), (i) => model.units(k, i)));
    ends[0].textContent = `${model.written(-most)} against`;
    ends[1].textContent = `for ${model.written(most)}`;
  }

  model.listen((changes) => {
    if ("column" in changes || "mode" in changes) scaleEnds();
    if ("column" in changes || "mode" in changes || "top" in changes || "focus" in changes) panels.forEach(paint);
  });
  panels.forEach(label);
  scaleEnds();
  const ramp = tintRamp();
  const tools = h("div", { class: "tools" },
    h("label", { class: "check" },
      h("input", { type: "checkbox", onchange: (event) => { colours = event.target.checked; panels.forEach(paint); } }), "Keep the picture’s colours"),
    h("button", { type: "button", class: "button", onclick: () => savePicture(model, panels, ramp, ends) }, "Save PNG"));
  const legend = h("div", { class: "legend" }, ends[0], ramp, ends[1],
    h("span", { class: "hint" }, `Numbers on a picture are those in the names of its ${model.labels[last]}.`));
  return h("div", {}, tools, box, legend);
}

const POSITIVE = [0, 98, 214];
const NEGATIVE = [222, 84, 0];

// As c2fa.pixels.tint: a full tint goes from dark to light as the picture does, so that what is in it can be seen.
function tint(light, ground, share, channel) {
  const paint = (share < 0 ? NEGATIVE : POSITIVE)[channel];
  const shade = paint * (0.45 + 0.55 * light) + 0.4 * light * (255 - paint);
  const opacity = Math.min(1, Math.abs(share)) ** 0.7;
  return ground * (1 - opacity) + shade * opacity;
}

// The tints on a middle grey, from fully against to fully for.
function tintRamp() {
  const canvas = h("canvas", { class: "scale", width: 128, height: 1, role: "img", "aria-label": "Colour scale: orange speaks against the target, blue for it" });
  const out = new ImageData(128, 1);
  for (let x = 0; x < 128; x++) {
    for (let c = 0; c < 3; c++) out.data[4 * x + c] = tint(0.5, 169, x / 63.5 - 1, c);
    out.data[4 * x + 3] = 255;
  }
  canvas.getContext("2d").putImageData(out, 0, 0);
  return canvas;
}

// The lines between pixels whose super-pixels have different keys, each straight piece in one.
function edges(panel, keyOf) {
  const { width, height, count } = panel.image;
  const keys = Array.from({ length: count }, (_, l) => keyOf(l));
  const key = (x, y) => keys[panel.labels[y * width + x]];
  const path = new Path2D();
  for (let y = 1; y < height; y++) {
    for (let x = 0, start = -1; x <= width; x++) {
      const edge = x < width && key(x, y) !== key(x, y - 1);
      if (edge && start < 0) start = x;
      if (!edge && start >= 0) { path.moveTo(start, y); path.lineTo(x, y); start = -1; }
    }
  }
  for (let x = 1; x < width; x++) {
    for (let y = 0, start = -1; y <= height; y++) {
      const edge = y < height && key(x, y) !== key(x - 1, y);
      if (edge && start < 0) start = y;
      if (!edge && start >= 0) { path.moveTo(x, start); path.lineTo(x, y); start = -1; }
    }
  }
  return path;
}

// For each super-pixel the pixel of its own that is nearest to its middle.
function middles(panel) {
  const { width, count } = panel.image;
  const sums = Array.from({ length: count }, () => [0, 0, 0]);
  panel.labels.forEach((l, p) => { sums[l][0] += p % width; sums[l][1] += Math.floor(p / width); sums[l][2]++; });
  const best = new Float64Array(count).fill(Infinity);
  const out = new Array(count);
  panel.labels.forEach((l, p) => {
    const [x, y] = [p % width, Math.floor(p / width)];
    const far = (x - sums[l][0] / sums[l][2]) ** 2 + (y - sums[l][1] / sums[l][2]) ** 2;
    if (far < best[l]) { best[l] = far; out[l] = [x, y]; }
  });
  return out;
}

// All pictures as they are now, with title, captions and scale, in one file that the browser saves.
function savePicture(model, panels, ramp, ends) {
  const across = panels.length <= 5 ? panels.length : Math.ceil(Math.sqrt(panels.length));
  const cell = Math.min(panels.length === 1 ? 1024 : 320, Math.floor(4096 / across));
  const ratio = Math.max(...panels.map((panel) => panel.image.height / panel.image.width));
  const [tall, head, foot, gap] = [cell * Math.min(ratio, 3) + 28, 40, 44, 12];
  const width = Math.max(across * (cell + gap) + gap, 560);
  const canvas = h("canvas", { width, height: head + Math.ceil(panels.length / across) * (tall + gap) + foot });
  const context = canvas.getContext("2d");
  const write = (text, x, y, style, most) => { context.font = `${style} system-ui, sans-serif`; context.fillText(text, x, y, most); };
  context.fillStyle = "white";
  context.fillRect(0, 0, width, canvas.height);
  context.fillStyle = "rgb(27 31 36)";
  const chosen = model.raw.classes[model.column];
  write(short(`${chosen.name}: ${number(chosen.output)} · ${model.raw.title}`, 160), gap, 26, "600 16px", width - 2 * gap);
  panels.forEach((panel, n) => {
    const x = gap + (n % across) * (cell + gap);
    const y = head + Math.floor(n / across) * (tall + gap);
    const fit = Math.min(cell / panel.canvas.width, (tall - 28) / panel.canvas.height);
    context.drawImage(panel.canvas, x, y, panel.canvas.width * fit, panel.canvas.height * fit);
    write(panel.caption.textContent, x, y + panel.canvas.height * fit + 19, "14px", cell);
  });
  const y = canvas.height - 22;
  context.textAlign = "right";
  write(ends[0].textContent, 170, y + 5, "13px");
  context.textAlign = "left";
  context.drawImage(ramp, 180, y - 6, 200, 12);
  write(ends[1].textContent, 390, y + 5, "13px");
  const name = model.raw.title.replace(/\.\w{3,4}$/, "").replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 60) || "explanation";
  h("a", { href: canvas.toDataURL("image/png"), download: `${name}.png` }).click();
}
