// Small tools. Text only ever enters the page through text nodes and attributes, never as markup.

function h(tag, attrs, ...kids) {
  return fill(document.createElement(tag), attrs, kids);
}

function s(tag, attrs, ...kids) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attrs, kids);
}

function fill(el, attrs, kids) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) el.style.setProperty(key, value);
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...kids.flat(Infinity).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return el;
}

// Numbers as c2fa.showing.numbers writes them: whole units of the last digit that is shown.
function digitsFor(size) {
  if (size < 1e-290 || !Number.isFinite(size)) return 3;
  const power = Math.floor(Math.log10(size));
  return power < -2 || power > 8 ? 2 - power : Math.max(3 - Math.max(power - 1, 0), 0);
}

function written(units, digits, signs = false) {
  if (units === null || !Number.isFinite(units)) return "–";
  const size = Math.abs(Math.round(units));
  const power = 2 - digits;
  let text;
  if (digits < 0 || power < -4) {
    text = `${(size / 100).toFixed(2)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  } else {
    const [whole, part] = (size / 10 ** digits).toFixed(digits).split(".");
    text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
  }
  if (!size) return text;
  return units < 0 ? "−" + text : (signs ? "+" : "") + text;
}

function number(value, digits = null) {
  if (value === null || !Number.isFinite(value)) return "–";
  const shown = digits === null ? digitsFor(Math.abs(value)) : digits;
  return written(value * 10 ** shown, shown);
}

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

// Whole numbers; the smallest stands for none.
function wholes(packed) {
  const view = new DataView(bytes(packed.data).buffer);
  const none = -(2 ** (8 * packed.bytes - 1));
  return Array.from({ length: view.byteLength / packed.bytes }, (_, i) => {
    const n = packed.bytes === 2 ? view.getInt16(2 * i, true) : view.getInt32(4 * i, true);
    return n === none ? NaN : n;
  });
}

// Numbers of which only the upper two of four bytes were kept.
function halves(text) {
  const raw = bytes(text);
  const view = new DataView(new ArrayBuffer(4));
  const out = new Float32Array(raw.length / 2);
  for (let i = 0; i < out.length; i++) {
    view.setUint32(0, ((raw[2 * i + 1] << 24) | (raw[2 * i] << 16)) >>> 0);
    out[i] = view.getFloat32(0);
  }
  return out;
}

function labelMap(text, size) {
  const raw = bytes(text);
  const out = new Uint32Array(size);
  let at = 0;
  let place = 0;
  const next = () => {
    let value = 0;
    let shift = 0;
    while (raw[at] > 127) {
      value += (raw[at++] & 127) * 2 ** shift;
      shift += 7;
    }
    return value + raw[at++] * 2 ** shift;
  };
  while (at < raw.length) {
    const label = next();
    const length = next();
    out.fill(label, place, place + length);
    place += length;
  }
  return out;
}

function largest(values) {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return most || 1;
}

function sign(value) {
  return value < 0 ? "neg" : "pos";
}

function one(label) {
  return label.endsWith("s") && !label.endsWith("ss") && label.length > 3
    ? label === "leaves" ? "leaf" : label.slice(0, -1)
    : label;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function count(n, label) {
  return `${n} ${n === 1 ? one(label) : label}`;
}

let counter = 0;
const fresh = (name) => `c2fa-${name}-${++counter}-${Math.random().toString(36).slice(2, 7)}`;
