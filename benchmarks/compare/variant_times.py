#!/usr/bin/env python3
"""Prints what fp8_sdpa_fit_costs reads: the median time of each sm90 kernel on each shape.

    variant_times.py PERF ... [--exact PERF ...]

PERF is perf_baseline.json of `./sdpa peers --variants 'sm90*' --shapes goal --drawn N --lse`, after --exact that of
a run with --exact, whose kernels are those of exact row sums. Of a kernel in several files the first counts.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re

TABLE = pathlib.Path(__file__).parents[2] / "kernels/sm90/tile_shapes.def"
ROW = re.compile(r"FP8_SDPA_SM90_TILE_SHAPE\((\w+), (\d+), (exact|rounded),")


def shape_of(row: dict) -> str:
    name = f"d{row['D']}_b{row['B']}_h{row['H']}_kv{row['H_kv']}_q{row['S']}_k{row['S_kv']}"
    return name + ("_causal" if row["mask"] == "causal" else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("perf", nargs="*", type=pathlib.Path)
    parser.add_argument("--exact", nargs="*", default=[], type=pathlib.Path)
    options = parser.parse_args()

    kernels = {f"{variant}_d{dim}_{sums}" for variant, dim, sums in ROW.findall(TABLE.read_text())}
    times: dict[tuple[str, str], float] = {}
    for paths, preferred in ((options.perf, "rounded"), (options.exact, "exact")):
        for path in paths:
            for row in json.loads(path.read_text())["results"]:
                stem = f"{row['variant']}_d{row['D']}_"
                kernel = stem + preferred if stem + preferred in kernels else stem + "exact"
                if kernel in kernels:
                    times.setdefault((shape_of(row), kernel), row["p50_us"])
    print("shape,kernel,us")
    for (shape, kernel), us in sorted(times.items()):
        print(f"{shape},{kernel},{us:.3f}")


if __name__ == "__main__":
    main()
