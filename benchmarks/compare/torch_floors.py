#!/usr/bin/env python3
"""Writes results/h200/torch: floors.json and a table of times beside PyTorch's backends, beside_torch.md.

    torch_floors.py --out FOLDER --command TEXT --rows FILE

--rows is what torch_wheel.py printed.
"""

from __future__ import annotations

import argparse
import json
import pathlib

from house_floors import floor, write_floors

OURS = "fp8_sdpa"


def best_of_torch(row: dict) -> float:
    return min(us for name, us in row["us"].items() if name != OURS)


def ratio(row: dict) -> float:
    return round(best_of_torch(row) / row["us"][OURS], 3)


def title(row: dict) -> str:
    return " x ".join(map(str, row["shape"])) + (", causal" if row["causal"] else "")


def floors_of(found: dict) -> list[dict]:
    host = found["host_us"]
    floors = [
        floor("wheel", round(found["wheel_mb"], 2), "MB", 40, 15, False),
        floor("install", round(found["install_s"], 2), "s", 15, 15, False),
        floor("import, beyond PyTorch's", round(found["import_s"], 3), "s", 0.3, 0.3, False),
        floor("host time of attention_fp8 beyond an empty operator", round(host["attention_fp8"] - host["empty"], 2),
              "us", 8, 4, False),
        floor("graph breaks", found["graph_breaks"], "breaks", 0, 0, False),
        floor("context parallel, 4 processes, relative L2 to one", found["context_parallel_rel_l2"], "relative L2",
              1e-3, 0, False),
    ]  # fmt: skip
    for row in found["rows"]:
        if row["shape"][2:] == [8192, 128]:
            floors.append(floor(f"sdpa over PyTorch's best, {title(row)}", ratio(row), "ratio", 1.25, 1.5, True))
    for one in found["forward_passes"]:
        name = f"forward pass, {found['layers']} layers of Llama 3 8B's shape, {one['tokens']} tokens, over PyTorch's sdpa"
        floors.append(floor(name, round(one["sdpa_ms"] / one["fp8_ms"], 3), "ratio", 1.0, 1.1, True))
    return floors


def table_of(found: dict) -> str:
    rows = found["rows"]
    names = sorted({name for row in rows for name in row["us"] if name != OURS})
    head = ["batch x heads x seq x head_dim", "fp8_sdpa.sdpa, us", *(f"{name.lower()}, us" for name in names),
            "best / ours"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        us = [f"{row['us'][name]:.1f}" if name in row["us"] else "-" for name in (OURS, *names)]
        lines.append("| " + " | ".join([title(row), *us, f"{ratio(row):.2f}"]) + " |")
    lines += ["", f"A forward pass of {found['layers']} layers of Llama 3 8B's shape, batch 1, bfloat16:", "",
              "| tokens | fp8_sdpa, ms | PyTorch's sdpa, ms | sdpa / fp8_sdpa |", "|---|---|---|---|"]  # fmt: skip
    for one in found["forward_passes"]:
        ms = [one["fp8_ms"], one["sdpa_ms"]]
        lines.append(f"| {one['tokens']} | {ms[0]:.2f} | {ms[1]:.2f} | {ms[1] / ms[0]:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True)
    for name in ("out", "rows"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    options = parser.parse_args()
    found = json.loads(options.rows.read_text())
    document = {"gpu": found["gpu"], "torch": found["torch"], "command": options.command, "floors": floors_of(found)}
    write_floors(options.out / "floors.json", document)
    (options.out / "beside_torch.md").write_text(table_of(found))


if __name__ == "__main__":
    main()
