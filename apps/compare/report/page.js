// SPDX-License-Identifier: Apache-2.0
// The page from top to bottom.
function verdict(data) {
  const agree = data.losses_agree;
  const count = data.runs.length;
  const which = count === 1 ? "The run" : `All ${count} runs`;
  const claim = agree === true ? el("strong", {}, count === 1 ? "✓ One run: nothing to compare its losses with." : `✓ ${which} end with the same losses.`)
    : agree === false ? el("strong", {}, "✗ The losses do not agree. Do not trust the times below before you know why.")
      : el("strong", {}, `Whether the losses agree: ${NOT_MEASURED}.`);
  return el("section", { id: "verdict" },
    el("h1", {}, headline(data)),
    el("p", { class: "verdict" }, firstSentence(unbroken(data.verdict ?? `Verdict: ${NOT_MEASURED}.`))),
    el("p", { class: agree === true ? "badge" : "badge bad", id: "agreement" }, claim,
      ` Largest relative difference: ${small(data.largest_loss_difference)}; allowed: ${small(data.loss_tolerance)}.`),
    el("p", {}, "The same model was trained on the same data from the same start, in several ways: in one process, with one thread and with all cores; with DataParallel (DP), which is one process that spreads each batch over several devices; and with DistributedDataParallel (DDP), which is one process per share of the batch."),
    words(data));
}

// The first sentence stands out, the reasons follow.
function firstSentence(words) {
  const end = words.search(/(?<=[.!?]) (?=[A-Z])/);
  return end < 0 ? words : [words.slice(0, end), el("span", { class: "reasons" }, words.slice(end))];
}

function headline(data) {
  const worlds = data.settings?.ranks ?? [];
  return ["paceline compare", data.model?.name && `${data.model.name} on ${data.data?.name}`, worlds.length && unbroken(`N = ${worlds.join(", ")}`)]
    .filter(Boolean).join(" · ");
}

function words(data) {
  const m = data.model?.trainable_bytes;
  const entries = [
    ["rank, device", "one of the N that share the work: a process in DDP, a device in DP"],
    ["N", "how many there are; also called world size"],
    ["M", `bytes of the trainable parameters, and so of their gradients: ${isNumber(m) ? `${bytes(m)} here (${whole(m)} bytes)` : NOT_MEASURED}`],
    ["bucket", "gradients that travel together, as soon as the last of them is ready"],
    ["all-reduce", "what is done with a bucket: every rank gives its values and gets the sum over all ranks"],
    ["chunk", "a bucket is cut into N of them, one for each rank"],
    ["MB", "1,000,000 bytes, as kB is 1,000 and GB 1,000,000,000"]];
  return el("dl", { class: "words" }, entries.flatMap(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)]));
}

function fourDimensions(data) {
  const groups = data.table ?? [];
  if (!groups.length) return [absent("The table")];
  const cell = (label, value) => el("td", { "data-label": label }, el("span", {}, perN(value || NOT_MEASURED)));
  return [el("table", { class: "four" },
    el("thead", {}, el("tr", {}, ["", "DP", "DDP"].map((head) => el("th", { scope: "col" }, head)))),
    groups.map((group) => el("tbody", {},
      el("tr", {}, el("th", { class: "dimension", colspan: 3, scope: "rowgroup" }, capital(group.dimension))),
      (group.rows ?? []).map((row) => el("tr", { class: "card" },
        el("th", { class: "what", scope: "row" }, row.what), cell("DP", row.dp), cell("DDP", row.ddp))))))];
}

// "N=2: 9.60 MB; N=4: 28.8 MB" reads better with a line for each N.
function perN(words) {
  return String(words).split(/(?:;|(?<=\.)) (?=N ?= ?\d)/).flatMap((part, i) => (i ? [el("br"), unbroken(part)] : [unbroken(part)]));
}

const capital = (words) => String(words).charAt(0).toUpperCase() + String(words).slice(1);

function howMeasured(data) {
  const { machine = {}, model = {}, settings = {}, data: samples = {} } = data;
  const entries = [
    ["command", el("code", {}, data.command ?? NOT_MEASURED)],
    ["made", `${data.made ?? NOT_MEASURED}, by paceline ${data.paceline ?? ""}`],
    ["machine", `${machine.cpu ?? "unknown CPU"}, ${known(machine.cores, (v) => plural(v, "core"))}, memory ${bytes(machine.memory_bytes)}, ${machine.system ?? "unknown system"}, LibTorch ${machine.libtorch ?? NOT_MEASURED}`],
    ["model", `${model.name ?? NOT_MEASURED}: ${model.description ?? ""}; ${whole(model.parameters)} parameters in ${whole(model.tensors)} tensors, M = ${whole(model.trainable_bytes)} bytes`],
    ["data", `${samples.name ?? NOT_MEASURED}, ${whole(samples.samples)} ${samples.unit ?? "samples"}`],
    ["settings", `${whole(settings.steps)} steps after ${whole(settings.warm_up_steps)} to warm up, global batch of ${whole(settings.batch_size)}, all-reduce by ${settings.algorithm ?? NOT_MEASURED}, learning rate ${small(settings.learning_rate)}`],
    ["bytes", "Payload of parameters and gradients, as the ledger counted it at the links, per step. Headers, inputs and outputs are counted apart."],
    ["times", "The runs took turns, a few steps at a time, so that a busy moment of the machine does not fall on one of them alone."],
    ["hidden", "The share of the time of communication that lies within backward's computing."]];
  return [
    el("dl", {}, entries.flatMap(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)])),
    data.notes?.length ? [el("h3", {}, "Notes, and what was not measured"), el("ul", {}, data.notes.map((note) => el("li", {}, note)))] : null];
}

const SECTIONS = [
  ["dimensions", "DP and DDP on four dimensions", fourDimensions],
  ["mechanisms", "How the gradients travel", mechanisms],
  ["ring", "The ring, step by step", ringSection],
  ["traffic", "Traffic as N grows", trafficFigure],
  ["memory", "Memory of device 0 as N grows", memoryFigure],
  ["speed", "Speed on this machine", (data) => [timesFigure(data), speedFigure(data)]],
  ["losses", "The losses", (data) => [lossFigure(data), differenceFigure(data)]],
  ["timeline", "One step in time", timeline],
  ["how", "How this was measured", howMeasured],
];

const errors = [];
function report(error) {
  errors.push(String(error?.stack ?? error));
  document.documentElement.dataset.errors = errors.join("\n");
}

// A part that cannot be drawn must not take the others with it.
function part([id, heading, make], data) {
  try {
    return section(id, heading, make(data));
  } catch (error) {
    report(error);
    return section(id, heading, el("p", { class: "notice" }, `This part could not be drawn: ${error.message}.`));
  }
}

function show(data) {
  data.runs ??= [];
  document.title = `DP or DDP? ${headline(data)}`;
  const links = SECTIONS.map(([id, heading]) => el("li", {}, el("a", { href: `#${id}` }, heading)));
  document.getElementById("page").append(verdict(data), el("nav", { "aria-label": "On this page" }, el("ul", {}, links)),
    ...SECTIONS.map((entry) => part(entry, data)));
}

addEventListener("error", (event) => report(event.error ?? event.message));
addEventListener("unhandledrejection", (event) => report(event.reason));
try {
  show(JSON.parse(document.getElementById("data").textContent));
} catch (error) {
  report(error);
  document.getElementById("page").append(el("p", { class: "notice" }, `The data of this page cannot be read: ${error.message}.`));
}
document.documentElement.dataset.ready = "true";
