// SPDX-License-Identifier: Apache-2.0
// The stepper: which ranks' terms each chunk holds, after every step of the real schedule.

// holdings[k][rank][chunk] is a set of ranks, after k steps.
function ringHoldings(ring) {
  const start = Array.from({ length: ring.ranks }, (_, r) => ring.chunks.map(() => new Set([r])));
  const all = [start];
  for (const step of ring.steps) {
    const before = all[all.length - 1];
    const after = before.map((row) => [...row]);
    for (const { from, to, chunk } of step.sends) {
      const arriving = before[from][chunk];
      after[to][chunk] = step.phase === "reduce_scatter" ? new Set([...before[to][chunk], ...arriving]) : arriving;
    }
    all.push(after);
  }
  return all;
}

// {1, 2, 3} -> "1…3"; a run of ranks may go round the end: {3, 0} -> "3+0".
function terms(held, world) {
  if (held.size === world && world > 1) return "all";
  const first = [...held].find((r) => !held.has((r + world - 1) % world)) ?? 0;
  const chain = Array.from({ length: held.size }, (_, i) => (first + i) % world);
  if (!chain.every((r) => held.has(r))) return `${held.size} of ${world}`;
  return chain.length < 3 ? chain.join("+") : `${chain[0]}…${chain[chain.length - 1]}`;
}

const lastOf = (chunk) => chunk.end - 1;
const elements = (send) => (send.end > send.begin ? `${whole(send.begin)} to ${whole(lastOf(send))}` : "none");

function ringSpots(width, world) {
  const radius = Math.max(50, Math.min(140, width / 2 - 64));
  const center = { x: width / 2, y: radius + 40 };
  return { radius, height: 2 * radius + 80, spots: Array.from({ length: world }, (_, r) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * r) / world;
    return { x: center.x + radius * Math.cos(angle), y: center.y + radius * Math.sin(angle), angle };
  }) };
}

function travelPlot(width, ring, step) {
  const { radius, height, spots } = ringSpots(width, ring.ranks);
  const size = Math.max(3, Math.min(18, radius * Math.sin(Math.PI / ring.ranks) * 0.55));
  const every = Math.ceil(ring.ranks / 16);
  const edges = (step?.sends ?? []).map((send) => travelEdge(send, spots, size, ring.ranks));
  return { width, height, content: [
    step ? edges : spots.map((spot, r) => line(spot.x, spot.y, spots[(r + 1) % ring.ranks].x, spots[(r + 1) % ring.ranks].y, { class: "axis", "stroke-dasharray": "2 5" })),
    spots.map((spot, r) => [
      svg("circle", { cx: spot.x, cy: spot.y, r: size, class: "ddp fill" }),
      size >= 10 ? text(spot.x, spot.y + 5, r, { "text-anchor": "middle", class: "strong inverse" })
        : r % every ? null : text(spot.x + 16 * Math.cos(spot.angle), spot.y + 16 * Math.sin(spot.angle) + 4, r, { "text-anchor": "middle", class: "small" })])
      .flat().filter(Boolean)] };
}

function travelEdge(send, spots, size, world) {
  const [a, b] = [spots[send.from], spots[send.to]];
  const way = svg("g", { class: "moved" }, arrow(a, b, size - 3, size - 3, world > 16 ? 1.5 : 4, world === 2 ? 9 : 0));
  way.firstChild.setAttribute("class", "moved");
  if (world > 16) return [way];
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const side = world === 2 ? 24 : -16;
  const x = (a.x + b.x) / 2 - ((b.y - a.y) / length) * side;
  const y = (a.y + b.y) / 2 + ((b.x - a.x) / length) * side;
  const lean = (x - (a.x + b.x) / 2) / Math.abs(side);
  const anchor = Math.abs(lean) < 0.3 ? "middle" : lean > 0 ? "start" : "end";
  return [way, text(x, y + 4, world > 8 ? send.chunk : `chunk ${send.chunk}`, { "text-anchor": anchor, class: "small halo" })];
}

