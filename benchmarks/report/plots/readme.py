#!/usr/bin/env python3
"""Draws README.md's figure and prints its table, both of one run: readme.py FOLDER.

FOLDER has lse.md and no_lse.md, tables of `./sdpa peers --shapes goal` with and without `--lse`;
tflops_d128.svg is written there. Drawing needs matplotlib.
"""

from __future__ import annotations

import argparse
import pathlib
import re

SHAPE = re.compile(r"d(\d+)_(\d+)k(_causal)?")
TOKENS = 16384  # batch x length of every goal shape from 8k on, and of the two of head_dim 128 below
PEER = "peer/flash3_fp8"


def times(path: pathlib.Path, peer: str) -> dict[str, tuple[float, float]]:
    """Microseconds by shape, ours and the peer's, of the section of the goal shapes beside that peer."""
    section = path.read_text(encoding="utf-8").split(f"## Goal shapes, {peer}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|", section, re.MULTILINE)
    return {shape: (float(ours), float(theirs)) for shape, ours, theirs in rows}


def tflops(shape: str, us: float) -> float:
    head_dim, length, causal = SHAPE.fullmatch(shape).groups()
    heads = 8 if head_dim == "256" else 16
    flop = 4.0 * heads * TOKENS * int(length) * 1024 * int(head_dim)
    return flop / (2 if causal else 1) / us / 1e6


def table(beside: list[dict]) -> str:
    """A row for each head_dim. Of a peer whose output fails the gates there is no time."""

    def ratio(run: dict, name: str) -> str:
        return f"{run[name][1] / run[name][0]:.2f}" if name in run else "-"

    lines = []
    for head_dim in (64, 128, 256):
        names = (f"d{head_dim}_16k", f"d{head_dim}_16k_causal")
        cells = [" / ".join(f"{tflops(name, beside[0][name][0]):.0f}" for name in names)]
        cells += [" / ".join(ratio(run, name) for name in names) for run in beside]
        lines.append(f"| {head_dim} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(lse: dict) -> dict:
    """What plots.py draws: ours and FlashAttention-3 over length, both with an LSE."""
    panels = []
    for title, mask in (("no mask", ""), ("causal mask", "_causal")):
        names = [f"d128_{length}k{mask}" for length in (2, 8, 16)]
        series = [{"name": who, "points": [[1024 * int(SHAPE.fullmatch(name)[2]), tflops(name, lse[name][column]), True]
                                           for name in names]} for column, who in enumerate(("ours", PEER))]
        panels.append({"title": title, "series": series})
    return {"kind": "tflops", "file": "tflops_d128.svg", "panels": panels, "ceiling": None, "values": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path)
    folder = parser.parse_args().folder
    lse = times(folder / "lse.md", PEER)
    print(table([lse, *(times(folder / "no_lse.md", f"peer/cudnn_{kind}") for kind in ("fp8", "bf16"))]))
    import plots  # ends the process where matplotlib is not installed

    plots.style()
    plots.write(figure(lse), folder)


if __name__ == "__main__":
    main()
