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
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
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
OURS = (GREEN, "o")
PEERS = {"cudnn_fp8": (PINK, "X"), "cudnn_bf16": (PINK, "^"), "flash3_fp8": (BLUE, "D"),
         "flash3_bf16": (BLUE, "d"), "torch_flash": (SKY, "<"), "torch_cudnn": (ORANGE, "v"),
         "torch_efficient": (RED, ">"), "torch_math": (GREY, "s")}
OTHER_PEER = (INK, "P")

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


def is_peer(name):
    return name.startswith("peer/")


def label(name):
    return name.removeprefix("peer/")


def look(name):
    """(colour, marker) of a peer, or of ours."""
    return PEERS.get(label(name), OTHER_PEER) if is_peer(name) else OURS


def dash(name):
    return "--" if is_peer(name) else "-"


def plain(value, _=None):
    """1.5, 20, 2k, 16k: a tick's text."""
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:.0f}k"
    return f"{value:g}"


def apart(lengths):
    """Those of the sorted lengths whose ticks have room beside each other."""
    shown = []
    for length in lengths:
        if not shown or length >= 1.3 * shown[-1]:
            shown.append(length)
    return shown


def superscript(number):
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def scientific(value, _=None):
    """10⁻³: a tick's text where every tick is a power of ten, else 2·10⁻³."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10**exponent
    return (f"{factor:.0f}·" if round(factor) != 1 else "") + f"10{superscript(exponent)}"


def finish(figure, handles):
    """Lays the figure out with its legend below, in as many columns as the longest label allows."""
    longest = max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(4, int(72 * WIDTH / (6.2 * longest + 42))))
    legend = 0.24 * math.ceil(len(handles) / columns)
    height = figure.get_size_inches()[1] + legend
    figure.set_size_inches(WIDTH, height)
    figure.legend(handles=handles, loc="lower center", ncol=columns, handlelength=1.8,
                  columnspacing=1.4, borderaxespad=0.2)
    figure.tight_layout(pad=0.4, rect=(0, (legend + 0.06) / height, 1, 1))
    return figure


def ours_first(names):
    return sorted(set(names), key=lambda name: (is_peer(name), name))


def draw_tflops(plot):
    panels = plot["panels"]
    figure, all_axes = pyplot.subplots(len(panels), figsize=(WIDTH, 0.4 + 2.7 * len(panels)),
                                       sharex=True, squeeze=False)
    lines = [line for panel in panels for line in panel["series"]]
    lengths = sorted({point[0] for line in lines for point in line["points"]})
    for panel, axes in zip(panels, all_axes[:, 0]):
        for line in panel["series"]:
            colour, marker = look(line["name"])
            xs, ys, _ = zip(*line["points"])
            axes.plot(xs, ys, color=colour, ls=dash(line["name"]), clip_on=False,
                      lw=1.4 if is_peer(line["name"]) else 2.6)
            for x, y, passed in line["points"]:
                axes.plot(x, y, marker, color=colour, ms=6, clip_on=False,
                          **({} if passed else {"mfc": GROUND}))
                if plot.get("values"):
                    axes.annotate(f"{y:.0f}", (x, y), color=colour, fontsize=9, ha="center", va="center",
                                  xytext=(0, -11 if is_peer(line["name"]) else 11),
                                  textcoords="offset points")
        if plot["ceiling"]:
            axes.axhline(plot["ceiling"], color=INK, ls=":", lw=1.4)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(apart(lengths)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.tick_params(labelbottom=True)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        axes.set_ylabel("TFLOP/s")
        if len(panels) > 1 or panel["title"] != "no mask":
            axes.set_title(panel["title"], fontsize=11, loc="left")
    all_axes[-1, 0].set_xlabel("sequence length S (keys)")
    handles = []
    for name in ours_first(line["name"] for line in lines):
        colour, marker = look(name)
        handles.append(Line2D([], [], color=colour, marker=marker, ls=dash(name), label=label(name)))
    if plot["ceiling"]:
        handles.append(Line2D([], [], color=INK, ls=":", label="FP8 GEMM ceiling"))
    return finish(figure, handles)


def draw_latency(plot):
    """The axis ends at four times our slowest: what is slower stands at its edge, in numbers."""
    end = 4 * max(point["event"] for row in plot["rows"] for point in row["points"]
                  if not is_peer(point["name"]))
    names = ours_first(point["name"] for row in plot["rows"] for point in row["points"])
    step = 0.13  # inches between the kernels of a shape
    figure, axes = pyplot.subplots(
        figsize=(WIDTH, 0.6 + len(plot["rows"]) * (0.33 + step * len(names))))
    y = 0.0
    for row in plot["rows"]:
        axes.annotate(row["name"], (0, y), xycoords=("axes fraction", "data"), xytext=(2, 0),
                      textcoords="offset points", fontsize=10, va="center")
        y -= 0.08
        for name in names:
            y -= step
            for point in row["points"]:
                if point["name"] != name:
                    continue
                colour, marker = look(name)
                graph, event = point["graph"], min(point["event"], end)
                if graph is not None and graph < end:
                    axes.plot([graph, event], [y, y], color=colour, lw=2, alpha=0.45)
                    axes.plot(graph, y, marker, color=colour, ms=6)
                if event == point["event"]:
                    axes.plot(event, y, marker, color=colour, mfc=GROUND, ms=6)
                    continue
                slow = [point["event"]] if graph is None or graph < end else [graph, point["event"]]
                axes.annotate(" to ".join(f"{us:.0f}" for us in slow) + " →", (1, y), color=colour,
                              xycoords=("axes fraction", "data"), fontsize=9, ha="right", va="center")
        y -= 0.12
        axes.axhline(y, color=GRID, lw=0.8)
        y -= 0.13
    axes.set_ylim(y + 0.13, 0.15)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.grid(axis="x")
    axes.set_xlabel("p50, µs per launch")
    return finish(figure, [Line2D([], [], color=look(name)[0], marker=look(name)[1], ls="",
                                  label=label(name)) for name in names])


def draw_error_speed(plot):
    points = plot["points"]
    ours = [point["name"] for point in points if not is_peer(point["name"])]
    modes = plot.get("modes", False)  # whether each of ours has a marker of its own
    named = ours if len(ours) < 4 and not modes else []  # more would overlap
    looks = {name: (GREEN, marker) for name, marker in zip(ours, "oshp*" * len(ours))} if modes else {}
    figure, axes = pyplot.subplots(figsize=(WIDTH, 3.4))
    for point in points:
        colour, marker = looks.get(point["name"]) or look(point["name"])
        axes.plot(point["x"], point["y"], marker, color=colour, ms=8, mec=GROUND, mew=0.8)
        if point["name"] in named:
            axes.annotate(point["name"], (point["x"], point["y"]), xytext=(0, -14), ha="center",
                          textcoords="offset points", fontsize=9)
    low = min(point["y"] for point in points)
    high = max(point["y"] for point in points)
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * 2)
    if high / low > 100:
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        ticks = [m * 10.0**e for e in range(-12, 3) for m in (1, 2, 5)]
        axes.yaxis.set_major_locator(FixedLocator([t for t in ticks if low / 2 <= t <= high * 2]))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(scientific))
    axes.set_xlim(0, max(point["x"] for point in points) * 1.15)
    axes.grid()
    axes.set_xlabel("TFLOP/s (faster to the right)")
    axes.set_ylabel(plot.get("error", "relative L2 error (better below)"))
    names = ours_first(point["name"] if modes or is_peer(point["name"]) else "ours" for point in points)
    handles = []
    for name in names:
        colour, marker = looks.get(name) or look(name)
        handles.append(Line2D([], [], ls="", color=colour, marker=marker, label=label(name)))
    return finish(figure, handles)


def draw_bandwidth(plot):
    """A line for each batch, below the rate of reading alone."""
    figure, axes = pyplot.subplots(figsize=(WIDTH, 3.1))
    shades = [SKY, BLUE, GREEN, ORANGE, RED, PINK]
    handles = []
    for line, colour in zip(plot["series"], shades * len(plot["series"])):
        xs, ys = zip(*line["points"])
        axes.plot(xs, ys, color=colour, marker="o", ms=5, clip_on=False)
        handles.append(Line2D([], [], color=colour, marker="o", label=f"batch {line['batch']}"))
    axes.axhline(plot["limit"], color=INK, ls=":", lw=1.4)
    handles.append(Line2D([], [], color=INK, ls=":", label="reading alone"))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(apart(sorted({x for line in plot["series"] for x, _ in line["points"]}))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.set_xlabel("keys of a sequence")
    axes.set_ylabel("GB/s")
    return finish(figure, handles)


DRAW = {"bandwidth": draw_bandwidth, "tflops": draw_tflops, "latency": draw_latency, "error_speed": draw_error_speed}


def themed(svg, stem):
    """The drawing alone: no prologue, theme variables, a common font, ids that no other figure has."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
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