function heldPlot(width, ring, held, step) {
  const left = 58;
  const count = ring.chunks.length;
  const side = Math.max(7, Math.min(96, Math.floor((width - left) / count)));
  const tall = Math.max(7, Math.min(52, side));
  const top = 40;
  const at = (r, c) => ({ x: left + c * side, y: top + r * (tall + (side > 30 ? 8 : 0)), side, tall });
  const label = (c) => (side < 60 ? (c % Math.ceil(20 / side) ? "" : c) : `chunk ${c}`);
  const moved = new Set((step?.sends ?? []).map((send) => `${send.to} ${send.chunk}`));
  return { width: Math.max(width, left + count * side + 8), height: at(ring.ranks - 1, 0).y + tall + 24, content: [
    side < 60 ? text(left, 14, "chunk", { class: "small soft" }) : null,
    ring.chunks.map((_, c) => text(left + (c + 0.5) * side, 30, label(c), { "text-anchor": "middle", class: "small" })),
    held.map((row, r) => [
      r % Math.ceil(14 / tall) ? null : text(0, at(r, 0).y + tall / 2 + 4, tall < 14 ? r : `rank ${r}`, { class: "small" }),
      row.map((set, c) => heldCell(set, at(r, c), ring.ranks, moved.has(`${r} ${c}`)))]),
    side > 30 ? (step?.sends ?? []).map((send) => hop(at(send.from, send.chunk), at(send.to, send.chunk))) : null]
    .flat(3).filter(Boolean) };
}

function heldCell(set, { x, y, side, tall }, world, moved) {
  const full = set.size === world && world > 1;
  const inset = side > 30 ? 2 : 0.5;
  const box = rect(x + inset, y, side - 2 * inset, tall, { class: side > 30 ? "cell" : "cell small-cell",
    rx: side > 30 ? 4 : 0, "fill-opacity": full ? 1 : (0.05 + (side > 30 ? 0.4 : 0.6) * (set.size / world)).toFixed(3) });
  const ring = moved ? rect(x + inset, y, side - 2 * inset, tall, { class: "moved-line", rx: side > 30 ? 4 : 0, "stroke-width": side > 30 ? 3 : 2 }) : null;
  if (side < 34) return [box, ring];
  const bars = world <= 16 && side >= 48 ? termBars(set, x + 8, y + tall - 13, side - 16, world, full) : [];
  const words = text(x + side / 2, y + (bars.length ? tall / 2 - 1 : tall / 2 + 4), terms(set, world),
    { "text-anchor": "middle", class: `small strong ${full ? "inverse" : ""}` });
  return [box, ring, words, ...bars];
}

// One little bar per rank, filled if its term is in the sum.
function termBars(set, x, y, width, world, full) {
  const each = width / world;
  return Array.from({ length: world }, (_, r) => rect(x + r * each + 0.5, y, each - 1.5, 6,
    { style: `fill:var(${full ? "--on-strong" : "--ddp"})`, "fill-opacity": set.has(r) ? 1 : 0.18 }));
}

// From cell to cell of one column; the way from the last rank to the first leaves below and enters above.
function hop(from, to) {
  const x = from.x + from.side / 2;
  const head = (y) => svg("polygon", { class: "moved", points: `${x - 5},${y - 6} ${x + 5},${y - 6} ${x},${y + 2}` });
  if (to.y > from.y) return [line(x, from.y + from.tall - 1, x, to.y - 4, { class: "moved-line", "stroke-width": 2.5 }), head(to.y)];
  return [line(x, from.y + from.tall, x, from.y + from.tall + 10, { class: "moved-line", "stroke-width": 2.5 }), head(from.y + from.tall + 14),
    line(x, to.y - 6, x, to.y - 4, { class: "moved-line", "stroke-width": 2.5 }), head(to.y)];
}

const PHASES = {
  reduce_scatter: ["reduce-scatter", "adds its own terms to the chunk that arrives"],
  all_gather: ["all-gather", "keeps the finished chunk that arrives"],
};

function stepWords(ring, k) {
  const total = ring.steps.length;
  if (k === 0) return `Start. Each of the ${ring.ranks} ranks holds gradients of its own, all ${ring.chunks.length} chunks of them; nothing is summed yet. ${total} steps follow: first those that add up (reduce-scatter), then those that hand the results round (all-gather).`;
  const step = ring.steps[k - 1];
  const [phase, does] = PHASES[step.phase] ?? [step.phase, "takes the chunk that arrives"];
  const send = step.sends.find((s) => s.from === 0) ?? step.sends[0];
  const example = send ? ` Rank ${send.from} sends chunk ${send.chunk} (elements ${elements(send)}, ${bytes(send.bytes)}) to rank ${send.to}; the others do likewise.` : "";
  const end = k === total ? " Done: every rank holds the sum of all terms in every chunk."
    : step.phase === "reduce_scatter" && ring.steps[k].phase !== step.phase ? " Now each chunk is complete on one rank." : "";
  return `Step ${k} of ${total}, ${phase}. Each rank sends one chunk to the next, which ${does}.${example}${end}`;
}

function travelTable(ring, k) {
  const sends = k ? ring.steps[k - 1].sends : [];
  return numbers(k ? `What travels in step ${k}` : "What travels: nothing yet", ["ranks", "chunk", "elements", "bytes"],
    sends.map((s) => [`${s.from} → ${s.to}`, s.chunk, elements(s), whole(s.bytes)]), { open: k > 0, numeric: [3] });
}

