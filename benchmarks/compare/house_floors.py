#!/usr/bin/env python3
"""Writes results/h200/house/floors.json: what the house promises, measured.

    house_floors.py --out FILE --gpu NAME --machine TEXT --command TEXT --test-seconds FILE
                    --only-seconds FILE --new FILE... --old FILE...

--test-seconds and --only-seconds are build/logs/seconds.txt after `./sdpa test` and after
`./sdpa test --only PATTERN` with one line of a kernel edited. --new and --old are files of
`fp8_sdpa_bench --benchmark_filter=forward/auto --benchmark_out=FILE` of this commit and of the one
that it is compared with, measured in turns in one run. A shape's speed is the old median of its
queued launches over the new one, the median over the files of each side.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_SOURCE = ("results/", "tests/tools/recorded/", "tests/fuzz/corpus/")


def floor(name: str, value: float, unit: str, floor: float, aim: float, higher: bool) -> dict:
    return {"name": name, "value": value, "unit": unit, "floor": floor, "aim": aim,
            "higher_is_better": higher}  # fmt: skip


def write_floors(out: pathlib.Path, document: dict) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"commit": git("rev-parse", "HEAD"), **document}, indent=1) + "\n")
    for row in document["floors"]:
        good = row["value"] >= row["floor"] if row["higher_is_better"] else row["value"] <= row["floor"]
        print(f"{'ok' if good else 'MISSED':6s} {row['name']}: {row['value']} {row['unit']}, floor {row['floor']}")


def git(*arguments: str) -> str:
    run = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def seconds(path: pathlib.Path) -> dict[str, float]:
    """'ci build' -> 345 of lines 'ci build 345'."""
    words = [line.split() for line in path.read_text().splitlines()]
    return {f"{part} {what}": float(number) for part, what, number in words}


def queued_us(paths: list[pathlib.Path]) -> dict[str, float]:
    """The median over the files of each goal shape's median queued launch."""
    samples: dict[str, list[float]] = {}
    for path in paths:
        for row in json.loads(path.read_text())["benchmarks"]:
            samples.setdefault(row["name"].split("/")[2], []).append(row["queued_us"])
    return {name: statistics.median(values) for name, values in samples.items()}


def tracked(folder: str = ".") -> list[pathlib.Path]:
    return [ROOT / name for name in git("ls-files", folder).splitlines()]


def source_lines() -> int:
    files = [f for f in tracked() if not str(f.relative_to(ROOT)).startswith(NOT_SOURCE)]
    return sum(f.read_bytes().count(b"\n") for f in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gpu", "machine", "command"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("out", "test-seconds", "only-seconds"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    for name in ("new", "old"):
        parser.add_argument(f"--{name}", required=True, nargs="+", type=pathlib.Path)
    options = parser.parse_args()

    test, only = seconds(options.test_seconds), seconds(options.only_seconds)
    mutants = json.loads((ROOT / "results/mutation_score.json").read_text())
    megabytes = sum(f.stat().st_size for f in tracked("results")) / 1e6
    floors = [
        floor("./sdpa test", test["all all"], "s", 900, 600, False),
        floor("./sdpa test --only", only["all all"], "s", 60, 30, False),
        floor("source", source_lines(), "lines", 62000, 60000, False),
        floor("results/", round(megabytes, 2), "MB", 4, 2, False),
        floor("random mutants killed", round(100 * mutants["score"], 1), "%", 98, 100, True),
    ]
    new, old = queued_us(options.new), queued_us(options.old)
    floors += [floor(f"{name}, speed beside the old commit", round(old[name] / new[name], 4), "ratio", 0.99, 1.0, True)
               for name in new]  # fmt: skip
    write_floors(options.out, {
        "gpu": options.gpu,
        "machine": options.machine,
        "command": options.command,
        "parts_s": test,
        "floors": floors,
    })  # fmt: skip


if __name__ == "__main__":
    main()
