// SPDX-License-Identifier: Apache-2.0
// One step of one run in time: a lane per rank or device, below it the buckets in flight.
const LANES = 8;   // more do not fit on a page
const BAR = 20;
const KINDS = {
  forward: "forward", backward: "backward", allreduce: "bucket in flight (all-reduce)", wait: "waiting",
  replicate: "replicate: parameters to the devices", scatter: "scatter: inputs to the devices",
  gather: "gather: outputs to device 0", reduce: "reduce: gradients to device 0", step: "optimizer step",
};
const HATCHED = new Set(["scatter", "reduce", "wait"]);
const kindClass = (kind) => (kind in KINDS ? kind : "other");

// Spans of a row do not overlap; buckets never share a row with computing.
function packed(spans) {
  const sorted = [...spans].sort((a, b) => a.begin_us - b.begin_us);
  const rowsOf = (some) => some.reduce((all, span) => {
    const row = all.find((r) => r[r.length - 1].end_us <= span.begin_us);
    if (row) row.push(span);
    else all.push([span]);
    return all;
  }, []);
  return [...rowsOf(sorted.filter((s) => s.kind !== "allreduce")), ...rowsOf(sorted.filter((s) => s.kind === "allreduce"))];
}

function hatch(x, y, width, kind) {
  const look = kind === "wait" ? "wait-hatch" : "hatch";
  const count = Math.min(400, Math.floor(width / 7));
  return Array.from({ length: count }, (_, i) => line(x + 7 * i, y + BAR - 1, x + 7 * (i + 1), y + 1, { class: look }));
}

// What a span is called in a list, and in the little room on its bar.
const spanName = (span) => {
  const kind = span.kind === "step" ? "optimizer step" : span.kind;
  return span.label && span.label !== span.kind ? `${kind}: ${span.label}` : kind;
};
const shortName = (span) => (span.kind === "allreduce" ? span.label.replace(/^ddp \d+ /, "") : span.label) || span.kind;

function bar(span, x, y, free) {
  const from = x(span.begin_us);
  const width = Math.max(1.5, x(span.end_us) - from);
  const note = `${spanName(span)}: ${milliseconds(span.begin_us / 1000)} to ${milliseconds(span.end_us / 1000)}${span.bytes ? `, ${bytes(span.bytes)}` : ""}`;
  const words = shortName(span);
  const room = widthOf(words, 12) + 8;
  const inside = width > room && !HATCHED.has(span.kind);
  const beside = !inside && free - from - width > room;
  const dark = ["backward", "allreduce", "gather"].includes(span.kind);
  return svg("g", { class: "span" }, svg("title", {}, note),
    rect(from, y, width, BAR, { class: kindClass(span.kind), rx: 2 }),
    ...(HATCHED.has(span.kind) ? hatch(from, y, width, span.kind) : []),
    inside ? text(from + 5, y + 14, words, { class: `small ${dark ? "inverse" : ""}` }) : null,
    beside ? text(from + width + 4, y + 14, words, { class: "small" }) : null);
}

function timelinePlot(width, run) {
  const lanes = run.timeline.lanes.slice(0, LANES);
  const end = Math.max(...lanes.flatMap((lane) => lane.spans.map((s) => s.end_us)), 1);
  const x = linear(0, end, 4, width - 8);
  let y = 6;
  const content = lanes.map((lane) => {
    const title = text(4, y + 13, lane.name, { class: "strong" });
    const bars = packed(lane.spans).map((row, i) => row.map((span, k) => bar(span, x, y + 20 + i * (BAR + 3), k + 1 < row.length ? x(row[k + 1].begin_us) : width)));
    y += 20 + Math.max(1, bars.length) * (BAR + 3) + 10;
    return [title, bars];
  });
  const ticks = niceTicks(0, end / 1000, width < 560 ? 4 : 10).map((ms) => [ms * 1000, String(Number(ms.toPrecision(6)))]);
  const box = { left: 4, right: width - 8, top: 0, bottom: y };
  return { width, height: y + 44, content: [axisX(box, x, ticks, "milliseconds since the step began"), content] };
}

const kindKey = (kind) => keyBox(26, rect(0, 1, 26, 16, { class: kindClass(kind), rx: 2 }),
  HATCHED.has(kind) ? [0, 7, 14, 21].map((x) => line(x, 16, x + 7, 2, { class: kind === "wait" ? "wait-hatch" : "hatch" })) : []);

function timelineWords(run) {
  const lanes = run.timeline.lanes;
  const hidden = Math.max(0, lanes.length - LANES);
  const what = run.mechanism === "ddp"
    ? `Buckets travel below each rank's computing while backward goes on: ${overlapText(run)} of the communication is hidden behind it. What is left over is waited for.`
    : run.mechanism === "dp"
      ? `Device 0 first hands out parameters and inputs and at the end collects the gradients. In between the devices compute at the same time. ${isNumber(run.overlap) ? `Of the time of these copies, ${percent(run.overlap)} is hidden behind backward.` : ""}`
      : "One process computes alone: nothing is sent.";
  return `Step ${run.timeline.step}, the one with the median time. ${what}${hidden ? ` ${hidden} more lanes are not drawn.` : ""}`;
}

function timelineDesc(run) {
  const lanes = run.timeline.lanes.slice(0, LANES).map((lane) => `${lane.name}: ${lane.spans.map((s) =>
    `${spanName(s)} ${milliseconds(s.begin_us / 1000)} to ${milliseconds(s.end_us / 1000)}`).join(", ")}`);
  return `${runName(run)}. ${lanes.join("; ")}.`;
}

function timelineNumbers(run) {
  return numbers("The same as numbers", ["lane", "what", "begins", "ends", "lasts", "bytes"],
    run.timeline.lanes.flatMap((lane) => lane.spans.map((s) => [lane.name, spanName(s),
      milliseconds(s.begin_us / 1000), milliseconds(s.end_us / 1000), milliseconds((s.end_us - s.begin_us) / 1000),
      s.bytes ? whole(s.bytes) : ""])), { numeric: [2, 3, 4, 5] });
}

function timeline(data) {
  const runs = data.runs.filter((run) => run.timeline?.lanes?.some((lane) => lane.spans.length));
  if (!runs.length) return [absent("The timeline of a step")];
  let run = [...runs].reverse().find((r) => r.mechanism === "ddp") ?? runs[runs.length - 1];
  const figure = new Figure("timeline-figure", "One step", (width) => timelinePlot(width, run));
  const table = el("div");
  const show = (next) => {
    run = next;
    const kinds = new Set(run.timeline.lanes.flatMap((lane) => lane.spans.map((s) => s.kind)));
    figure.say({ heading: `One step of ${runName(run)}`, desc: timelineDesc(run), caption: timelineWords(run),
      legend: [...kinds].map((kind) => [kindKey(kind), KINDS[kind] ?? kind]) });
    table.replaceChildren(timelineNumbers(run), bucketNumbers(run));
  };
  show(run);
  const chooser = choice("timeline-run", "Run", runs.map((r, i) => [i, runName(r)]), runs.indexOf(run), (i) => show(runs[i]));
  return [chooser, figure.node, table];
}

function bucketNumbers(run) {
  if (!run.buckets?.length) return "";
  return numbers("What is in the buckets", ["bucket", "bytes", "parameters"],
    run.buckets.map((b) => [b.label, whole(b.bytes), (b.parameters ?? []).join(", ")]), { numeric: [1] });
}
