#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes real queries, keys and values of a Llama-like GGUF model over a text, for index-lab.

usage: dump_qkv.py MODEL.gguf IDS.json OUT --tokens N [--layers 0,1,2,...] [--queries 25] [--yarn F]

IDS.json: a list of token ids (llama-tokenize --ids prints one). Needs numpy and gguf.
OUT, little endian: "LYQKV1\\0\\0"; u32 n_layers, n_kv, group, head_dim, n_tokens, n_queries;
u32 layer[n_layers]; u32 position[n_queries]; then for each layer K f16 [n_kv][n_tokens][head_dim],
V the same, Q f32 [n_kv][n_queries][group][head_dim]; K and Q after RoPE.
"""
import argparse, json, math, struct, sys
import numpy as np
from gguf import GGUFReader, dequantize

ap = argparse.ArgumentParser()
ap.add_argument("model"); ap.add_argument("ids"); ap.add_argument("out")
ap.add_argument("--tokens", type=int, default=8000)
ap.add_argument("--layers", default="0,1,2,5,10,15,20,25,29")
ap.add_argument("--queries", type=int, default=25)
ap.add_argument("--yarn", type=float, default=1.0)
a = ap.parse_args()

r = GGUFReader(a.model)
field = lambda k: r.fields[k].contents()
arch = field("general.architecture")
n_layer = field(arch + ".block_count"); n_head = field(arch + ".attention.head_count")
n_kv = field(arch + ".attention.head_count_kv"); d_model = field(arch + ".embedding_length")
eps = field(arch + ".attention.layer_norm_rms_epsilon"); base = field(arch + ".rope.freq_base")
n_ctx = field(arch + ".context_length")
hd = d_model // n_head; group = n_head // n_kv
T = {t.name: t for t in r.tensors}
def w(name):
    t = T[name]
    return dequantize(t.data, t.tensor_type).astype(np.float32)
ids = json.load(open(a.ids))[: a.tokens]; N = len(ids)
assert N == a.tokens, f"only {N} tokens"
layers = [int(x) for x in a.layers.split(",")]
qpos = [N - 4 * (a.queries - i) for i in range(a.queries)]

# RoPE, adjacent pairs; YaRN (Peng et al. 2023) for positions beyond the model's own.
i = np.arange(hd // 2); theta = base ** (-2.0 * i / hd); att = 1.0
if a.yarn > 1:
    corr = lambda rot: hd * math.log(n_ctx / (rot * 2 * math.pi)) / (2 * math.log(base))
    lo, hi = max(0, math.floor(corr(32))), min(hd - 1, math.ceil(corr(1)))
    ramp = 1 - np.clip((i - lo) / max(0.001, hi - lo), 0, 1)
    theta = theta / a.yarn * (1 - ramp) + theta * ramp
    att = 0.1 * math.log(a.yarn) + 1
ang = np.arange(N)[:, None] * theta[None]
C = (np.cos(ang) * att).astype(np.float32); S = (np.sin(ang) * att).astype(np.float32)
def rope(x):  # [N][heads][hd]
    e, o = x[..., 0::2], x[..., 1::2]
    y = np.empty_like(x)
    y[..., 0::2] = e * C[:, None] - o * S[:, None]
    y[..., 1::2] = e * S[:, None] + o * C[:, None]
    return y
def norm(x, g):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g

f = open(a.out, "wb")
f.write(b"LYQKV1\0\0" + struct.pack("<6I", len(layers), n_kv, group, hd, N, len(qpos)))
f.write(np.array(layers, "<u4").tobytes() + np.array(qpos, "<u4").tobytes())
emb = w("token_embd.weight"); x = emb[np.array(ids)]
for l in range(n_layer):
    p = f"blk.{l}."
    h = norm(x, w(p + "attn_norm.weight"))
    q = rope((h @ w(p + "attn_q.weight").T).reshape(N, n_head, hd))
    k = rope((h @ w(p + "attn_k.weight").T).reshape(N, n_kv, hd)).astype(np.float16)
    v = (h @ w(p + "attn_v.weight").T).reshape(N, n_kv, hd).astype(np.float16)
    if l in layers:
        for t in (k, v):
            f.write(np.ascontiguousarray(t.transpose(1, 0, 2)).tobytes())
        Q = q[qpos].reshape(len(qpos), n_kv, group, hd).transpose(1, 0, 2, 3)
        f.write(np.ascontiguousarray(Q, dtype="<f4").tobytes())
    if l == max(layers):
        break
    o = np.empty((N, n_head, hd), np.float32)
    B = 512
    for hq in range(n_head):
        K = k[:, hq // group].astype(np.float32); V = v[:, hq // group].astype(np.float32)
        for b in range(0, N, B):
            e = min(N, b + B)
            s = (q[b:e, hq] @ K[:e].T) / math.sqrt(hd)
            s[:, b:e][np.triu(np.ones((e - b, e - b), bool), 1)] = -np.inf
            s -= s.max(-1, keepdims=True); np.exp(s, out=s)
            o[b:e, hq] = (s @ V[:e]) / s.sum(-1, keepdims=True)
    x = x + o.reshape(N, -1) @ w(p + "attn_output.weight").T
    h = norm(x, w(p + "ffn_norm.weight"))
    g = h @ w(p + "ffn_gate.weight").T
    x = x + ((g / (1 + np.exp(-g))) * (h @ w(p + "ffn_up.weight").T)) @ w(p + "ffn_down.weight").T
    print("layer", l, "rms", float(np.sqrt((x * x).mean())), flush=True)
if max(layers) == n_layer - 1:  # the last queries' next tokens, to see that it is a language model
    pass
