#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Answers again, with numpy, what `lychee-bench fidelity --dump DUMP` answered under its policies,
and compares: the rows that each one reads, its answers, mass and error.

usage: fidelity-check.py DUMP [--against FILE]

FILE: the output of the same run with --json. Fails where more than one row in a thousand differs,
answers by more than 0.001 of their length, or mass or error from FILE by more than 0.0005; and where
an index, or clusters, are not what they should be.

Written from what is published and documented, not from the programs: StreamingLLM, Quest, ClusterKV
(whose keys are, beside, clustered here from other first centres: to clusters whose keys are as far
from their means, within a fiftieth) and LycheeCluster; this project's index from docs/architecture.md and lib/lychee-index.h;
how the heads of a group share a choice from tests/bench/policies.h.
"""
import argparse
import json
import sys

import numpy as np

SINKS, WINDOW = 16, 64
QUEST_PAGE = 16
CLUSTERKV_TOKENS, CLUSTERKV_STEP, CLUSTERKV_ROUNDS = 80, 320, 20
RECLUSTERED = "clusterkv, own"
# The benchmark computes in float32: units whose scores are so near to each other it may take for equal.
TIE, TRIES = 1e-5, 8


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def shares(z, sizes):
    """What a row of each unit gets of the heads' attention. z: [head][unit], a row's logit."""
    w = np.exp(z - z.max(axis=1, keepdims=True))
    return (w / (w * sizes).sum(axis=1, keepdims=True)).sum(axis=0)


def join(runs):
    return np.concatenate([np.zeros(0, int), *runs])


class Query:
    """The queries of a group, and the rows that a policy chooses among: SINKS .. end - 1."""

    def __init__(self, k, v, q, scale):
        self.k, self.v, self.q, self.scale = k, v, q, scale
        self.z = scale * q @ k.T
        self.lengths = scale * np.linalg.norm(q, axis=1, keepdims=True)
        self.end = len(k) - WINDOW
        self.ties = None  # random numbers, by which what is next to equal is ranked

    def scores(self, means):
        return self.scale * self.q @ means.T

    def ranked(self, score):
        if self.ties:
            score = score * (1 + self.ties.uniform(-TIE, TIE, len(score)))
        return np.argsort(-score, kind="stable")

    def largest(self, share, sizes, target):
        """The units of the largest shares, until they hold so many rows."""
        order = self.ranked(share)
        return order[: np.searchsorted(np.cumsum(sizes[order]), target) + 1]

    def not_yet(self, begin, budget):
        """Rows from @begin on, which are in no unit yet, the newest first."""
        return np.arange(self.end - 1, begin - 1, -1)[:budget]


# A policy: the rows that it reads, and what it estimates: [head][group] logarithms of weights and
# [group][dim] values. The rest is dropped where that is None.


def window(query, budget, state):
    return np.arange(query.end - budget, query.end), None


def oracle(query, budget, state):
    share = shares(query.z[:, SINKS : query.end], 1)
    return SINKS + query.ranked(share)[:budget], None


def quest(query, budget, state):
    rows = np.arange(SINKS, query.end)
    pages = [rows[i : i + QUEST_PAGE] for i in range(0, len(rows), QUEST_PAGE)]
    low = np.array([query.k[page].min(axis=0) for page in pages])
    high = np.array([query.k[page].max(axis=0) for page in pages])
    z = query.scale * (np.maximum(query.q, 0) @ high.T + np.minimum(query.q, 0) @ low.T)
    order = query.ranked(shares(z, np.array([len(page) for page in pages])))
    return join(pages[i] for i in order)[:budget], None


class Clusters:
    """ClusterKV's: lists of rows."""

    def __init__(self, clusters, begin):
        self.clusters, self.begin = clusters, begin  # of the rows that are in none
        self.means = self.width = None
        self.sizes = np.array([len(cluster) for cluster in clusters])

    @classmethod
    def read(cls, words, dim):
        n, n_rows = int(words[0]), int(words[1])
        starts = words[2 : 2 + n].astype(int)
        rows = words[2 + n : 2 + n + n_rows].astype(int)
        assert len(words) == 2 + n + n_rows
        return cls(np.split(rows, starts[1:]), rows.max() + 1)

    def check(self, k, v):
        rows = np.sort(join(self.clusters))
        assert np.array_equal(rows, np.arange(SINKS, self.begin)), "a row is not in one cluster"
        self.means = np.array([k[cluster].mean(axis=0) for cluster in self.clusters])
        # What k-means makes as small as it can: 1 - cos of the angle between a key and its mean.
        rows, means = join(self.clusters), np.repeat(self.means, self.sizes, axis=0)
        lengths = np.linalg.norm(k[rows], axis=1) * np.linalg.norm(means, axis=1)
        self.width = 1 - ((k[rows] * means).sum(axis=1) / lengths).mean()

    def select(self, query, budget):
        late = query.not_yet(self.begin, budget)
        order = query.ranked(shares(query.scores(self.means), self.sizes))
        rows = join(self.clusters[i] for i in order)
        # Those of the window are read anyway.
        return np.concatenate([late, rows[rows < query.end][: budget - len(late)]]), None


