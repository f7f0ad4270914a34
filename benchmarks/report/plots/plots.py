#!/usr/bin/env python3
"""Draws the figures of a report: plots.py PLOTS.json FOLDER.

PLOTS.json is a list of figures, each with "kind", "file" and its data, as benchmarks/report/figures.cpp
chooses them; this script only draws. One SVG per figure is written into FOLDER. Figures are laid out
for a column of a phone and scale up; their text stays text. Ink, grid and ground are CSS variables
(--plot-ink, ...) with values of their own, so that a page can show them in light and dark.

Exit code 3: matplotlib is not installed.
"""

import json
import math
import pathlib
import re
import sys

try:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
except ImportError:
    print("matplotlib is not installed (Debian's package: python3-matplotlib)")
    sys.exit(3)

EXIT_BAD_USAGE = 2

# Stand-ins that themed() turns into variables; no figure has them for anything else.
INK, SOFT, GRID, GROUND = "#010101", "#020202", "#030303", "#040404"
THEME = {
    INK: "var(--plot-ink, #1f2328)",
    SOFT: "var(--plot-soft, #59636e)",
    GRID: "var(--plot-grid, #d8dee4)",
    GROUND: "var(--plot-ground, #ffffff)",
}

# Okabe and Ito's palette, which readers with any colour vision tell apart, without its yellow.
BLUE, SKY, GREEN, ORANGE, RED, PINK = (
    "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7")
GREY = "#8c959f"
FAMILY = {"stage_c": (ORANGE, "s"), "sm80": (SKY, "^"), "sm89": (BLUE, "D"), "sm90": (GREEN, "o")}
OTHER_FAMILY = (RED, "P")
PEERS = [(PINK, "X"), (GREY, "v"), (RED, "<"), (INK, ">"), (ORANGE, "d"), (SKY, "p")]
PHASE = {"Q_load": SKY, "KV_prefetch": BLUE, "dequant": PINK, "QK": ORANGE, "softmax": GREEN,
         "PV": RED, "store_O": "#5d4b8a", "wait": GRID}

MOST_SPANS = 48  # of a warp in one figure
WIDTH = 5.6  # inches; 72 units of the drawing each


def style():
    matplotlib.rcParams.update({
        "svg.fonttype": "none",
        "svg.hashsalt": "fp8_sdpa",
        "figure.dpi": 72,
        "font.size": 11,
        "axes.edgecolor": GRID,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "text.color": INK,
        "text.parse_math": False,  # names may hold a dollar sign
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "figure.facecolor": GROUND,
        "axes.facecolor": "none",
        "legend.frameon": False,
        "legend.fontsize": 10,
        "lines.linewidth": 1.8,
    })


def looks(entries):
    """(colour, marker, dash) of each named entry: its family's, or a peer's own."""
    out = {}
    peers = sorted({entry["name"] for entry in entries if entry["family"] == "peer"})
    for entry in entries:
        if entry["family"] == "peer":
            colour, marker = PEERS[peers.index(entry["name"]) % len(PEERS)]
            out[entry["name"]] = (colour, marker, "--")
        else:
            colour, marker = FAMILY.get(entry["family"], OTHER_FAMILY)
            out[entry["name"]] = (colour, marker, "-")
    return out


def label(name):
    return name[len("peer/"):] if name.startswith("peer/") else name


def plain(value, _=None):
    """1.5, 20, 2k, 16k: a tick's text."""
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:.0f}k"
    return f"{value:g}"


def superscript(number):
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def scientific(value, _=None):
    """10⁻³: a tick's text where every tick is a power of ten, else 2·10⁻³."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10**exponent
    return (f"{factor:.0f}·" if round(factor) != 1 else "") + f"10{superscript(exponent)}"


def legend_below(figure, handles, columns):
    figure.legend(handles=handles, loc="lower center", ncol=columns, handlelength=1.8,
                  columnspacing=1.4, borderaxespad=0.2)


def new_figure(height, legend_rows=0):
    figure, axes = pyplot.subplots(figsize=(WIDTH, height + 0.24 * legend_rows))
    return figure, axes


def finish(figure, legend_rows=0):
    height = figure.get_size_inches()[1]
    figure.tight_layout(pad=0.4, rect=(0, (0.24 * legend_rows + 0.06) / height, 1, 1))


def columns_for(handles):
    """As many columns of a legend as its longest label leaves room for."""
    longest = max(len(handle.get_label()) for handle in handles)
    return max(1, min(4, int(72 * WIDTH / (6.2 * longest + 42))))


def rows_for(handles, columns):
    return math.ceil(len(handles) / columns)


def draw_tflops(plot):
    look = looks(plot["series"])
    handles = []
    for series in plot["series"]:
        colour, marker, dash = look[series["name"]]
        handles.append(Line2D([], [], color=colour, marker=marker, ls=dash, label=label(series["name"])))
    if plot["ceiling"]:
        handles.append(Line2D([], [], color=INK, ls=":", label="FP8 GEMM ceiling"))
    columns = columns_for(handles)
    rows = rows_for(handles, columns)
    figure, axes = new_figure(3.5, rows)
    lengths = sorted({point[0] for series in plot["series"] for point in series["points"]})
    for series in plot["series"]:
        colour, marker, dash = look[series["name"]]
        xs, ys = zip(*series["points"])
        axes.plot(xs, ys, color=colour, marker=marker, ls=dash, ms=6, clip_on=False)
    if plot["ceiling"]:
        axes.axhline(plot["ceiling"], color=INK, ls=":", lw=1.4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.set_xlabel("sequence length S (keys)")
    axes.set_ylabel("TFLOP/s")
    legend_below(figure, handles, columns)
    finish(figure, rows)
    return figure


def named_rows(axes, names, colours):
    """A row per name, the name above the row's mark: long names need no margin. Returns the ys."""
    ys = [-float(i) for i in range(len(names))]
    for y, name, colour in zip(ys, names, colours):
        axes.annotate(label(name), (0, y), xycoords=("axes fraction", "data"), xytext=(2, 6),
                      textcoords="offset points", fontsize=10, color=colour, va="bottom")
    axes.set_ylim(ys[-1] - 0.45, 0.75)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    return ys


