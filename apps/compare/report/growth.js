// SPDX-License-Identifier: Apache-2.0
// What grows with N: traffic of the busiest participant, memory of device 0.

// series: {kind, line: [[n, v]], dots: [[n, v]], measured: [[n, v]]}, both axes logarithmic.
function growthPlot(width, series, yName) {
  const height = width < 560 ? 320 : 380;
  const points = series.flatMap((s) => [...s.line, ...s.dots, ...s.measured]).filter(([, v]) => v > 0);
  const box = frame(width, height, { left: 62, right: 16, top: 30, bottom: 46 });
  const ns = [...new Set(points.map(([n]) => n))].sort((a, b) => a - b);
  const [low, high] = padded(points.map(([, v]) => v), { log: true });
  const x = logarithmic(ns[0] / 1.15, ns[ns.length - 1] * 1.15, box.left, box.right);
  const y = logarithmic(low, high, box.bottom, box.top);
  const ticks = logTicks(low, high).map((v) => [v, tickBytes(v)]);
  return { width, height, content: [
    axisX(box, x, ns.map((n) => [n, whole(n)]), "N: devices of DP, ranks of DDP"),
    axisY(box, y, ticks, yName), series.map((s) => drawSeries(s, x, y))] };
}

function drawSeries({ kind, name, line: course, dots, measured }, x, y) {
  const at = (points) => points.filter(([, v]) => v > 0).map(([n, v]) => [x(n), y(v)]);
  return svg("g", { class: kind },
    path(at(course), { class: "stroke", "stroke-width": 2, "stroke-dasharray": DASHES[kind] }),
    at(measured).map(([px, py]) => mark(kind, px, py, kind === "dp" ? 8.5 : 7, "fill")),
    at(dots).map(([px, py]) => mark(kind, px, py, 4, "open")), seriesName(kind, name, at(course)));
}

function seriesName(kind, name, points) {
  const [x, y] = points[points.length - 1] ?? [];
  if (!x || points.length < 3) return null;
  return text(kind === "dp" ? x - 20 : x + 6, kind === "dp" ? y - 1 : y - 14, name, { "text-anchor": "end", class: "strong halo" });
}

const seen = (series) => [...series.line, ...series.dots, ...series.measured].some(([, v]) => v > 0);
const pick = (rows, key) => rows.map((row) => [row.ranks, key(row)]).filter(([, v]) => isNumber(v));
const NAMES = { dp: "DP", ddp: "DDP" };
const PLACES = { dp: "DP, device 0", ddp: "DDP, each rank" };

// "grows 512 times, from 9.60 MB to 4.92 GB"
function course(points) {
  if (points.length < 2) return points.length ? `is ${bytes(points[0][1])}` : `is ${NOT_MEASURED}`;
  const [first, last] = [points[0][1], points[points.length - 1][1]];
  const span = `from ${bytes(first)} at ${atN(points[0][0])} to ${bytes(last)} at ${atN(points[points.length - 1][0])}`;
  if (last === first) return `stays at ${bytes(last)}`;
  return last > first ? `grows ${last / first < 100 ? digits(last / first) : whole(last / first)} times, ${span}` : `shrinks ${span}`;
}

function agreement(rows) {
  const differ = rows.filter((row) => ["dp", "ddp"].some((kind) => {
    const values = ["formula", "simulated", "measured"].map((key) => row[kind]?.[key]).filter(isNumber);
    return new Set(values).size > 1;
  }));
  return differ.length
    ? `Formula, simulation and measurement differ at N = ${list(differ.map((row) => whole(row.ranks)))}.`
    : "Where there are several marks at one N, formula, simulation and measurement agree to the byte.";
}

// What follows for DDP, if its busiest rank is bounded at all.
function bound(data, points) {
  const most = Math.max(...points.map(([, v]) => v)) / data.model?.trainable_bytes;
  if (!(most < 4.5)) return "";
  return `So DP's busiest place gets busier with each device, while no rank of DDP ever carries more than ${digits(most)}·M.`;
}

