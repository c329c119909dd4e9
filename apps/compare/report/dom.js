// SPDX-License-Identifier: Apache-2.0
// Elements, and the frame that every figure stands in.
const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

const text = (x, y, words, attributes = {}) => svg("text", { x, y, ...attributes }, String(words));
const line = (x1, y1, x2, y2, attributes) => svg("line", { x1, y1, x2, y2, ...attributes });
const rect = (x, y, width, height, attributes) => svg("rect", { x, y, width, height, ...attributes });

// Text is not measured: figures are drawn before they are seen. 13 px type is about this wide.
const widthOf = (words, size = 13) => String(words).length * size * 0.56;

const redraws = [];
let paper = null;   // width of the figures while they are printed

function redrawAll(width) {
  paper = width;
  for (const redraw of redraws) redraw();
}
addEventListener("beforeprint", () => redrawAll(660));
addEventListener("afterprint", () => redrawAll(null));

// draw(width) returns {width, height, content}; it is called again whenever the width changes.
class Figure {
  constructor(id, heading, draw) {
    this.draw = draw;
    this.title = svg("title", { id: `${id}-title` }, heading);
    this.desc = svg("desc", { id: `${id}-desc` });
    this.image = svg("svg", { role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-desc` });
    this.plot = el("div", { class: "plot" }, this.image);
    this.caption = el("figcaption");
    this.keys = el("ul", { class: "legend" });
    this.heading = el("h3", {}, heading);
    this.node = el("figure", { id }, this.heading, this.keys, this.plot, this.caption);
    new ResizeObserver(() => requestAnimationFrame(() => this.redraw())).observe(this.plot);
    redraws.push(() => this.redraw(true));
  }

  // What it shows in words with its numbers; what one sees and what follows from it.
  say({ heading, desc, caption, legend = [] }) {
    if (heading) this.heading.textContent = this.title.textContent = heading;
    this.desc.textContent = desc;
    this.caption.replaceChildren(...[caption].flat());
    this.keys.replaceChildren(...legend.map(([mark, words]) => el("li", {}, mark, words)));
    this.redraw(true);
  }

  redraw(always) {
    const room = paper ?? Math.floor(this.plot.clientWidth);
    if (room < 1 || (room === this.room && !always)) return;
    this.room = room;
    const { width, height, content } = this.draw(room);
    this.image.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.image.style.width = `${width}px`;
    this.image.replaceChildren(this.title, this.desc, ...content.flat(Infinity));
    if (width > room) this.plot.tabIndex = 0;
    else this.plot.removeAttribute("tabindex");
  }
}

function choice(name, heading, options, chosen, onChange) {
  const buttons = options.map(([value, label]) =>
    el("label", { class: "choice" },
      el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChange(value) }),
      el("span", {}, label)));
  return el("fieldset", {}, el("legend", {}, heading), buttons);
}

// rows: cells as text; columns that hold numbers stand to the right.
function numbers(summary, head, rows, { open = false, numeric = [] } = {}) {
  const cell = (tag, value, i) => el(tag, { class: numeric.includes(i) ? "number" : null }, value);
  const table = el("table", {},
    el("thead", {}, el("tr", {}, head.map((value, i) => cell("th", value, i)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, i) => cell("td", value, i))))));
  const box = el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": summary }, table);
  return el("details", { open }, el("summary", {}, summary), box);
}

const absent = (what) => el("p", { class: "notice" }, `${what}: ${NOT_MEASURED}.`);

const section = (id, heading, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-heading` }, el("h2", { id: `${id}-heading` }, heading), children);
