// SPDX-License-Identifier: Apache-2.0
// The two mechanisms as figures: who sends how much to whom in one step.
const THICKEST = 18;   // px of the arrow with the most bytes

const load = (participant) => (participant.sent ?? 0) + (participant.received ?? 0);

const middleRadius = (radius) => Math.min(30, radius / 4);   // px of the busiest participant

// How thick an arrow of this run may be so that its neighbours stay apart.
function thickest(run, radius) {
  const count = run.bytes.by_participant.length;
  if (count < 3) return THICKEST;
  const room = run.mechanism === "dp" ? (0.75 * Math.PI * (middleRadius(radius) + 7)) / (count - 1) : radius * Math.sin(Math.PI / count);
  return Math.min(THICKEST, room);
}

// One scale for both figures of one N, so that they can be compared by eye.
function scaleOf(runs, radius) {
  const widths = runs.map((run) => thickest(run, radius) / Math.max(1, ...run.bytes.links.map((link) => link.bytes)));
  const loads = runs.flatMap((run) => run.bytes.by_participant.map(load));
  return { link: Math.min(...widths), load: Math.max(1, ...loads) };
}

const thickness = (value, scale) => Math.max(1, value * scale.link);

// Places: DP has device 0 in the middle, DDP all ranks on a circle; two always stand side by side.
function places(run, center, radius) {
  const count = run.bytes.by_participant.length;
  const on = (angle) => ({ x: center.x + radius * Math.cos(angle), y: center.y + radius * Math.sin(angle), angle });
  if (count === 1) return [{ ...center, angle: 0 }];
  if (count === 2) return [on(Math.PI), on(0)];
  const turn = 2 * Math.PI;
  if (run.mechanism !== "dp") return Array.from({ length: count }, (_, i) => on(-Math.PI / 2 + (turn * i) / count));
  const first = count === 3 ? Math.PI : -Math.PI / 2;
  const outer = Array.from({ length: count - 1 }, (_, i) => on(first + (turn * i) / (count - 1)));
  return [{ ...center, angle: null }, ...outer];
}

// Areas are as the bytes through a participant; crowded circles shrink, all by one factor.
function radii(run, scale, radius) {
  const largest = middleRadius(radius);
  const count = run.bytes.by_participant.length;
  const room = count < 3 ? largest : Math.min(largest, radius * Math.sin(Math.PI / count) * 0.9);
  const most = run.mechanism === "dp" ? largest : room;
  return run.bytes.by_participant.map((p) => Math.max(3, Math.min(most, largest * Math.sqrt(load(p) / scale.load))));
}

// A straight arrow from circle to circle, a little to the right of the direct way.
function arrow(from, to, rFrom, rTo, width, shift) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const [ux, uy] = [(to.x - from.x) / length, (to.y - from.y) / length];
  const [px, py] = [-uy * shift, ux * shift];
  const at = (along, side) => `${(from.x + ux * along - uy * side + px).toFixed(1)},${(from.y + uy * along + ux * side + py).toFixed(1)}`;
  const end = length - rTo - 7;
  const begin = rFrom + 7;
  const head = Math.min(width * 0.7 + 5, Math.max(4, (end - begin) * 0.45));
  const [half, wing] = [width / 2, width / 2 + Math.min(5, head * 0.6)];
  return svg("polygon", { class: "fill", points: [at(begin, -half), at(end - head, -half), at(end - head, -wing), at(end, 0),
    at(end - head, wing), at(end - head, half), at(begin, half)].join(" ") });
}

function arrows(run, spots, sizes, scale) {
  const pairs = new Set(run.bytes.links.map((link) => `${link.from} ${link.to}`));
  return run.bytes.links.filter((link) => spots[link.from] && spots[link.to]).map((link) => {
    const width = thickness(link.bytes, scale);
    const crowd = Math.min(sizes[link.from], sizes[link.to]);
    const shift = pairs.has(`${link.to} ${link.from}`) ? Math.max(2, Math.min(width / 2 + 3, crowd)) : 0;
    return arrow(spots[link.from], spots[link.to], sizes[link.from], sizes[link.to], width, shift);
  });
}