function trafficFigure(data) {
  const rows = [...(data.traffic ?? [])].sort((a, b) => a.ranks - b.ranks);
  const of = (kind, key) => pick(rows, (row) => row[kind]?.[key]);
  const series = ["dp", "ddp"].map((kind) =>
    ({ kind, name: PLACES[kind], line: of(kind, "formula"), dots: of(kind, "simulated"), measured: of(kind, "measured") }));
  if (!series.some(seen)) return [absent("Traffic over N")];
  const figure = new Figure("traffic-plot", "Bytes through the busiest participant, per step",
    (width) => growthPlot(width, series, "bytes per step, sent + received"));
  const words = ["dp", "ddp"].map((kind) => `${kind === "dp" ? "DP's device 0" : "DDP's busiest rank"} ${course(of(kind, "formula"))}`);
  figure.say({
    desc: `Two curves over N on logarithmic axes. ${words.join(". ")}. ${agreement(rows)}`,
    caption: `${words.join(". ")}. ${agreement(rows)} ${bound(data, of("ddp", "formula"))}`,
    legend: ["dp", "ddp"].flatMap((kind) => [
      [lineKey(kind), `${NAMES[kind]}, formula`], [markKey(kind, 4, "open"), "simulated"], [markKey(kind, 7, "fill"), "measured"]]),
  });
  return [figure.node, trafficNumbers(rows)];
}

function trafficNumbers(rows) {
  const cells = ["dp", "ddp"].flatMap((kind) => ["formula", "simulated", "measured"].map((key) => [kind, key]));
  return numbers("The same as numbers, in bytes",
    ["N", ...cells.map(([kind, key]) => `${NAMES[kind]}, ${key}`)],
    rows.map((row) => [whole(row.ranks), ...cells.map(([kind, key]) => whole(row[kind]?.[key]))]),
    { numeric: [0, 1, 2, 3, 4, 5, 6] });
}

function memoryFigure(data) {
  const rows = [...(data.growth ?? [])].sort((a, b) => a.ranks - b.ranks);
  const measured = (kind) => pick(data.runs.filter((run) => run.mechanism === kind), (run) => run.device0_peak_bytes);
  const counted = { dp: pick(rows, (row) => row.dp_device0_peak_bytes), ddp: pick(rows, (row) => row.ddp_device0_peak_bytes) };
  const series = ["dp", "ddp"].map((kind) => ({ kind, name: `${NAMES[kind]}, ${kind === "dp" ? "device" : "rank"} 0`, line: counted[kind], dots: counted[kind], measured: measured(kind) }));
  if (!series.some(seen)) return [absent("Memory over N")];
  const figure = new Figure("memory-plot", "Parameters, gradients and outputs on device 0",
    (width) => growthPlot(width, series, "bytes at the peak"));
  const words = [`DP's device 0 ${course(counted.dp)}`, `DDP's rank 0 ${course(counted.ddp)}`].join(". ");
  figure.say({
    desc: `Two curves over N on logarithmic axes. ${words}.`,
    caption: `${words}. It counts what the mechanism holds there: parameters, gradients and gathered outputs, not the activations of the model.`,
    legend: ["dp", "ddp"].flatMap((kind) => [
      [lineKey(kind), `${NAMES[kind]}, counted`], [markKey(kind, 8, "fill"), "measured"]]),
  });
  return [figure.node, memoryNumbers(rows, measured)];
}

function memoryNumbers(rows, measured) {
  const found = Object.fromEntries(["dp", "ddp"].map((kind) => [kind, new Map(measured(kind))]));
  return numbers("The same as numbers, in bytes", ["N", "DP, counted", "DP, measured", "DDP, counted", "DDP, measured"],
    rows.map((row) => [row.ranks, row.dp_device0_peak_bytes, found.dp.get(row.ranks),
      row.ddp_device0_peak_bytes, found.ddp.get(row.ranks)].map(whole)),
    { numeric: [0, 1, 2, 3, 4] });
}