def draw_latency(plot):
    colours = [BLUE, RED, GREEN, PINK, ORANGE, SKY]
    markers = ["o", "s", "D", "^", "v", "P"]
    handles = [Line2D([], [], color=colours[i % 6], marker=markers[i % 6], ls="", label=shape)
               for i, shape in enumerate(plot["shapes"])]
    handles += [Line2D([], [], color=SOFT, marker="o", mfc="none", ls="", label="single launch"),
                Line2D([], [], color=SOFT, marker="o", ls="", label="in a graph")]
    columns = columns_for(handles)
    rows = rows_for(handles, columns)
    figure, axes = new_figure(0.75 + 0.42 * len(plot["rows"]), rows)
    names = [row["name"] for row in plot["rows"]]
    ys = named_rows(axes, names, [PINK if row["family"] == "peer" else INK for row in plot["rows"]])
    for y, row in zip(ys, plot["rows"]):
        axes.axhline(y, color=GRID, lw=0.8, zorder=0)
        for point in row["points"]:
            colour, marker = colours[point["shape"] % 6], markers[point["shape"] % 6]
            ends = [t for t in (point["graph"], point["event"]) if t is not None]
            axes.plot(ends, [y] * len(ends), color=colour, lw=2, alpha=0.45, zorder=1)
            if point["event"] is not None:
                axes.plot(point["event"], y, marker, color=colour, mfc=GROUND, ms=6)
            if point["graph"] is not None:
                axes.plot(point["graph"], y, marker, color=colour, ms=6)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_xlabel("p50, µs per launch")
    legend_below(figure, handles, columns)
    finish(figure, rows)
    return figure


def draw_ladder(plot):
    bars = plot["bars"]
    figure, axes = new_figure(0.75 + 0.48 * len(bars))
    ys = named_rows(axes, [bar["name"] for bar in bars], [INK] * len(bars))
    first = bars[0]["us"]
    for y, bar in zip(ys, bars):
        colour = FAMILY.get(bar["family"], OTHER_FAMILY)[0]
        axes.barh(y - 0.06, bar["us"], height=0.38, color=colour)
        axes.annotate(f"{bar['us']:.2f} µs, {first / bar['us']:.2f}x", (bar["us"], y - 0.06),
                      xytext=(5, 0), textcoords="offset points", va="center", fontsize=10)
    axes.set_xlim(0, max(bar["us"] for bar in bars) * 1.32)
    axes.grid(axis="x")
    axes.set_xlabel("p50, µs per launch; speed-up over the first bar")
    finish(figure)
    return figure


def draw_error_speed(plot):
    look = looks(plot["points"])
    families = [f for f in dict.fromkeys(p["family"] for p in plot["points"]) if f != "peer"]
    handles = [Line2D([], [], ls="", color=FAMILY.get(f, OTHER_FAMILY)[0],
                      marker=FAMILY.get(f, OTHER_FAMILY)[1], label=f) for f in families]
    handles += [Line2D([], [], ls="", color=look[p["name"]][0], marker=look[p["name"]][1],
                       label=label(p["name"])) for p in plot["points"] if p["family"] == "peer"]
    columns = columns_for(handles)
    rows = rows_for(handles, columns)
    figure, axes = new_figure(3.4, rows)
    for point in plot["points"]:
        colour, marker, _ = look[point["name"]]
        axes.plot(point["x"], point["y"], marker, color=colour, ms=8, mec=GROUND, mew=0.8)
    low = min(point["y"] for point in plot["points"])
    high = max(point["y"] for point in plot["points"])
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * 2)
    if high / low > 20:
        axes.yaxis.set_major_formatter(FuncFormatter(scientific))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        ticks = [m * 10.0**e for e in range(-12, 3) for m in (1, 2, 5)]
        axes.yaxis.set_major_locator(FixedLocator([t for t in ticks if low / 2 <= t <= high * 2]))
        axes.yaxis.set_major_formatter(FuncFormatter(scientific))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, max(point["x"] for point in plot["points"]) * 1.08)
    axes.grid()
    axes.set_xlabel("TFLOP/s (faster to the right)")
    axes.set_ylabel("relative L2 error (better below)")
    legend_below(figure, handles, columns)
    finish(figure, rows)
    return figure


