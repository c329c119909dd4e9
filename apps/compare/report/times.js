// SPDX-License-Identifier: Apache-2.0
// Step times and speed-ups: one row per run.
const ROW = 46;

function rows(width, runs, { ticks, scale, name, right }) {
  const narrow = width < 620;
  const box = { left: narrow ? 8 : 150, right: width - right, top: 8, bottom: 8 + runs.length * ROW };
  const at = scale(box.left, box.right);
  const label = (run, i) => narrow
    ? text(box.left, box.top + i * ROW + 13, runName(run), { class: "small halo" })
    : text(0, box.top + (i + 0.5) * ROW + 4, runName(run));
  const middle = (i) => box.top + (i + (narrow ? 0.68 : 0.5)) * ROW;
  return { box, at, middle, height: box.bottom + 44, labels: runs.map(label),
    content: axisX(box, at, ticks.map((v) => [v, String(Number(v.toPrecision(6)))]), name) };
}

function timesPlot(width, runs) {
  const timed = runs.filter((run) => isNumber(run.step_ms?.median));
  const high = Math.max(...timed.map((run) => run.step_ms.p90 ?? run.step_ms.median), 1e-6) * 1.12;
  const plot = rows(width, runs, { ticks: niceTicks(0, high, width < 560 ? 4 : 8), right: 84, name: "milliseconds per step",
    scale: (from, to) => linear(0, high, from, to) });
  return { width, height: plot.height, content: [plot.content, plot.labels, runs.map((run, i) => timeRow(run, plot, plot.middle(i), high))] };
}

function timeRow(run, { box, at }, y, high) {
  const { median, p10, p90 } = run.step_ms ?? {};
  if (!isNumber(median)) return text(box.left + 4, y + 4, NOT_MEASURED, { class: "small soft" });
  const steps = (run.step_times_ms ?? []).filter((ms) => isNumber(ms) && ms <= high);
  const bar = isNumber(p10) && isNumber(p90)
    ? [line(at(p10), y, at(p90), y, { class: "stroke", "stroke-width": 3 }),
       [p10, p90].map((ms) => line(at(ms), y - 7, at(ms), y + 7, { class: "stroke", "stroke-width": 2 }))] : [];
  return svg("g", { class: family(run) },
    steps.map((ms) => line(at(ms), y + 10, at(ms), y + 15, { class: "stroke", "stroke-width": 1, opacity: 0.7 })),
    ...[bar].flat(2), mark(family(run), at(median), y, 6, "fill"),
    text(box.right + 8, y + 4, milliseconds(median), { class: "strong" }));
}

function timesFigure(data) {
  if (!data.runs.some((run) => isNumber(run.step_ms?.median))) return [absent("The time of a step")];
  const figure = new Figure("times-plot", "Time of a step", (width) => timesPlot(width, data.runs));
  const words = data.runs.map((run) => isNumber(run.step_ms?.median)
    ? `${runName(run)}: ${milliseconds(run.step_ms.median)} (${milliseconds(run.step_ms.p10)} to ${milliseconds(run.step_ms.p90)})`
    : `${runName(run)}: ${NOT_MEASURED}`);
  const fastest = data.runs.filter((run) => isNumber(run.step_ms?.median)).sort((a, b) => a.step_ms.median - b.step_ms.median)[0];
  figure.say({
    desc: `Median time of a step and the span from the 10th to the 90th percentile. ${words.join("; ")}.`,
    caption: `Mark: median. Bar: from the 10th to the 90th percentile. Ticks below: single steps. Shorter is better${fastest ? `; the fastest here is ${runName(fastest)}` : ""}. Bars that overlap mean that the difference may be noise.`,
  });
  return [figure.node, numbers("The same as numbers",
    ["run", "median", "p10", "p90", `${data.data?.unit ?? "samples"} per second`, "processes", "threads"],
    data.runs.map((run) => [runName(run), milliseconds(run.step_ms?.median), milliseconds(run.step_ms?.p10),
      milliseconds(run.step_ms?.p90), whole(run.samples_per_s), whole(run.processes), whole(run.threads)]),
    { numeric: [1, 2, 3, 4, 5, 6] })];
}

const ideal = (run) => (family(run) === "single" ? null : run.ranks);

function speedPlot(width, runs) {
  const high = Math.max(1, ...runs.map((run) => Math.max(run.speed_up ?? 0, ideal(run) ?? 0))) * 1.05;
  const plot = rows(width, runs, { ticks: niceTicks(0, high, width < 560 ? 4 : 8), right: 84, name: "times as fast as one thread",
    scale: (from, to) => linear(0, high, from, to) });
  const one = line(plot.at(1), plot.box.top, plot.at(1), plot.box.bottom, { class: "axis", "stroke-dasharray": "4 3" });
  return { width, height: plot.height, content: [plot.content, one, plot.labels, runs.map((run, i) => speedRow(run, plot, plot.middle(i)))] };
}

function speedRow(run, { box, at }, y) {
  if (!isNumber(run.speed_up)) return text(box.left + 4, y + 4, NOT_MEASURED, { class: "small soft" });
  const goal = ideal(run);
  return svg("g", { class: family(run) },
    rect(at(0), y - 8, at(run.speed_up) - at(0), 16, { class: "fill" }),
    goal ? line(at(goal), y - 12, at(goal), y + 12, { class: "axis", "stroke-width": 4 }) : null,
    text(box.right + 8, y + 4, ratio(run.speed_up), { class: "strong" }));
}

function speedFigure(data) {
  if (!data.runs.some((run) => isNumber(run.speed_up))) return [absent("Speed-up")];
  const figure = new Figure("speed-plot", "Speed-up", (width) => speedPlot(width, data.runs));
  const words = data.runs.map((run) => `${runName(run)}: ${ratio(run.speed_up)}${ideal(run) ? `, ${percent(run.efficiency)} of ideal` : ""}`);
  const cores = data.machine?.cores;
  figure.say({
    desc: `Throughput over that of one thread. ${words.join("; ")}.`,
    caption: `Bar: samples per second over those of one process with one thread. Thick tick: N, the ideal.${isNumber(cores) ? ` This machine has ${plural(cores, "core")}: do not expect more than ${whole(cores)} here.` : ""}`,
  });
  return [figure.node, numbers("The same as numbers", ["run", "speed-up", "efficiency", "communication", "of it behind backward"],
    data.runs.map((run) => [runName(run), ratio(run.speed_up), percent(run.efficiency), communicationText(run), overlapText(run)]),
    { numeric: [1, 2, 3, 4] })];
}

const communicationText = (run) => (run.bytes?.busiest > 0 ? milliseconds(run.communication_ms) : "none");
const overlapText = (run) => (run.overlap === null && !(run.bytes?.busiest > 0) ? "nothing to hide" : percent(run.overlap));
