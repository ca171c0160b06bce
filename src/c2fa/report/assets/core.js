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

function number(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const shown = size >= 1000 ? 1 : size >= 100 ? 2 : digits;
  return value.toFixed(shown).replace("-", "−");
}

function signed(value, digits = 3) {
  const text = number(value, digits);
  if (text === "–") return text;
  if (Number(text.replace("−", "-")) === 0) return text.replace("−", "");
  return value > 0 ? "+" + text : text;
}

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

function floats(text) {
  const view = new DataView(bytes(text).buffer);
  const out = new Float32Array(view.byteLength / 4);
  for (let i = 0; i < out.length; i++) out[i] = view.getFloat32(4 * i, true);
  return out;
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
