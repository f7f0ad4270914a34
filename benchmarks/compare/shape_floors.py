#!/usr/bin/env python3
"""Writes results/h200/shapes/floors.json: FlashAttention-3's times over ours, LSE on both sides.

    shape_floors.py --out FILE --gpu NAME --command TEXT --lse FILE --no-lse FILE

--lse is perf_baseline.json of `./sdpa peers --shapes goal --drawn 60 --draw-seed N --lse`, --no-lse
that of `./sdpa peers --shapes goal`, on one machine. A shape's time is the median of its launches; of
FlashAttention-3's two modes the faster one counts. What an LSE costs is our time with it over that
without; of launches of 100 us and more, which the chip's clock follows, that of the two ratios to
FlashAttention-3, which writes an LSE in both runs.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import statistics

from house_floors import floor, write_floors

PEER = "peer/flash3_fp8"
CHUNK = re.compile(r"chunk_32k(_causal)?")
GOAL = re.compile(rf"(small|mission|batch2|long|d\d+_\d+k)(_causal)?|{CHUNK.pattern}")
FOLLOWS_CLOCK_US = 100
TFLOPS = {"d64_16k": (864, 930), "d128_16k": (1122, 1200), "d256_4k_causal": (1070, 1150)}


def times(path: pathlib.Path) -> tuple[dict[str, dict], dict[str, float]]:
    """Our record of each shape, and the peer's time."""
    ours: dict[str, dict] = {}
    peer: dict[str, float] = {}
    for row in json.loads(path.read_text())["results"]:
        shape = row["shape"]
        if row["variant"].startswith(PEER):
            peer[shape] = min(row["p50_us"], peer.get(shape, row["p50_us"]))
        elif not row["variant"].startswith("peer/"):
            ours[shape] = row
    return ours, peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gpu", "command"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("out", "lse", "no-lse"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    options = parser.parse_args()

    ours, peer = times(options.lse)
    without, peer_without = times(options.no_lse)
    ratios = {shape: peer[shape] / row["p50_us"] for shape, row in ours.items() if shape in peer}
    price = {}
    for shape in filter(GOAL.fullmatch, ratios):
        with_lse, no_lse = ours[shape]["p50_us"], without[shape]["p50_us"]
        clock = peer[shape] / peer_without[shape] if with_lse >= FOLLOWS_CLOCK_US else 1.0
        price[shape] = 100 * (with_lse / no_lse / clock - 1)
    goals = {shape: ratio for shape, ratio in ratios.items() if GOAL.fullmatch(shape)}
    drawn = sorted(ratio for shape, ratio in ratios.items() if not GOAL.fullmatch(shape))
    chunk = min(ratio for shape, ratio in goals.items() if CHUNK.fullmatch(shape))
    dearest, least = max(price, key=price.get), min(goals, key=goals.get)
    floors = [
        floor(f"LSE's price, largest: {dearest}", round(price[dearest], 2), "%", 3, 1, False),
        floor(f"goal shapes, least: {least}", round(goals[least], 3), "ratio", 1.0, 1.1, True),
        floor("goal shapes, geometric mean", round(statistics.geometric_mean(goals.values()), 3), "ratio", 1.24, 1.3, True),
        floor("128 queries on 32k keys, 32 / 8 heads", round(chunk, 3), "ratio", 1.1, 1.25, True),
        floor("drawn shapes, least", round(drawn[0], 3), "ratio", 0.97, 1.05, True),
        floor("drawn shapes, least but three", round(drawn[3], 3), "ratio", 1.0, 1.05, True),
        floor("drawn shapes, geometric mean", round(statistics.geometric_mean(drawn), 3), "ratio", 1.15, 1.15, True),
    ]
    for shape, (least_tflops, aim) in TFLOPS.items():
        floors.append(floor(shape, round(ours[shape]["tflops"]), "TFLOP/s", least_tflops, aim, True))
    write_floors(options.out, {"gpu": options.gpu, "command": options.command, "floors": floors})


if __name__ == "__main__":
    main()
