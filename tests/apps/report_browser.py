#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens reports of `paceline compare` in a headless Chromium and looks for what is wrong with them.

    report_browser.py REPORT_PAGE SAMPLE   the program that makes a page of a JSON file, and such a file
"""
import json
import os
import subprocess
import sys
import tempfile

from browser import Browser, BrowserError
from report_variants import variants

WIDTHS = [400, 1280]
SCHEMES = ["light", "dark"]
BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 21, 26)"}
FIGURES = {"dp-figure", "ddp-figure", "travel-figure", "held-figure", "traffic-plot", "memory-plot",
           "times-plot", "speed-plot", "loss-plot", "difference-plot", "timeline-figure"}

# A figure that is hidden because its run is missing is not looked at.
FIGURE_STATE = """
[...document.querySelectorAll("figure")].filter(f => !f.hidden).map(f => {
  const svg = f.querySelector("svg[role=img]");
  const own = tag => svg?.querySelector(`:scope > ${tag}`)?.textContent.trim() ?? "";
  const named = name => document.getElementById(svg?.getAttribute(name))?.textContent.trim() ?? "";
  return {id: f.id, title: own("title"), desc: own("desc"), caption: f.querySelector("figcaption")?.textContent ?? "",
          label: named("aria-labelledby"), described: named("aria-describedby"),
          drawn: svg?.querySelectorAll("path, rect, circle, line, polygon").length ?? 0,
          height: svg?.getBoundingClientRect().height ?? 0, text: svg?.textContent ?? ""};
})"""
OVERFLOW = "[innerWidth, document.documentElement.scrollWidth]"
# Texts of a figure that stick out of it, to any side.
CLIPPED = """
[...document.querySelectorAll("figure:not([hidden]) svg[role=img]")].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(t => {
    const r = t.getBoundingClientRect();
    return r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1;
  }).map(t => `${svg.closest("figure").id}: ${t.textContent}`);
})"""

failures = []


def check(good, where, what):
    if not good:
        failures.append(f"{where}: {what}")


def check_page(browser, where, width):
    errors = browser.messages + [browser.evaluate("document.documentElement.dataset.errors ?? ''")]
    check(not any(errors), where, f"script errors: {errors}")
    check(browser.evaluate("document.documentElement.dataset.ready") == "true", where, "the script did not end")
    outside = [url for url in browser.requests if not url.startswith("file:")]
    check(not outside and len(browser.requests) == 1, where, f"it asked for {browser.requests}")
    inner, scroll = browser.evaluate(OVERFLOW)
    check(inner == width, where, f"the window is {inner} px wide, not {width}")
    check(scroll <= inner, where, f"it is {scroll} px wide in a window of {inner} px")
    clipped = browser.evaluate(CLIPPED)
    check(not clipped, where, f"texts stick out of their figures: {clipped[:6]}")
    bad = browser.evaluate("document.body.innerText.match(/undefined|NaN|Infinity|\\[object/g)")
    check(not bad, where, f"the text contains {bad}")


def check_figures(browser, where, expected):
    figures = {f["id"]: f for f in browser.evaluate(FIGURE_STATE)}
    check(set(figures) == expected, where, f"figures {sorted(figures)} instead of {sorted(expected)}")
    for name, f in figures.items():
        check(f["title"] and f["title"] == f["label"], f"{where} {name}", "no title")
        check(len(f["desc"]) > 30 and f["desc"] == f["described"], f"{where} {name}", "no text alternative")
        check(len(f["caption"]) > 30, f"{where} {name}", "no caption")
        check(f["drawn"] > 0 and f["height"] > 30, f"{where} {name}", "nothing is drawn")
        bad = [w for w in ["undefined", "NaN", "Infinity"] if w in f["desc"] + f["text"] + f["title"]]
        check(not bad, f"{where} {name}", f"its text contains {bad}")


def step_state(browser):
    return browser.evaluate("""({k: Number(document.querySelector("[data-step]").dataset.step),
        words: document.getElementById("ring-state").textContent, held: document.getElementById("held-figure-desc").textContent,
        rows: [...document.querySelectorAll("#ring tbody tr")].map(row => row.textContent)})""")


def check_stepper(browser, where, ring):
    """Walks through all steps with the button, back with the key, and compares with the schedule."""
    total = 2 * (ring["ranks"] - 1)
    check(step_state(browser)["k"] == 0, where, "the stepper does not begin at 0")
    for k in range(1, total + 1):
        browser.evaluate("document.getElementById('ring-next').click()")
        state = step_state(browser)
        check(state["k"] == k and f"Step {k} of {total}" in state["words"], where, f"step {k}: {state['words']}")
        check(len(state["rows"]) == len(ring["steps"][k - 1]["sends"]), where, f"step {k} lists {state['rows']}")
        for send, row in zip(ring["steps"][k - 1]["sends"], state["rows"]):
            expected = f"{send['from']} → {send['to']}{send['chunk']}{send['begin']:,} to {send['end'] - 1:,}{send['bytes']:,}"
            check(row == expected, where, f"step {k}: {row} instead of {expected}")
    check_all_summed(state, where, ring)
    browser.evaluate("document.getElementById('ring-next').click()")
    check(step_state(browser)["k"] == total, where, "the stepper goes beyond the last step")
    check_keys(browser, where, total)


def check_all_summed(state, where, ring):
    row = ", ".join(f"chunk {c} all" for c in range(len(ring["chunks"])))
    for rank in range(ring["ranks"]):
        check(f"rank {rank}: {row}" in state["held"], where, f"at the end rank {rank} does not hold all: {state['held']}")


def check_keys(browser, where, total):
    browser.evaluate("document.getElementById('ring-back').focus()")
    for key, expected in [("ArrowLeft", total - 1), ("ArrowRight", total), ("Home", 0), ("ArrowLeft", 0), ("End", total)]:
        browser.key(key)
        k = step_state(browser)["k"]
        check(k == expected, where, f"key {key} leads to step {k} instead of {expected}")
    browser.evaluate("document.getElementById('ring-first').click()")
    check(step_state(browser)["k"] == 0, where, "First does not lead to the start")
    browser.evaluate("document.getElementById('ring-play').click()")
    check(step_state(browser)["k"] == 1, where, "Play does not begin with the next step")
    browser.evaluate("document.getElementById('ring-play').click()")
    check(browser.evaluate("document.getElementById('ring-play').textContent") == "Play", where, "Play does not pause")


def check_choosers(browser, where, expected):
    """Every run in every chooser draws without an error."""
    for name in ["mechanism-n", "timeline-run"]:
        for i in range(browser.evaluate(f"document.querySelectorAll('[name={name}]').length")):
            browser.evaluate(f"document.querySelectorAll('[name={name}]')[{i}].click()")
            check_figures(browser, f"{where} {name} {i}", expected)
    check(not browser.messages, where, f"choosing a run: {browser.messages}")


def check_print(browser, where):
    browser.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    check(colour == BACKGROUNDS["light"], where, f"printed on {colour}")
    shown = browser.evaluate("[...document.querySelectorAll('button')].filter(b => b.offsetParent).length")
    check(shown == 0, where, f"{shown} buttons are printed")


def write_page(report_page, folder, name, data):
    source = os.path.join(folder, name.replace(" ", "_") + ".json")
    with open(source, "w", encoding="utf-8") as f:
        json.dump(data, f)
    page = source.replace(".json", ".html")
    subprocess.run([report_page, source, page], check=True)
    return page


def check_sample(browser, page, sample):
    for width in WIDTHS:
        for scheme in SCHEMES:
            where = f"sample, {width} px, {scheme}"
            browser.open(page, width, scheme)
            check_page(browser, where, width)
            check_figures(browser, where, FIGURES)
            colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            check(colour == BACKGROUNDS[scheme], where, f"the page is {colour}")
    browser.open(page, 400)
    check(browser.evaluate("document.querySelector('.verdict').textContent.replaceAll('\\u00a0', ' ')") == sample["verdict"], "sample", "no verdict")
    check_stepper(browser, "stepper", sample["ring"])
    check_choosers(browser, "choosers", FIGURES)
    check_print(browser, "print")


def check_variants(browser, report_page, folder, sample):
    for name, data, missing in variants(sample):
        page = write_page(report_page, folder, name, data)
        for width in WIDTHS:
            browser.open(page, width)
            check_page(browser, f"{name}, {width} px", width)
            check_figures(browser, f"{name}, {width} px", FIGURES - missing)
        if name == "hostile texts":
            check(browser.evaluate("document.querySelector('.verdict').textContent") == data["verdict"], name, "the text is changed")
        if name == "8 ranks":
            check_stepper(browser, name, data["ring"])


# What is put before </main>, and a word of what has to be found then.
PLANTED = [("<div style='width: 1500px'>wide</div>", "px wide"), ("<img src='other.png'>", "it asked for"),
           ("<script>throw new Error('planted')</script>", "script errors"), ("<p>NaN ms</p>", "the text contains"),
           ("<figure id='bare'><svg role='img'></svg><figcaption></figcaption></figure>", "instead of"),
           ("<style>desc { display: none } svg text { font-size: 40px !important }</style>", "stick out")]


def check_planted(browser, page):
    """A check that finds nothing wrong with a page that is wrong is no check."""
    with open(page, encoding="utf-8") as f:
        text = f.read()
    for planted, words in PLANTED:
        with open(page, "w", encoding="utf-8") as f:
            f.write(text.replace("</main>", planted + "</main>"))
        before = len(failures)
        browser.open(page, 400)
        check_page(browser, "planted", 400)
        check_figures(browser, "planted", FIGURES)
        found = failures[before:]
        del failures[before:]
        check(any(words in failure for failure in found), "planted", f"{planted} was not noticed: {found}")


def main():
    report_page, sample_file = sys.argv[1:]
    with open(sample_file, encoding="utf-8") as f:
        sample = json.load(f)
    with tempfile.TemporaryDirectory(prefix="paceline_report_") as folder, Browser() as browser:
        check_sample(browser, write_page(report_page, folder, "sample", sample), sample)
        check_variants(browser, report_page, folder, sample)
        check_planted(browser, write_page(report_page, folder, "planted", sample))
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"report_browser: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrowserError as error:
        sys.exit(f"report_browser: {error}")
