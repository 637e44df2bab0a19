#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prints, for docs/benchmarks.md, tables of what measure-fidelity left in a folder.

    tables.py FOLDER
"""
import json
import os
import sys

SHOWN = 1024  # the budget of what is not shown for all


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def number(value):
    return f"{value:,}"


def table(head, rows):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def fidelity(rows):
    budgets = sorted({row["budget"] for row in rows if row["policy"] != "dense"})
    found = {(row["policy"], row["budget"]): row for row in rows}
    lines = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        # What reads everything has one row, of all that there is.
        whole = next((row for row in rows if row["policy"] == policy and row["budget"] not in budgets), None)
        mine = [whole] + [None] * (len(budgets) - 1) if whole else [found.get((policy, b)) for b in budgets]
        shown = whole or found[policy, SHOWN]
        lines.append(
            [policy]
            + [f"{row['error']:.3f}" if row else "" for row in mine]
            + [f"{row['kl']:.4f}" if row else "" for row in mine]
            + [f"{shown['kl_median']:.4f}", f"{shown['mass']:.3f}", f"{shown['top1']:.3f}", f"{shown['perplexity']:.2f}",
               f"{shown['nodes_scored']:.0f}", "" if whole else f"{100 * shown['metadata']:.2f} %"])
    table(["policy"] + [f"error at {number(b)}" for b in budgets] + [f"KL at {number(b)}" for b in budgets]
          + [f"{what} at {number(SHOWN)}" for what in ("median KL", "mass", "top-1", "perplexity", "nodes")] + ["metadata"],
          lines)
    print(f"Perplexity of dense attention {rows[0]['dense_perplexity']:.2f}.")
    for policy in "clusterkv", "quest":
        if (policy, SHOWN) in found and ("token", SHOWN) in found:
            ratios = (found[policy, b]["error"] / found["token", b]["error"] for b in budgets)
            print(f"Error of {policy} / of token: " + ", ".join(f"{ratio:.2f}" for ratio in ratios) + ".")
    print()


def needle(files):
    lines = []
    for rows in files:
        for policy in dict.fromkeys(row["policy"] for row in rows):
            mine = [row for row in rows if row["policy"] == policy]
            ranks = [row["rank"] for row in mine]
            lines.append([number(mine[0]["tokens"]), policy, f"{ranks.count(1)} of {len(ranks)}",
                          str(sum(rank <= 3 for rank in ranks)), f"{sum(ranks) / len(ranks):.2f}",
                          f"{sum(row['margin'] for row in mine) / len(mine):.2f}", " ".join(map(str, ranks))])
    table(["tokens", "policy", "first", "among three", "mean rank", "margin, nats", "ranks"], lines)


def positions(named):
    ends = [row["position"] for row in next(iter(named.values()))]
    table([""] + [number(end) for end in ends] + ["all"],
          [[name] + [f"{row['nll']:.3f}" for row in rows] + [f"{rows[-1]['mean_nll']:.3f}"]
           for name, rows in named.items()])


def drift(rows):
    table(["tokens", "budget", "error", "afresh", "ratio"],
          [[number(row["position"]), number(row["budget"]), f"{row['error']:.4f}", f"{row['error_afresh']:.4f}",
            f"{row['ratio']:.2f}"] for row in rows])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    found = {name[: -len(".jsonl")]: read(os.path.join(folder, name))
             for name in sorted(os.listdir(folder)) if name.endswith(".jsonl")}
    for name in "fidelity", "long-fidelity":
        if name in found:
            fidelity(found[name])
    if any(name.startswith("needle") for name in found):
        needle(rows for name, rows in found.items() if name.startswith("needle"))
    for name in "positions", "long":
        named = {way: found[f"{name}-{way}"] for way in ("packed", "yarn") if f"{name}-{way}" in found}
        if named:
            positions(named)
    if "positions-100000" in found:
        positions({"packed": found["positions-100000"]})
    if "drift" in found:
        drift(found["drift"])


if __name__ == "__main__":
    main()
