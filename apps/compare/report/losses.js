// SPDX-License-Identifier: Apache-2.0
// Loss curves, and how far each run is from the first.
const finite = (values) => (values ?? []).map((v, i) => [i + 1, v]).filter(([, v]) => isNumber(v));

function stepAxis(box, count) {
  const scale = linear(count > 1 ? 1 : 0, count > 1 ? count : 2, box.left + 8, box.right - 8);
  const ticks = count > 1 ? niceTicks(1, count, 8).filter((v) => Number.isInteger(v)) : [1];
  return [scale, (ticks[0] === 1 ? ticks : [1, ...ticks]).map((v) => [v, whole(v)])];
}

// Curves that coincide hide each other: the runs take turns in marking the steps.
function lossPlot(width, runs) {
  const height = 300;
  const curves = runs.map((run) => finite(run.losses));
  const values = curves.flat().map(([, v]) => v);
  const box = frame(width, height, { left: 56, right: 12, top: 28, bottom: 46 });
  const [x, ticks] = stepAxis(box, Math.max(...curves.map((c) => c.length)));
  const [low, high] = padded(values);
  const y = linear(low, high, box.bottom, box.top);
  const yTicks = niceTicks(low, high, 5).map((v) => [v, String(Number(v.toPrecision(4)))]);
  const at = curves.map((curve) => curve.map(([n, v]) => [x(n), y(v)]));
  return { width, height, content: [axisX(box, x, ticks, "step"), axisY(box, y, yTicks, "loss"),
    runs.map((run, i) => path(at[i], { class: `${family(run)} stroke`, "stroke-width": 1.5 })),
    runs.map((run, i) => lossMarks(run, i, at[i], runs))] };
}

function lossMarks(run, i, points, runs) {
  const count = runs.length;
  const turn = points.length >= 2 * count;
  const nested = turn ? null : 3 + 2 * (count - 1 - i);
  const every = Math.ceil(points.length / (12 * count));
  return points.filter((_, step) => !turn || step % (every * count) === every * i).map(([x, y]) => runMark(run, runs, x, y, nested));
}

// The second run of a mechanism has open marks, the third smaller ones, and so on.
function runLook(run, runs) {
  const nth = runs.filter((other) => family(other) === family(run)).indexOf(run);
  return [5.5 - 1.5 * Math.floor(nth / 2) % 4, nth % 2 ? "open" : "fill"];
}

function runMark(run, runs, x, y, nested = null) {
  const [size, look] = runLook(run, runs);
  return mark(family(run), x, y, nested ?? size, nested ? "open" : look);
}

const runKey = (run, runs) => keyBox(20, runMark(run, runs, 10, 9));

function lossFigure(data) {
  const runs = data.runs.filter((run) => finite(run.losses).length);
  if (!runs.length) return absent("Losses");
  const figure = new Figure("loss-plot", "Loss of every run", (width) => lossPlot(width, runs));
  const words = runs.map((run) => `${runName(run)} ends with ${known(run.final_loss, (v) => v.toPrecision(6))}`);
  figure.say({
    desc: `Loss over steps, one curve per run. ${words.join("; ")}. Largest relative difference: ${small(data.largest_loss_difference)}.`,
    caption: data.losses_agree
      ? `The curves lie on each other: all marks are on one line. The runs take turns in marking it, so that each can be seen. The largest difference is ${small(data.largest_loss_difference)} of the value.`
      : `The curves should lie on each other. They do not: the largest difference is ${small(data.largest_loss_difference)} of the value.`,
    legend: runs.map((run) => [runKey(run, runs), runName(run)]),
  });
  return figure.node;
}

const away = (run, first) => finite(run.losses)
  .filter(([n]) => isNumber(first.losses[n - 1]))
  .map(([n, v]) => [n, Math.abs(v - first.losses[n - 1]) / (Math.abs(first.losses[n - 1]) || 1)]);

function differencePlot(width, runs, curves, tolerance) {
  const height = 300;
  const seen = curves.flatMap((c) => c.points.map(([, v]) => v)).filter((v) => v > 0);
  const least = seen.length ? Math.min(...seen) : 1e-9;
  const [low, high] = padded([least / 3, ...seen, tolerance].filter((v) => v > 0), { log: true });
  const box = frame(width, height, { left: 62, right: 12, top: 28, bottom: 46 });
  const [x, ticks] = stepAxis(box, Math.max(...curves.map((c) => c.points.length)));
  const y = logarithmic(low, high, box.bottom, box.top);
  const limit = isNumber(tolerance) ? [
    line(box.left, y(tolerance), box.right, y(tolerance), { class: "axis", "stroke-dasharray": "6 3", "stroke-width": 1.6 }),
    text(box.right - 4, y(tolerance) + 16, `allowed: ${small(tolerance)}`, { "text-anchor": "end", class: "small halo" })] : [];
  const marks = curves.map(({ run, points }) => differenceMarks(run, runs, points.map(([n, v]) => [x(n), y(Math.max(v, low))])));
  return { width, height, content: [axisX(box, x, ticks, "step"),
    axisY(box, y, [[low, "0"], ...logTicks(low * 2, high).map((v) => [v, tickSmall(v)])], "difference / loss"), limit, marks] };
}

const differenceMarks = (run, runs, points) => svg("g", { class: family(run) },
  path(points, { class: "stroke", "stroke-width": 1, opacity: 0.6 }),
  points.filter((_, step) => step % Math.ceil(points.length / 60) === 0).map(([px, py]) => runMark(run, runs, px, py)));

function differenceFigure(data) {
  const runs = data.runs.filter((run) => finite(run.losses).length);
  const [first, ...rest] = runs;
  if (!rest.length) return null;
  const curves = rest.map((run) => ({ run, points: away(run, first) })).filter((c) => c.points.length);
  if (!curves.length) return null;
  const figure = new Figure("difference-plot", `Distance from "${runName(first)}"`,
    (width) => differencePlot(width, runs, curves, data.loss_tolerance));
  const words = curves.map(({ run, points }) => `${runName(run)} at most ${small(Math.max(...points.map(([, v]) => v)))}`);
  figure.say({
    desc: `Relative difference of each run's loss from that of ${runName(first)}, over steps, logarithmic. ${words.join("; ")}.`,
    caption: `${data.losses_agree ? "They differ in the last digits only, because sums of floats depend on the order of their terms. " : ""}A difference of exactly 0 is drawn at the bottom.`,
    legend: curves.map(({ run }) => [runKey(run, runs), runName(run)]),
  });
  return figure.node;
}