def draw_timeline(plot):
    spans = plot["spans"]
    warps = sorted({span["warp"] for span in spans})
    total = {}
    for span in spans:
        total[span["phase"]] = total.get(span["phase"], 0) + span["cycles"]
    whole = sum(total.values()) or 1
    phases = [p for p in PHASE if p in total] + [p for p in total if p not in PHASE]
    handles = [Patch(color=PHASE.get(p, GREY), label=f"{p} {100 * total[p] / whole:.0f} %")
               for p in phases]
    rows = rows_for(handles, 4)
    figure, axes = new_figure(0.75 + 0.3 * len(warps), rows)
    # More spans than a phone can tell apart: the launch's first part stands for the rest.
    busiest = max((sorted(s["start"] + s["cycles"] for s in spans if s["warp"] == warp)
                   for warp in warps), key=len)
    last = max(span["start"] + span["cycles"] for span in spans)
    shown = busiest[MOST_SPANS] if len(busiest) > 1.5 * MOST_SPANS else last
    for phase in phases:
        for i, warp in enumerate(warps):
            bars = [(s["start"], s["cycles"]) for s in spans
                    if s["warp"] == warp and s["phase"] == phase and s["start"] < shown]
            axes.broken_barh(bars, (i - 0.36, 0.72), facecolors=PHASE.get(phase, GREY), linewidth=0)
    axes.set_ylim(len(warps) - 0.4, -0.6)
    axes.set_yticks(range(len(warps)), [f"warp {warp}" for warp in warps])
    axes.tick_params(left=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, shown)
    axes.grid(axis="x")
    cut = f", the first {shown:.0f} of {last:.0f}" if shown < last else ""
    axes.set_xlabel("cycles of the multiprocessor" + cut)
    figure.legend(handles=handles, loc="lower center", ncol=4, handlelength=1, handleheight=1,
                  columnspacing=1.2, borderaxespad=0.2)
    finish(figure, rows)
    return figure


def draw_levels(plot, unit, has_model):
    colours = [BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY]
    markers = ["o", "s", "D", "^", "v", "P", "X"]
    handles = []
    for i, level in enumerate(plot["levels"]):
        handles.append(Line2D([], [], color=colours[i % 7], marker=markers[i % 7],
                              label=f"2{superscript(level['level'])}"))
    if has_model:
        handles.append(Line2D([], [], color=SOFT, ls="--", label="model"))
    columns = columns_for(handles)
    rows = rows_for(handles, columns)
    figure, axes = new_figure(3.5, rows)
    lengths = sorted({point[0] for level in plot["levels"] for point in level["points"]})
    for i, level in enumerate(plot["levels"]):
        points = sorted(level["points"])
        xs = [point[0] for point in points]
        axes.plot(xs, [point[1] for point in points], color=colours[i % 7], marker=markers[i % 7],
                  ms=5)
        if has_model and all(point[2] is not None for point in points):
            axes.plot(xs, [point[2] for point in points], color=SOFT, ls="--", lw=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(lengths[::max(1, math.ceil(len(lengths) / 7))]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y")
    axes.set_xlabel("sequence length S")
    axes.set_ylabel(unit)
    legend_below(figure, handles, columns)
    finish(figure, rows)
    return figure


def draw_scaling(plot):
    return draw_levels(plot, "p50, µs per launch", has_model=True)


def draw_memory(plot):
    return draw_levels(plot, "MiB", has_model=False)


DRAW = {"tflops": draw_tflops, "latency": draw_latency, "ladder": draw_ladder,
        "error_speed": draw_error_speed, "timeline": draw_timeline, "scaling": draw_scaling,
        "memory": draw_memory}


def themed(svg, stem):
    """The drawing alone: no prologue, theme variables, a common font, ids that no other figure has."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    for stand_in, variable in THEME.items():
        svg = svg.replace(stand_in, variable)
    svg = re.sub(r"(font: (?:\w+ )?[\d.]+px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda m: m.group(1) + stem + "-", svg)
    return svg


def write(plot, folder):
    figure = DRAW[plot["kind"]](plot)
    path = folder / plot["file"]
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    path.write_text(themed(path.read_text(encoding="utf-8"), path.stem), encoding="utf-8")


def main(arguments):
    if len(arguments) != 2:
        print("usage: plots.py PLOTS.json FOLDER")
        return EXIT_BAD_USAGE
    style()
    plots = json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8"))
    for plot in plots:
        write(plot, pathlib.Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
