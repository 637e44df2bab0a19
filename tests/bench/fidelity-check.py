#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Computes mass and error of the policies window, quest and oracle anew, with numpy, from what
`lychee-bench fidelity --dump DUMP` wrote, and compares with what it printed.

usage: fidelity-check.py DUMP [--budgets 256,512,1024] [--against FILE]

FILE: the output of the same run with --json. Fails where a figure differs by more than 0.0005.
"""
import argparse
import json
import sys

import numpy as np

SINKS, WINDOW, PAGE = 16, 64, 16


def softmax(z, axis):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def newest(z, k, q, scale, budget):
    return np.arange(z.shape[1])[-budget:]


def oracle(z, k, q, scale, budget):
    return np.argsort(-softmax(z, 1).sum(axis=0), kind="stable")[:budget]


def quest(z, k, q, scale, budget):
    n = len(k)
    n_pages = -(-n // PAGE)
    padded = np.concatenate([k, np.repeat(k[-1:], n_pages * PAGE - n, axis=0)])
    pages = padded.reshape(n_pages, PAGE, -1)
    low, high = pages.min(axis=1), pages.max(axis=1)
    bound = scale * (np.maximum(q, 0) @ high.T + np.minimum(q, 0) @ low.T)
    size = np.full(n_pages, PAGE)
    size[-1] = n - PAGE * (n_pages - 1)
    w = np.exp(bound - bound.max(axis=1, keepdims=True))
    share = (w / (w * size).sum(axis=1, keepdims=True)).sum(axis=0)
    rows = np.concatenate([p * PAGE + np.arange(size[p]) for p in np.argsort(-share, kind="stable")])
    return rows[:budget]


POLICIES = {"window": newest, "quest": quest, "oracle": oracle}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dump")
    parser.add_argument("--budgets", default="256,512,1024")
    parser.add_argument("--against")
    options = parser.parse_args()
    budgets = [int(b) for b in options.budgets.split(",")]

    data = open(options.dump, "rb")
    assert data.read(8) == b"LYQKV1\0\0", "not a dump"
    read = lambda kind, *shape: np.frombuffer(
        data.read(np.dtype(kind).itemsize * int(np.prod(shape))), kind).reshape(shape)
    n_layers, n_kv, group, dim, n_keys, n_queries = (int(x) for x in read("<u4", 6))
    read("<u4", n_layers)
    positions = read("<u4", n_queries)
    scale = 1 / np.sqrt(dim)
    sums = {(name, b): np.zeros(2) for name in POLICIES for b in budgets}
    for _ in range(n_layers):
        keys = read("<f2", n_kv, n_keys, dim).astype(np.float64)
        values = read("<f2", n_kv, n_keys, dim).astype(np.float64)
        queries = read("<f4", n_kv, n_queries, group, dim).astype(np.float64)
        for head in range(n_kv):
            for i, position in enumerate(positions):
                n = int(position) + 1
                k, v, q = keys[head, :n], values[head, :n], queries[head, i]
                z = scale * q @ k.T
                weights = softmax(z, 1)
                truth = weights @ v
                for (name, budget), total in sums.items():
                    if n <= budget:
                        total += 1, 0
                        continue
                    end = n - WINDOW
                    middle = SINKS + POLICIES[name](
                        z[:, SINKS:end], k[SINKS:end], q, scale, budget - SINKS - WINDOW)
                    rows = np.concatenate([np.arange(SINKS), middle, np.arange(end, n)])
                    output = softmax(z[:, rows], 1) @ v[rows]
                    error = np.linalg.norm(output - truth, axis=1) / np.linalg.norm(truth, axis=1)
                    total += weights[:, rows].sum(axis=1).mean(), error.mean()

    printed = {}
    if options.against:
        for line in open(options.against):
            row = json.loads(line)
            printed[row["policy"], row["budget"]] = row
    failed = False
    for (name, budget), total in sums.items():
        mass, error = total / (n_layers * n_kv * n_queries)
        row = printed.get((name, budget))
        note = ""
        if row:
            good = abs(row["mass"] - mass) < 5e-4 and abs(row["error"] - error) < 5e-4
            failed |= not good
            note = f"  printed {row['mass']:.5f} {row['error']:.5f}  {'the same' if good else 'NOT THE SAME'}"
        print(f"{name:8} {budget:6}  mass {mass:.5f}  error {error:.5f}{note}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
