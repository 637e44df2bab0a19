#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Draws what lychee-bench --json printed, as SVG, with nothing but Python.

    plot.py decode DECODE.jsonl [--peer NAME=DEPTHS.csv ...] > decode.svg
    plot.py fidelity FIDELITY.jsonl > fidelity.svg
    plot.py positions PACKED.jsonl --peer NAME=OTHER.jsonl ... > positions.svg

A peer's file has lines `depth,tokens_per_second`; with positions it is as the first one, what
lychee-bench perplexity printed.
"""
import argparse
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 90, 170, 40, 55
COLOURS = ["#c2185b", "#1565c0", "#2e7d32", "#ef6c00", "#6a1b9a", "#00838f", "#5d4037", "#757575"]


def read_json(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def ticks(low, high, logarithmic):
    """Round numbers that cover the range."""
    if logarithmic:
        first = math.floor(math.log2(low))
        last = max(math.ceil(math.log2(high)), first + 1)  # a single value is a range, too
        step = max(1, (last - first) // 7)
        return [2.0**e for e in range(first, last + 1, step)]
    step = 10 ** math.floor(math.log10(high - low))
    if (high - low) / step < 4:
        step /= 2
    return [i * step for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def number(value):
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:g}k"
    return f"{value:.3g}" if value < 100 else f"{value:g}"


def chart(title, x_title, y_title, series, log_x, log_y, from_zero=True):
    """series: {name: [(x, y), ...]}"""
    points = [p for line in series.values() for p in line]
    xs = ticks(min(p[0] for p in points), max(p[0] for p in points), log_x)
    ys = ticks(0 if from_zero and not log_y else min(p[1] for p in points), max(p[1] for p in points), log_y)

    def place(value, marks, logarithmic, begin, end):
        low, high = marks[0], marks[-1]
        if logarithmic:
            value, low, high = math.log2(value), math.log2(low), math.log2(high)
        return begin + (value - low) / (high - low) * (end - begin)

    def at(x, y):
        return (place(x, xs, log_x, LEFT, WIDTH - RIGHT), place(y, ys, log_y, HEIGHT - BOTTOM, TOP))

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        "<!-- SPDX-License-Identifier: LGPL-2.1-or-later -->",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>',
    ]
    for x in xs:
        px = at(x, ys[0])[0]
        out.append(f'<path d="M{px:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(f'<text x="{px:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(x)}</text>')
    for y in ys:
        py = at(xs[0], y)[1]
        out.append(f'<path d="M{LEFT} {py:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{py + 4:.1f}" text-anchor="end">{number(y)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(
        f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{escape(y_title)}</text>'
    )
    ends = []
    for i, (name, line) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        placed = [at(x, y) for x, y in sorted(line)]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        ends.append([placed[-1][1], placed[-1][0], name, colour])
    # Names beside the ends of their lines, pushed apart.
    ends.sort()
    for i in range(1, len(ends)):
        ends[i][0] = max(ends[i][0], ends[i - 1][0] + 16)
    for y, x, name, colour in ends:
        out.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out)


def decode(args):
    series = {}
    rows = read_json(args.file)
    for row in rows:
        # A short cache is answered densely whatever was asked.
        name = "Lychee, sparse" if row["budget"] else "Lychee, dense"
        if row["depth"] > 0:
            series.setdefault(name, []).append((row["depth"], row["ms_per_token"]))
    for peer in args.peer:
        name, path = peer.split("=", 1)
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                depth, rate = line.split(",")[:2]
                if int(depth) > 0:
                    series.setdefault(name, []).append((int(depth), 1000 / float(rate)))
    return chart("Time of a generated token", "tokens in the cache", "milliseconds", series, True, True)


def fidelity(args):
    series = {}
    for row in read_json(args.file):
        if row["policy"] != "dense":
            series.setdefault(row["policy"], []).append((row["budget"], row["error"]))
    return chart(
        "Error of the attention's output", "tokens read (budget)", "|o - o'| / |o|", series, True, True
    )


def positions(args):
    series = {}
    for name, path in [("packed", args.file)] + [peer.split("=", 1) for peer in args.peer]:
        series[name] = [(row["position"], row["nll"]) for row in read_json(path)]
    return chart("Likelihood by position", "up to this token of the text", "nats a token", series, False,
                 False, from_zero=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["decode", "fidelity", "positions"])
    parser.add_argument("file")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FILE")
    args = parser.parse_args()
    sys.stdout.write({"decode": decode, "fidelity": fidelity, "positions": positions}[args.kind](args) + "\n")


if __name__ == "__main__":
    main()
