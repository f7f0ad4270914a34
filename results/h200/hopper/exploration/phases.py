"""Clocks of a consumer warpgroup's KV tile, phase by phase, from a profile of warp stalls.

    ncu --section SourceCounters -o R DRIVER ...
    ncu --import R.ncu-rep --page source --csv > FILE
    python3 phases.py TITLE FILE [TITLE FILE ...]

The loop's instructions are those executed as often as its QGMMA. Each is selected for one clock a
time, so samples over those in which it was selected are clocks.
"""
import csv
import sys
from collections import Counter


def phase_after(phase, opcode):
    """The phase that an instruction begins, or the one that it goes on with."""
    name = opcode.split(".")[0]
    if name == "QGMMA":
        return opcode[:19]
    if name in ("VIMNMX3", "FMNMX") and phase.startswith("QGMMA"):
        return "max"
    if name == "MUFU" and phase == "max":
        return "exponentials, sums, packing"
    if name == "FFMA" and phase.startswith("QGMMA"):
        return "add O"
    if opcode == "WARPGROUP.ARRIVE" and phase != "top":
        return "arrive"
    return phase


def report(title, path):
    with open(path) as file:
        rows = list(csv.DictReader(file.readlines()[1:]))
    stalls = [c for c in rows[0] if c.startswith("stall_") and "Not Issued" not in c]
    executed = lambda row: int(row["Instructions Executed"])
    most = max(executed(row) for row in rows if "QGMMA" in row["Source"])
    loop = [row for row in rows if abs(executed(row) - most) <= most / 10]
    clock = sum(int(row["stall_selected"]) for row in loop) / len(loop)
    samples = lambda some: sum(int(row["# Samples"]) for row in some)
    print(f"{title}: {len(loop)} instructions, {samples(loop) / clock:.0f} clocks")
    phases = [["top", []]]
    for row in loop:
        words = row["Source"].split()
        opcode = words[1] if words[0].startswith("@") else words[0]
        phase = phase_after(phases[-1][0], opcode)
        if phase != phases[-1][0]:
            phases.append([phase, []])
        phases[-1][1].append(row)
    for phase, some in phases:
        why = Counter({s[6:]: sum(int(row[s]) for row in some) / clock for s in stalls})
        reasons = ", ".join(f"{name} {value:.0f}" for name, value in why.most_common(5))
        print(f"  {phase:<28} {len(some):>4} {samples(some) / clock:>6.0f}  {reasons}")


for title, path in zip(sys.argv[1::2], sys.argv[2::2]):
    report(title, path)