class Stepper {
  constructor(ring) {
    this.ring = ring;
    this.k = 0;
    this.holdings = ringHoldings(ring);
    this.travel = new Figure("travel-figure", "What travels", (width) => travelPlot(width, ring, ring.steps[this.k - 1]));
    this.held = new Figure("held-figure", "What each rank holds", (width) => heldPlot(width, ring, this.holdings[this.k], ring.steps[this.k - 1]));
    this.state = el("p", { class: "state", id: "ring-state", "aria-live": "polite" });
    this.table = el("div", { class: "travel-table" });
    this.progress = el("span", { class: "progress soft", "aria-hidden": "true" });
    this.buttons = this.makeButtons();
    this.node = el("div", { onkeydown: (event) => this.key(event) },
      el("div", { class: "tools", role: "group", "aria-label": "Steps of the ring" }, Object.values(this.buttons), this.progress),
      el("p", { class: "soft hint" }, "With the focus on a button, the arrow keys, Home and End work too."),
      this.state, el("div", { class: "ring" }, this.travel.node, this.held.node, this.table));
    this.go(0);
  }

  makeButtons() {
    const button = (id, label, act) => el("button", { type: "button", id: `ring-${id}`, onclick: act }, label);
    return {
      first: button("first", "First", () => this.stop(0)), back: button("back", "Back", () => this.stop(this.k - 1)),
      next: button("next", "Next", () => this.stop(this.k + 1)), last: button("last", "Last", () => this.stop(this.ring.steps.length)),
      play: button("play", "Play", () => (this.timer ? this.stop(this.k) : this.play())),
    };
  }

  key(event) {
    const moves = { ArrowLeft: this.k - 1, ArrowRight: this.k + 1, Home: 0, End: this.ring.steps.length };
    if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.stop(moves[event.key]);
  }

  play() {
    this.go(this.k === this.ring.steps.length ? 0 : this.k + 1);
    this.timer = setInterval(() => (this.k < this.ring.steps.length ? this.go(this.k + 1) : this.stop(this.k)), 1600);
    this.buttons.play.textContent = "Pause";
  }

  stop(k) {
    clearInterval(this.timer);
    this.timer = null;
    this.buttons.play.textContent = "Play";
    this.go(k);
  }

  go(k) {
    const total = this.ring.steps.length;
    this.k = Math.max(0, Math.min(total, k));
    this.node.dataset.step = this.k;
    this.buttons.first.setAttribute("aria-disabled", this.k === 0);
    this.buttons.back.setAttribute("aria-disabled", this.k === 0);
    this.buttons.next.setAttribute("aria-disabled", this.k === total);
    this.buttons.last.setAttribute("aria-disabled", this.k === total);
    this.progress.textContent = `${this.k} of ${total}`;
    const words = stepWords(this.ring, this.k);
    this.state.textContent = words;
    this.table.replaceChildren(travelTable(this.ring, this.k));
    this.travel.say({ desc: words, caption: "Circles are ranks. Arrows are the chunks that travel in this step, all at the same time." });
    this.held.say({ desc: this.heldWords(), caption: this.heldCaption() });
  }

  heldWords() {
    const rows = this.holdings[this.k].slice(0, 16).map((row, r) =>
      `rank ${r}: ${row.slice(0, 16).map((set, c) => `chunk ${c} ${terms(set, this.ring.ranks)}`).join(", ")}`);
    return `After step ${this.k}, the ranks whose terms are summed in each chunk. ${rows.join("; ")}.`;
  }

  heldCaption() {
    const cells = this.holdings[this.k].flat();
    const done = cells.filter((set) => set.size === this.ring.ranks).length;
    return `Rows are ranks, columns are chunks, after this step. The darker a cell, the more ranks' terms are summed in it; where there is room, it names them ("2…0" is 2, 3 and so on up to 0) and has a bar for each. "all" is finished: ${whole(done)} of ${whole(cells.length)} cells. Framed cells have just changed.`;
  }
}

function ringSection(data) {
  const ring = data.ring;
  if (!ring || !(ring.ranks > 1) || !ring.steps?.length) return [absent("The steps of a ring")];
  return [
    el("p", {}, `This is the all-reduce of one bucket (${ring.bucket}) among ${ring.ranks} ranks: ${plural(ring.count, "element")} of ${plural(ring.element_bytes, "byte")}, cut into ${ring.chunks.length} chunks. Each rank begins with gradients of its own; at the end each has the sum. The mean is taken once, by the rank where a chunk becomes complete.`),
    new Stepper(ring).node];
}