function nodeLabel(run, i, spot, size, crowded) {
  const participant = run.bytes.by_participant[i];
  const name = size >= 11 ? text(spot.x, spot.y + 5, i, { "text-anchor": "middle", class: "strong inverse" }) : null;
  if (spot.angle === null && run.bytes.by_participant.length > 5) return [name];
  if (crowded && i % Math.ceil(run.bytes.by_participant.length / 8)) return [name];
  const middle = spot.angle === null || Math.abs(Math.cos(spot.angle)) < 0.3;
  const box = run.mechanism === "dp" || spot.angle === null ? 0 : 5;
  const away = (size + box) / (box ? Math.max(Math.abs(Math.cos(spot.angle)), Math.abs(Math.sin(spot.angle))) : 1) + (middle || !box ? 12 : 8);
  const [dx, dy] = spot.angle === null ? [0, 0] : [Math.cos(spot.angle) * away, Math.sin(spot.angle) * away];
  const anchor = middle ? "middle" : dx > 0 ? "start" : "end";
  const lift = spot.angle === null ? size + 22 : middle && dy < 0 ? -16 : middle ? 10 : -4;
  const lines = crowded ? [participant.name] : [participant.name, bytes(load(participant))];
  return [name, lines.map((words, k) => text(spot.x + dx, spot.y + dy + lift + 16 * k, words,
    { "text-anchor": anchor, class: k ? "small halo" : "small strong halo" }))];
}

// Beside the middle of a link, `side` px to the right of its way.
function beside(a, b, side) {
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const [nx, ny] = [-(b.y - a.y) / length, (b.x - a.x) / length];
  const lean = nx * Math.sign(side);
  return { x: (a.x + b.x) / 2 + nx * side, y: (a.y + b.y) / 2 + ny * side, anchor: Math.abs(lean) < 0.55 ? "middle" : lean > 0 ? "start" : "end" };
}

function linkLabels(run, spots, scale) {
  const count = spots.length;
  if (count > 5 || run.bytes.links.length > 10) return [];
  const star = run.mechanism === "dp";
  const links = star ? run.bytes.links.filter((l) => Math.max(l.from, l.to) === 1) : run.bytes.links;
  return links.map((link) => {
    const half = thickness(link.bytes, scale) / 2;
    const side = star || count === 2 ? 2 * half + 14 : -half - 10;
    const { x, y, anchor } = beside(spots[link.from], spots[link.to], side);
    const lines = star ? [link.from === 0 ? "parameters" : "gradients", bytes(link.bytes)] : [bytes(link.bytes)];
    const top = y + 4 - (anchor === "middle" ? (y < spots[0].y ? 16 * (lines.length - 1) : 0) : 8 * (lines.length - 1));
    return lines.map((words, k) => text(x, top + 16 * k, words, { "text-anchor": anchor, class: "small halo" }));
  });
}

// A dashed line is a process: one around all of DP, one around each rank of DDP while there is room.
function boundaries(run, spots, sizes, width, height) {
  if (run.mechanism === "dp") return rect(1, 1, width - 2, height - 2, { rx: 12, class: "boundary" });
  if (spots.length > 16) return [];
  return spots.map((spot, i) => {
    const half = sizes[i] + 5;
    return rect(spot.x - half, spot.y - half, 2 * half, 2 * half, { rx: 6, class: "boundary" });
  });
}

const reach = (spots) => Math.max(...spots.map((s) => s.y)) - Math.min(...spots.map((s) => s.y));

// Three devices around one reach higher than they hang: put them into the middle of the figure.
function middled(spots, y) {
  const ys = spots.map((spot) => spot.y);
  const shift = y - (Math.min(...ys) + Math.max(...ys)) / 2;
  return spots.map((spot) => ({ ...spot, y: spot.y + shift }));
}

function mechanismPlot(width, run, runs) {
  const count = run.bytes.by_participant.length;
  const radius = Math.max(56, Math.min(150, width / 2 - 88));
  const scale = scaleOf(runs, radius);
  const around = places(run, { x: width / 2, y: 0 }, radius);
  const height = count <= 2 ? 200 : (width < 450 ? reach(around) : 2 * radius) + (count > 5 ? 212 : 184);
  const middle = (height - (count > 5 ? 30 : 0)) / 2 + 12;
  const spots = middled(around, middle);
  const sizes = radii(run, scale, radius);
  const crowded = count > 9;
  return { width, height, content: [svg("g", { class: family(run) },
    boundaries(run, spots, sizes, width, height),
    text(14, 24, processText(run), { class: "small soft" }),
    arrows(run, spots, sizes, scale),
    spots.map((spot, i) => svg("circle", { cx: spot.x, cy: spot.y, r: sizes[i], class: "fill" })),
    spots.map((spot, i) => nodeLabel(run, i, spot, sizes[i], crowded)),
    linkLabels(run, spots, scale), summary(run, spots, width, { middle, height }))] };
}

// Among many arrows there is no room beside each of them, nor beside device 0.
function summary(run, spots, width, { middle, height }) {
  if (spots.length < 6) return [];
  const each = run.bytes.links.length ? `each arrow: ${range(run.bytes.links.map((link) => link.bytes))}` : "no arrows";
  const look = { "text-anchor": "middle", class: "small strong" };
  if (run.mechanism !== "dp") return [text(width / 2, middle + 4, each, look)];
  const [first] = run.bytes.by_participant;
  return [text(width / 2, height - 30, `device 0, in the middle: ${bytes(load(first))}`, look), text(width / 2, height - 13, each, look)];
}