def clusterkv(query, budget, state):
    return state.select(query, budget)


def spherical_kmeans(k, n_clusters, random):
    """Lists of places in k."""
    centres = k[random.choice(len(k), n_clusters, replace=False)]
    label = None
    for _ in range(CLUSTERKV_ROUNDS):
        old, lengths = label, np.linalg.norm(centres, axis=1, keepdims=True)
        label = (k @ (centres / np.maximum(lengths, 1e-30)).T).argmax(axis=1)
        if old is not None and np.array_equal(old, label):
            break
        for i in np.unique(label):
            centres[i] = k[label == i].mean(axis=0)
    return [np.flatnonzero(label == i) for i in np.unique(label)]


def cluster(k, n_prompt, random):
    """ClusterKV's clusters of a prompt, and of what was decoded since in steps."""
    clusters, begin, end = [], SINKS, n_prompt
    while end <= len(k):
        n = max((end - begin) // CLUSTERKV_TOKENS, 1)
        clusters += [begin + rows for rows in spherical_kmeans(k[begin:end], n, random)]
        begin, end = end, end + CLUSTERKV_STEP
    return Clusters(clusters, begin)


class Chunks:
    """LycheeCluster's: chunks in clusters with a radius."""

    def __init__(self, words, dim):
        items = words[1:].reshape(int(words[0]), 6 + 2 * dim)
        keys, first = np.unique(items[:, :2], axis=0, return_index=True)
        self.rows = [
            join(np.arange(f, f + n) for f, n in items[(items[:, :2] == key).all(axis=1), 2:4].astype(int))
            for key in keys
        ]
        self.radius, self.unit_radius = items[first, 4:6].copy().view("<f4").astype(float).T
        self.centre = items[first, 6 : 6 + dim].copy().view("<f4").astype(float)
        self.unit_centre = items[first, 6 + dim :].copy().view("<f4").astype(float)
        self.begin = max(rows.max() for rows in self.rows) + 1

    @classmethod
    def read(cls, words, dim):
        return cls(words, dim)

    def check(self, k, v):
        rows = np.sort(join(self.rows))
        assert np.array_equal(rows, np.arange(SINKS, self.begin)), "a row is not in one cluster"


def lycheecluster(query, budget, state):
    late = query.not_yet(state.begin, budget)
    bound = query.scores(state.centre) + query.lengths * state.radius
    # Beside the largest bound of a coarse unit.
    unit_bound = query.scores(state.unit_centre) + query.lengths * state.unit_radius
    score = np.exp(bound - unit_bound.max(axis=1, keepdims=True)).sum(axis=0)
    rows = join(state.rows[i] for i in query.ranked(score))
    return np.concatenate([late, rows[: budget - len(late)]]), None


class Index:
    """This project's: coarse nodes with a mean key and value, in them leaves with a mean key and how
    far its keys are from it."""

    def __init__(self, words, dim):
        n, n_leaves, n_rows = (int(x) for x in words[:3])
        at = 3

        def take(count, kind, width=None):
            nonlocal at
            found = words[at : at + count * (width or 1)].view(kind)
            at += len(found)
            found = found.astype(float if kind == "<f4" else int)
            return found.reshape(count, width) if width else found

        self.key, self.value = take(n, "<f4", dim), take(n, "<f4", dim)
        self.node = np.repeat(np.arange(n), take(n, "<u4"))
        self.leaf_key = take(n_leaves, "<f4", dim)
        self.spread, self.leaf_count = take(n_leaves, "<f4"), take(n_leaves, "<u4")
        self.rows = np.split(take(n_rows, "<u4"), np.cumsum(self.leaf_count)[:-1])
        assert at == len(words)
        self.count = np.bincount(self.node, self.leaf_count, n)
        self.begin = SINKS + n_rows
        self.open = 3072 if dim < 128 else 6144

    @classmethod
    def read(cls, words, dim):
        return cls(words, dim)

    def check(self, k, v):
        rows = np.sort(join(self.rows))
        assert np.array_equal(rows, np.arange(SINKS, self.begin)), "a row is not in one leaf"
        means = np.array([k[rows].mean(axis=0) for rows in self.rows])
        spreads = np.array([np.sqrt(k[rows].var(axis=0).mean()) for rows in self.rows])
        # A leaf's mean is its difference from the node's in 4 bits, its spread in eighths of octaves.
        step = np.abs(self.leaf_key - self.key[self.node]).max(axis=1, keepdims=True) / 7
        assert (np.abs(means - self.leaf_key) <= 0.51 * step + 1e-6).all(), "a leaf's mean is wrong"
        near = np.abs(np.log2(np.maximum(spreads, 1e-4) / np.maximum(self.spread, 1e-4)))
        assert (near < 0.07).all(), "a leaf's spread is wrong"
        for i, (key, value) in enumerate(zip(self.key, self.value)):
            rows = join(self.rows[leaf] for leaf in np.flatnonzero(self.node == i))
            for mean, of in (key, k[rows]), (value, v[rows]):
                # In 8 bits, and an eighth of its rows may be newer than it.
                true, code = of.mean(axis=0), np.sqrt(len(mean)) * np.abs(mean).max() / 127 / 2
                lag = np.linalg.norm(of - true, axis=1).max() / 7
                assert np.linalg.norm(true - mean) <= code + lag + 1e-6, "a node's mean is wrong"

    def search(self, query, budget, estimate):
        late = query.not_yet(self.begin, budget)
        budget -= len(late)
        z = query.scores(self.key)
        most = min(self.open + 2 * budget, self.count.sum())
        opened = query.largest(shares(z, self.count), self.count, most)
        leaves = np.flatnonzero(np.isin(self.node, opened))
        counts = self.leaf_count[leaves]
        leaf_z = query.scores(self.leaf_key[leaves])
        # With an estimate of the rest, a wide leaf is worth more reading.
        near = query.lengths * self.spread[leaves] if estimate else 0
        chosen = query.largest(shares(leaf_z + near, counts), counts, budget)
        rows = join(self.rows[leaves[i]] for i in chosen)[:budget]
        if not estimate:
            return np.concatenate([late, rows]), None
        read = np.zeros(len(leaves))
        for i in chosen:
            read[i] = np.isin(self.rows[leaves[i]], rows).sum()
        unread = np.concatenate([np.delete(self.count, opened), counts - read])
        logits = np.concatenate([np.delete(z, opened, axis=1), leaf_z], axis=1)
        values = np.concatenate([np.delete(self.value, opened, axis=0), self.value[self.node[leaves]]])
        left = unread > 0
        return np.concatenate([late, rows]), (logits[:, left] + np.log(unread[left]), values[left])


def token(query, budget, state):
    return state.search(query, budget, True)


def token_drop(query, budget, state):
    return state.search(query, budget, False)


POLICIES = {
    "window": (window, None),
    "oracle": (oracle, None),
    "quest": (quest, None),
    "clusterkv": (clusterkv, Clusters),
    "lycheecluster": (lycheecluster, Chunks),
    "token": (token, Index),
    "token-drop": (token_drop, Index),
}


class Dump:
    """The file, which fidelity-dump.c describes."""

    def __init__(self, path):
        self.data, self.at = np.memmap(path, np.uint8, "r"), 0
        assert bytes(self.take("u1", 8)) == b"LYQKV1\0\0", "not a dump"
        self.n_layers, self.n_kv, self.group, self.dim, n_keys, n = (int(x) for x in self.take("<u4", 6))
        self.take("<u4", self.n_layers)
        self.positions = self.take("<u4", n).astype(int)
        self.layers = [
            (self.take("<f2", self.n_kv, n_keys, self.dim), self.take("<f2", self.n_kv, n_keys, self.dim),
             self.take("<f4", self.n_kv, n, self.group, self.dim))
            for _ in range(self.n_layers)
        ]
        assert self.at < len(self.data), "no policies in the dump"
        assert bytes(self.take("u1", 8)) == b"LYSEEN1\0", "not a dump"
        self.take("<u4", int(self.take("<u4", 1)[0]))
        for _ in range(self.n_layers * self.n_kv):
            n = int(self.take("<u4", 1)[0])
            self.take("<u4", n * (1 + self.dim))
        assert self.at < len(self.data), "no policies in the dump"
        assert bytes(self.take("u1", 8)) == b"LYPOL1\0\0", "not a dump"
        n_policies, n_budgets = (int(x) for x in self.take("<u4", 2))
        self.budgets = [int(x) for x in self.take("<u4", n_budgets)]
        self.policies = [bytes(self.take("u1", 16)).rstrip(b"\0").decode() for _ in range(n_policies)]

    def take(self, kind, *shape):
        n = np.dtype(kind).itemsize * int(np.prod(shape))
        found = self.data[self.at : self.at + n]
        assert len(found) == n, "the dump is cut off"
        self.at += n
        return np.array(found).view(kind).reshape(shape)

    def take_state(self):
        return self.take("<u4", int(self.take("<u4", 1)[0]) // 4)

    def take_answer(self):
        rows = self.take("<u4", int(self.take("<u4", 1)[0])).astype(int)
        return rows, self.take("<f4", self.group, self.dim).astype(float)


class Sums:
    """Means over all queries of one policy and budget."""

    def __init__(self):
        self.n = self.mass = self.error = self.rows = self.answer = 0.0

    def add(self, mass, error, rows, answer):
        self.n += 1
        self.mass, self.error = self.mass + mass, self.error + error
        self.rows, self.answer = self.rows + rows, self.answer + answer

    def get(self):
        return [x / self.n for x in (self.mass, self.error, self.rows, self.answer)]


def answer(query, rows, rest):
    """Attention over rows and groups, and its mass and error."""
    z, values = query.z[:, rows], query.v[rows]
    if rest:
        z, values = np.concatenate([z, rest[0]], axis=1), np.concatenate([values, rest[1]])
    truth = softmax(query.z)
    mass = truth[:, rows].sum(axis=1).mean()
    truth = truth @ query.v
    lengths = np.linalg.norm(truth, axis=1)
    output = softmax(z) @ values
    return output, mass, (np.linalg.norm(output - truth, axis=1) / lengths).mean(), lengths


def ask(function, query, budget, state, ties=None):
    """All rows that are read, sinks and window among them."""
    n = len(query.k)
    if n <= budget:
        return np.arange(n), None
    query.ties = ties
    rows, rest = function(query, budget - SINKS - WINDOW, state)
    return np.concatenate([np.arange(SINKS), rows, np.arange(query.end, n)]), rest


def ask_like(theirs, function, query, budget, state, random):
    """The same; of answers that are as good, one that reads the rows of @theirs."""
    for ties in [None] + [random] * TRIES:
        found = ask(function, query, budget, state, ties)
        if np.array_equal(np.sort(found[0]), np.sort(theirs)):
            break
    return found


def check_head(dump, k, v, queries, sums, random):
    states, own = {}, None
    k, v = k.astype(float), v.astype(float)
    for i, position in enumerate(dump.positions):
        n = position + 1
        query = Query(k[:n], v[:n], queries[i].astype(float), 1 / np.sqrt(dump.dim))
        for name in dump.policies:
            words, (function, kind) = dump.take_state(), POLICIES[name]
            if len(words):
                states[name] = kind.read(words, dump.dim)
                states[name].check(query.k, query.v)
            for budget in dump.budgets:
                their_rows, theirs = dump.take_answer()
                rows, rest = ask_like(their_rows, function, query, budget, states.get(name), random)
                mine, mass, error, lengths = answer(query, rows, rest)
                apart = np.linalg.norm(mine - theirs, axis=1) / lengths
                differ = len(np.setdiff1d(rows, their_rows)) + abs(len(rows) - len(their_rows))
                sums[name, budget].add(mass, error, differ / len(rows), apart.mean())
                if name == "clusterkv":
                    if own is None or n >= own.begin + CLUSTERKV_STEP:
                        own = cluster(k[:n], dump.positions[0], random)
                        own.check(query.k, query.v)
                    rows, _ = ask(clusterkv, query, budget, own)
                    widths = states[name].width, own.width
                    sums[RECLUSTERED, budget].add(*answer(query, rows, None)[1:3], *widths)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dump")
    parser.add_argument("--against")
    options = parser.parse_args()
    dump, random = Dump(options.dump), np.random.default_rng(1)
    names = dump.policies + [RECLUSTERED] * ("clusterkv" in dump.policies)
    sums = {(name, budget): Sums() for name in names for budget in dump.budgets}
    for k, v, q in dump.layers:
        for head in range(dump.n_kv):
            check_head(dump, k[head], v[head], q[head], sums, random)
    assert dump.at == len(dump.data), "there is more in the dump"

    printed = {}
    if options.against:
        with open(options.against) as lines:
            printed = {(row["policy"], row["budget"]): row for row in map(json.loads, lines)}
    failed = False
    for (name, budget), total in sums.items():
        mass, error, rows, apart = total.get()
        wrong, note = rows > 1e-3 or apart > 1e-3, f"rows {rows:.5f}  answers {apart:.6f}"
        if name == RECLUSTERED:
            wrong, note = abs(apart / rows - 1) > 0.02, f"clusters {apart / rows:.3f} times as wide"
        elif (name, budget) in printed:
            row = printed[name, budget]
            wrong |= abs(row["mass"] - mass) > 5e-4 or abs(row["error"] - error) > 5e-4
            note += f"  printed {row['mass']:.5f} {row['error']:.5f}"
        failed |= wrong
        verdict = "NOT THE SAME" if wrong else "the same"
        print(f"{name:14} {budget:6}  mass {mass:.5f}  error {error:.5f}  {note}  {verdict}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
