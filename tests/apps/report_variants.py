# SPDX-License-Identifier: Apache-2.0
"""Reports that differ from the sample: parts missing, a single value, many participants, hostile texts."""
import copy

def variants(sample):
    """Yields name, JSON and the figures that are missing then."""
    def changed(change):
        data = copy.deepcopy(sample)
        change(data)
        return data

    def keep(data, *mechanisms):
        data["runs"] = [r for r in data["runs"] if r["mechanism"] in mechanisms]

    def only_one(data):
        data["runs"] = data["runs"][:1]
        data["losses_agree"] = True

    def short(data):
        for run in data["runs"]:
            run.update(losses=run["losses"][:1], step_times_ms=run["step_times_ms"][:1])

    def nothing(data):
        for run in data["runs"]:
            run.update(step_ms={"median": None, "p10": None, "p90": None}, samples_per_s=None, speed_up=None,
                       efficiency=None, processes=None, threads=None, overlap=None, device0_peak_bytes=None,
                       final_loss=None, losses=[], step_times_ms=[], buckets=[], timeline={"step": 0, "lanes": []})
        data.update(losses_agree=None, largest_loss_difference=None, ring=None, traffic=[], growth=[], table=[], notes=[])

    def disagree(data):
        data.update(losses_agree=False, largest_loss_difference=0.7)
        data["table"][0]["rows"][0]["dp"] = None

    yield "no dp", changed(lambda d: keep(d, "single", "ddp")), {"dp-figure"}
    yield "no ddp", changed(lambda d: keep(d, "single", "dp")), {"ddp-figure"}
    yield "one run", changed(only_one), {"dp-figure", "ddp-figure", "difference-plot"}
    yield "one loss", changed(short), set()
    yield "nothing measured", changed(nothing), {"travel-figure", "held-figure", "traffic-plot", "memory-plot", "times-plot", "speed-plot",
                                                  "loss-plot", "difference-plot", "timeline-figure"}
    yield "losses differ", changed(disagree), set()
    yield "64 ranks", changed(lambda d: many(d, 64)), set()
    yield "8 ranks", changed(lambda d: many(d, 8)), set()
    yield "hostile texts", changed(hostile), set()


def many(data, world):
    """Stretches the runs of 4 to `world` participants and the ring with them."""
    m = data["model"]["trainable_bytes"]
    for run in [r for r in data["runs"] if r["ranks"] == 4]:
        run["ranks"] = world
        star = run["mechanism"] == "dp"
        each = 2 * m * (world - 1) // world
        pairs = [p for i in range(1, world) for p in ((0, i), (i, 0))] if star else [(i, (i + 1) % world) for i in range(world)]
        run["bytes"]["links"] = [{"from": a, "to": b, "bytes": m if star else each} for a, b in pairs]
        run["bytes"]["by_participant"] = [
            {"name": f"{'device' if star else 'rank'} {i}", "sent": (m * (world - 1 if i == 0 else 1)) if star else each,
             "received": (m * (world - 1 if i == 0 else 1)) if star else each} for i in range(world)]
        run["timeline"]["lanes"] = [dict(run["timeline"]["lanes"][i % 4], name=f"rank {i}") for i in range(world)]
    count = data["ring"]["count"]
    cut = [(count * c // world, count * (c + 1) // world) for c in range(world)]

    def send(r, c):
        begin, end = cut[c]
        return {"from": r, "to": (r + 1) % world, "chunk": c, "begin": begin, "end": end, "bytes": 4 * (end - begin)}

    data["ring"].update(ranks=world, chunks=[{"begin": b, "end": e} for b, e in cut], steps=[
        {"phase": phase, "sends": [send(r, (r - shift - i) % world) for r in range(world)]}
        for phase, shift in [("reduce_scatter", 1), ("all_gather", 0)] for i in range(world - 1)])


def hostile(data):
    text = "</script><script>throw 1</script><!--<script><b>&amp;"
    data["verdict"] = text
    data["notes"] = [text]
    data["command"] = "paceline compare --text " + "a" * 300
