// SPDX-License-Identifier: Apache-2.0
// Scales, axes and marks of the plots.
function niceTicks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const every = Math.ceil(decades / 7);
  const steps = decades < 2.2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    if (p % every === 0) ticks.push(...steps.map((m) => m * 10 ** p));
  }
  return ticks.filter((v) => v >= low * 0.999 && v <= high * 1.001);
}

const linear = (low, high, from, to) => (v) => from + ((v - low) / (high - low || 1)) * (to - from);
const logarithmic = (low, high, from, to) => {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return (v) => scale(Math.log(v));
};

// A margin on both sides, in the scale's own sense; never an empty range.
function padded(values, { log = false, zero = false } = {}) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (log) return high / low < 4 ? [low / 2, high * 2] : [low / 1.3, high * 1.3];
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [zero ? 0 : low - pad, high + pad];
}

function frame(width, height, margin) {
  return { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
}

// Every k-th label, from the last one back, so that none touches its neighbour.
function sparse(ticks, scale) {
  const apart = (some) => some.every(([value, label], i) =>
    i === 0 || scale(value) - scale(some[i - 1][0]) > (widthOf(label, 12) + widthOf(some[i - 1][1], 12)) / 2 + 5);
  for (let k = 1; ; k++) {
    const some = ticks.filter((_, i) => (ticks.length - 1 - i) % k === 0);
    if (apart(some)) return some;
  }
}

// Ticks are [value, label].
function axisX(box, scale, ticks, name) {
  const shown = new Set(sparse(ticks, scale));
  const content = ticks.map((tick) => [line(scale(tick[0]), box.top, scale(tick[0]), box.bottom, { class: "grid" }),
    shown.has(tick) ? text(scale(tick[0]), box.bottom + 17, tick[1], { "text-anchor": "middle", class: "small" }) : null]);
  const title = text((box.left + box.right) / 2, box.bottom + 36, name, { "text-anchor": "middle", class: "small soft" });
  return [content, line(box.left, box.bottom, box.right, box.bottom, { class: "axis" }), title].flat(Infinity).filter(Boolean);
}

function axisY(box, scale, ticks, name) {
  const content = ticks.map(([value, label]) => [
    line(box.left, scale(value), box.right, scale(value), { class: "grid" }),
    text(box.left - 8, scale(value) + 4, label, { "text-anchor": "end", class: "small" })]);
  return [content, text(0, box.top - 12, name, { class: "small soft" })];
}

const DASHES = { dp: null, ddp: "7 4", single: "2 3" };

// DP is a square, DDP a circle, single a diamond: colour is never the only difference.
function mark(kind, x, y, size, look) {
  if (kind === "ddp") return svg("circle", { cx: x, cy: y, r: size, class: `ddp ${look}` });
  const turn = kind === "dp" ? null : `rotate(45 ${x} ${y})`;
  const side = size * (kind === "dp" ? 0.9 : 0.8);
  return rect(x - side, y - side, 2 * side, 2 * side, { class: `${kind} ${look}`, transform: turn });
}

function path(points, attributes) {
  const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  return svg("path", { d, fill: "none", ...attributes });
}

const keyBox = (width, ...content) => svg("svg", { width, height: 18, viewBox: `0 0 ${width} 18`, "aria-hidden": "true" }, content);
const lineKey = (kind, width = 2) =>
  keyBox(30, line(0, 9, 30, 9, { class: `${kind} stroke`, "stroke-width": width, "stroke-dasharray": DASHES[kind] }));
const markKey = (kind, size, look) => keyBox(20, mark(kind, 10, 9, size, look));
