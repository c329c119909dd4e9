// SPDX-License-Identifier: Apache-2.0
// Numbers as text. What is null or absent was not measured, and says so.
const NOT_MEASURED = "not measured";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const known = (value, format) => (isNumber(value) ? format(value) : NOT_MEASURED);

const whole = (value) => known(value, (v) => Math.round(v).toLocaleString("en-US"));

const digits = (value, count = 3) =>
  value.toLocaleString("en-US", { minimumSignificantDigits: count, maximumSignificantDigits: count });

// 4799528 -> "4.80 MB": decimal units, 1 MB = 1,000,000 bytes.
function bytes(value) {
  return known(value, (v) => {
    if (v < 1000) return `${Math.round(v)}${GAP}B`;
    const power = Math.min(4, Math.floor(Math.log10(v) / 3));
    return `${digits(v / 1000 ** power)}${GAP}${["B", "kB", "MB", "GB", "TB"][power]}`;
  });
}

// No line ends within a formula or between a number and its unit. GAP is a space that does not break.
const GAP = "\u00a0";
const unbroken = (words) => String(words)
  .replace(/N-1/g, "N\u2212\u20601")
  .replace(/\bN ?= ?(?=\d)/g, `N${GAP}=${GAP}`)
  .replace(/(\d) (?=(B|kB|MB|GB|TB|ms|s|µs|%|KiB|MiB|GiB)(?![\w]))/g, `$1${GAP}`);

// For axes: "10 MB", "0.5 MB", "10⁻⁴".
const tickBytes = (value) => bytes(value).replace(/\.?0+(?=\s)/, (zeros, at, all) => (all.includes(".") ? "" : zeros));
const tickSmall = (value) => small(value).replace(/^1\.0·/, "");

function milliseconds(value) {
  return known(value, (v) => {
    if (v === 0) return `0${GAP}ms`;
    if (Math.abs(v) >= 10000) return `${digits(v / 1000)}${GAP}s`;
    return Math.abs(v) < 1 ? `${digits(v * 1000, 2)}${GAP}µs` : `${digits(v)}${GAP}ms`;
  });
}

const percent = (value) => known(value, (v) => `${Math.round(100 * v)}${GAP}%`);
const ratio = (value) => known(value, (v) => v.toFixed(2));

// 0.0000075 -> "7.5·10⁻⁶".
function small(value) {
  return known(value, (v) => {
    if (v === 0) return "0";
    if (Math.abs(v) >= 0.001) return String(Number(v.toPrecision(3)));
    const [mantissa, exponent] = v.toExponential(1).split("e");
    return `${mantissa}·10${raised(Number(exponent))}`;
  });
}

const raised = (exponent) => [...String(exponent)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

function list(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

const plural = (count, word, words = `${word}s`) => `${whole(count)} ${count === 1 ? word : words}`;

const atN = (n) => `N${GAP}=${GAP}${whole(n)}`;

// Runs have one name everywhere, the one that the terminal shows too.
function runName(run) {
  const names = { single: "one thread", single_all_cores: "all cores",
    dp: `DP, ${plural(run.ranks, "device")}`, ddp: `DDP, ${plural(run.ranks, "rank")}` };
  return names[run.mechanism] ?? `${run.mechanism}, ${run.ranks}`;
}

const family = (run) => (run.mechanism === "dp" || run.mechanism === "ddp" ? run.mechanism : "single");
