#!/usr/bin/env python3
"""Writes results/h200/quality: floors.json, the rows and a table of errors and times, unquantised.json and
unquantised.md, and a table of needles that are found, needle.md.

    quality_floors.py --out FOLDER --gpu NAME --command TEXT --rows FILE --needle FILE

--rows is unquantised.json of `./sdpa peers --unquantised`, --needle what `python/examples/needle.py --json`
printed. Floors that need what is not built yet are not in the file.
"""

from __future__ import annotations

import argparse
import json
import pathlib

from house_floors import floor, write_floors

ERRORS = {"d128_8k": 8.6e-3, "d64_4k": 1.5e-2}  # of FlashAttention-3's set, with the default options
INT8 = "d128_8k"  # where precision="int8" is judged
INT8_SHAPES = tuple(
    f"d{dim}_{keys}k{mask}" for dim in (64, 128) for keys in (8, 16) for mask in ("", "_causal")
)


def least(rows: list[dict], value) -> tuple[str, float]:
    """The row with the smallest value."""
    worst = min(rows, key=value)
    return worst["shape"], round(value(worst), 3)


def floors_of(rows: list[dict]) -> list[dict]:
    floors = []
    options = ("plain", "rotate", "smooth", "both")
    for name in ("static", *options, *(f"blocks_{option}" for option in options)):
        shape, share = least(rows, lambda row, name=name: row[f"share_{name}"])
        floors.append(
            floor(
                f"quantiser, {name.replace('_', ', ')}, share of a copy's rate, least: {shape}",
                share,
                "ratio",
                0.8,
                0.9,
                True,
            )
        )
    by_name = {row["shape"]: row for row in rows}
    for shape, most in ERRORS.items():
        row = by_name[shape]
        floors.append(
            floor(f"RMSE of {shape}", float(f"{row['rmse_blocks_both']:.3g}"), "RMSE", most, most, False)
        )
        above = round(100 * (row["rmse_blocks_both"] / exact_of(row) - 1), 2)
        floors.append(floor(f"RMSE of {shape} above exact", above, "%", 1, 1, False))
    floors.append(
        floor(
            f"RMSE of {INT8} in int8", float(f"{by_name[INT8]['rmse_int8']:.3g}"), "RMSE", 5e-3, 2e-3, False
        )
    )
    shape, speed = least(rows, lambda row: row["attention_heads_us"] / row["attention_us"])
    price = round(100 * (1 / speed - 1), 1)
    floors.append(floor(f"attention's price of block scales, largest: {shape}", price, "%", 1, 0, False))
    timed = [row for row in rows if "cudnn_bf16_us" in row]
    if timed:
        shape, ratio = least(timed, lambda row: best_bf16(row) / row["ours_us"])
        whose = "the best of cuDNN's and FlashAttention-3's" if "flash3_bf16_us" in timed[0] else "cuDNN's"
        floors.append(
            floor(f"bf16 to bf16 over {whose} bf16, least: {shape}", ratio, "ratio", 1.3, 1.5, True)
        )
        long = [row for row in timed if row["shape"] in INT8_SHAPES]
        for name, what in (("attention_int8_us", "attention in int8"), ("int8_us", "bf16 to bf16 by int8")):
            shape, ratio = least(long, lambda row, name=name: row["cudnn_bf16_us"] / row[name])
            floors.append(
                floor(
                    f"{what} over cuDNN's bf16, 8k and 16k, least: {shape}", ratio, "ratio", 1.15, 1.3, True
                )
            )
    return floors


NEEDLES = ("bf16", "plain", "both", "both, a scale a head", "int8")


def needle_floors(rows: list[dict]) -> list[dict]:
    """Of the default options, at the greatest length: the needles found for each that bf16 has found."""
    longest = max(row["keys"] for row in rows)
    return [
        floor(
            f"needles at {longest // 1024}k keys, {row['values']} values, share of bf16's hits",
            round(100 * row["both"] / row["bf16"], 2),
            "%",
            98,
            100,
            True,
        )
        for row in rows
        if row["keys"] == longest
    ]


def needle_table(rows: list[dict]) -> str:
    lines = ["| keys | values | needles | " + " | ".join(NEEDLES) + " |", "|---" * (len(NEEDLES) + 3) + "|"]
    for row in rows:
        cells = [str(row["keys"]), row["values"], str(row["needles"])]
        lines.append("| " + " | ".join(cells + [f"{row[name]:.4f}" for name in NEEDLES]) + " |")
    return "\n".join(lines) + "\n"


def best_bf16(row: dict) -> float:
    """The time of the faster of the bf16 peers, in microseconds."""
    return min(row[name] for name in ("cudnn_bf16_us", "flash3_bf16_us") if name in row)


def exact_of(row: dict) -> float:
    """RMSE of fp64 attention on the codes that plan() chose, with both options."""
    return row["exact_blocks_both" if row["granularity"] == "block" else "exact_both"]


def table_of(rows: list[dict]) -> str:
    head = ["shape", "scales of a", "ours, us", "of heads", "cuDNN bf16, us", "cuDNN / ours",
            "attention alone, of blocks, us", "of heads", "RMSE: plain", "rotated", "smoothed", "both",
            "exact, both", "of heads: plain", "both", "exact, both", "cuDNN bf16", "int8, us",
            "cuDNN / int8", "attention alone, int8, us", "cuDNN / that", "RMSE: int8",
            "FlashAttention-3 bf16, us", "that / ours", "cuDNN FP8, us", "RMSE", "FlashAttention-3 FP8, us",
            "RMSE"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cudnn = row.get("cudnn_bf16_us")
        cells = [row["shape"], row["granularity"], f"{row['ours_us']:.1f}", f"{row['ours_heads_us']:.1f}"]
        cells += [f"{cudnn:.1f}", f"{cudnn / row['ours_us']:.2f}"] if cudnn else ["-", "-"]
        cells += [f"{row[name]:.1f}" for name in ("attention_us", "attention_heads_us")]
        errors = [row[f"rmse_blocks_{option}"] for option in ("plain", "rotate", "smooth", "both")]
        errors += [exact_of(row), row["rmse_plain"], row["rmse_both"], row["exact_both"]]
        cells += [f"{error:.3g}" for error in errors]
        cells.append(f"{row['rmse_cudnn_bf16']:.3g}" if cudnn else "-")
        for name in ("int8_us", "attention_int8_us"):
            cells += [f"{row[name]:.1f}", f"{cudnn / row[name]:.2f}" if cudnn else "-"]
        cells.append(f"{row['rmse_int8']:.3g}")
        flash3 = row.get("flash3_bf16_us")
        cells += [f"{flash3:.1f}", f"{flash3 / row['ours_us']:.2f}"] if flash3 else ["-", "-"]
        for peer in ("cudnn_fp8", "flash3_fp8"):
            there = f"{peer}_us" in row
            cells += [f"{row[f'{peer}_us']:.1f}", f"{row[f'rmse_{peer}']:.3g}"] if there else ["-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("gpu", "command"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("out", "rows", "needle"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    options = parser.parse_args()
    rows = json.loads(options.rows.read_text())["rows"]
    needles = json.loads(options.needle.read_text())
    floors = [*floors_of(rows), *needle_floors(needles)]
    document = {"gpu": options.gpu, "command": options.command, "floors": floors}
    write_floors(options.out / "floors.json", document)
    (options.out / "unquantised.md").write_text(table_of(rows))
    (options.out / "unquantised.json").write_text(options.rows.read_text())
    (options.out / "needle.md").write_text(needle_table(needles))


if __name__ == "__main__":
    main()