const processText = (run) => !isNumber(run.processes) && !isNumber(run.threads) ? `processes: ${NOT_MEASURED}` : `${known(run.processes, (v) => plural(v, "process", "processes"))}, ${known(run.threads, (v) => plural(v, "thread"))}`;

function dpWords(run) {
  const [first, ...others] = run.bytes.by_participant;
  const extra = run.bytes.scatter || run.bytes.gather
    ? ` Apart from that it sends ${bytes(run.bytes.scatter)} of inputs and gathers ${bytes(run.bytes.gather)} of outputs.` : "";
  return {
    seen: `Device 0 sends all parameters to ${others.length === 1 ? "the other device" : `each of the ${others.length} others`} and gets all gradients back: ${bytes(load(first))} per step go through it, ${others.length ? bytes(load(others[0])) : "0 B"} through ${others.length === 1 ? "the other" : "each other"}.${extra}`,
    follows: " Each further device adds another pair of arrows at the same place.",
  };
}

function ddpWords(run) {
  const links = run.bytes.links;
  const loads = run.bytes.by_participant.map(load);
  const ring = links.length === loads.length && links.every((l) => l.to === (l.from + 1) % loads.length);
  const each = links.length ? range(links.map((l) => l.bytes)) : "0 B";
  return {
    seen: ring
      ? `Each rank sends ${each} per step to the next rank of the ring and gets as much from the one before: ${range(loads)} go through each.`
      : `Ranks send each other ${each} per step along ${plural(links.length, "link")}: ${range(loads)} go through each.`,
    follows: ring ? " No place carries more than another, and a longer ring hardly changes what each carries. Parameters are never sent again." : "",
  };
}

function range(values) {
  const [low, high] = [bytes(Math.min(...values)), bytes(Math.max(...values))];
  return low === high ? low : `${low} to ${high}`;
}

function formulaWords(run) {
  const formula = run.formula;
  if (!formula || !isNumber(formula.busiest)) return "";
  const same = formula.busiest === run.bytes.busiest;
  return ` The formula ${unbroken(formula.text)} says ${whole(formula.busiest)} bytes for the busiest; ${same ? "the same was measured" : `measured were ${whole(run.bytes.busiest)}`}.`;
}

function mechanismFigure(kind, runs) {
  const heading = { dp: "DP: a star through device 0", ddp: "DDP: a ring" }[kind];
  let run = runs[0];
  let shown = runs;
  const figure = new Figure(`${kind}-figure`, heading, (width) => mechanismPlot(width, run, shown));
  const show = (next, all) => {
    [run, shown] = [next, all];
    const words = kind === "dp" ? dpWords(run) : ddpWords(run);
    figure.say({ heading: `${heading}, ${atN(run.ranks)}`, desc: `${processText(run)}. ${words.seen}`,
      caption: words.seen + words.follows + formulaWords(run) });
  };
  return { figure, show };
}

function mechanisms(data) {
  const kinds = ["dp", "ddp"];
  const runsOf = (kind) => data.runs.filter((run) => run.mechanism === kind);
  const worlds = [...new Set(kinds.flatMap((kind) => runsOf(kind).map((run) => run.ranks)))].sort((a, b) => a - b);
  if (!worlds.length) return [absent("DP and DDP")];
  const parts = kinds.map((kind) => ({ kind, absent: el("p", { class: "notice" }), ...(runsOf(kind).length ? mechanismFigure(kind, runsOf(kind)) : {}) }));
  const show = (n) => {
    const chosen = kinds.map((kind) => runsOf(kind).find((run) => run.ranks === n));
    const present = chosen.filter(Boolean);
    parts.forEach(({ kind, figure, show: draw, absent }, i) => {
      absent.textContent = `${NAMES[kind]} with ${atN(n)}: ${NOT_MEASURED}.`;
      absent.hidden = Boolean(chosen[i]);
      if (figure) figure.node.hidden = !chosen[i];
      if (chosen[i]) draw(chosen[i], present);
    });
  };
  show(worlds[worlds.length - 1]);
  return [
    el("p", {}, "Arrows are as thick as the bytes that were measured on them in one step. A circle's area is the bytes that go through it, sent and received. A dashed line is the border of a process. Both drawings of one N have the same scale."),
    choice("mechanism-n", "N", worlds.map((n) => [n, String(n)]), worlds[worlds.length - 1], show),
    el("div", { class: "pair" }, parts.map(({ figure, absent }) => el("div", {}, figure?.node, absent)))];
}
