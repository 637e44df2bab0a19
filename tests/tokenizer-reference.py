#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes tests/data/tokenizer/reference.tsv: a small vocabulary, and for each kind of cutting text
into words the ids that the Python package `tokenizers` makes of some texts with it.

Usage: tests/tokenizer-reference.py > tests/data/tokenizer/reference.tsv

The regular expressions are those of the models' own tokenizer.json."""

import json
import os
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
GPT4O = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+%s|[^\\r\\n\\p{L}\\p{N}]?" + UPPER + "+" +
         LOWER + r"*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)


DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+",
                  "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"]


def split(*patterns):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# by values of tokenizer.ggml.pre: how text is cut, and whether a word that is a token is not merged
KINDS = {
    "gpt-2": (pre_tokenizers.ByteLevel(add_prefix_space=False), False),
    "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)]), False),
    "llama-bpe": (split(LLAMA3 % r"\p{N}{1,3}"), True),
    "qwen2": (split(LLAMA3 % r"\p{N}"), False),
    "qwen35": (split(LLAMA3.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"\s\p{L}", r"\s\p{L}\p{M}")
                     % r"\p{N}"), False),
    "seed-coder": (split((LLAMA3 % r"\p{N}").replace(r"]+[\r\n]*|", "]+|")), False),
    "minicpm5": (split(r"\p{N}{1,3}", LLAMA3 % r"\p{N}+"), True),
    "deepseek-coder": (split(*DEEPSEEK_CODER), False),
    "gpt-4o": (split(GPT4O % (CONTRACTIONS + "?", CONTRACTIONS + "?", r"\p{N}{1,3}")), False),
    "tekken": (split(GPT4O % ("", "", r"\p{N}")), True),
}

TEXTS = [
    "Hello, world! It's nine o'clock.",
    "The budget was 1,234,567.89 dollars in 2026.",
    "don't I'll we've YOU'RE O'Brien's THEY'LL 'tis '90s rock'n'roll",
    "  two spaces\tand a tab\n\nnew paragraph\r\nwindows  \n  end   ",
    "getName HTTPServer iPhone eBay McDonald XMLHttpRequest ALL CAPS",
    "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \u2026",
    "e\u0301te\u0301 \u0301alone !\u0301 !!\u0301\u0301a A\u0301B\u0301c",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002ABC\u65e5\u672cABCabc \u4e2d\u6587X",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0661\u0662\u0663",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 12\u096d",
    "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439\u0442\u0435, \u041c\u0438\u0440! \u0421\u0421\u0421\u0420",
    "\U0001f469\u200d\U0001f467 \U0001f600\U0001f600 \u00bd \u2167 x\u00b2",
    "http://example.org/a//b/\n/c path/to/file.txt //\n\n// end",
    "f(x) == y && !z || {\"a\": [1, 2]} <|im_end|> #tag @me $5 50% C++",
    "\u01c5ungla \u02b0a \u00df\u1e9e \u017f's K\u212a's",
    "\u00a0no-break\u00a0 \u3000wide \u2003em\u2003\u2003 \x85nel",
    "a'sb 'sa 'S'T're'r 'l 'll'L'lL x'r",
    "1 12 123 1234 12345 a1b22c333 1.5e10",
    "",
    " ",
    "\n",
    "'",
    "A", "AB", "a", "\u65e5A", "\u65e5Aa",
]


def byte_letters():
    """GPT-2's letters for bytes."""
    keep = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters, n = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte if byte in keep else 256 + n)
        n += byte not in keep
    return letters


def train():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipelines", "samples")
    with open(os.path.join(root, "tide-pools.txt"), encoding="utf-8") as f:
        corpus = [f.read()] + [text for text in TEXTS for _ in range(20)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = KINDS["gpt-4o"][0]
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=sorted(byte_letters().values()), show_progress=False))
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def escape(text):
    out = []
    for byte in text.encode():
        c = chr(byte)
        out.append(c if 0x20 <= byte < 0x7f and c not in "\\\"" else "\\%03o" % byte)
    return "".join(out)


def main():
    merges = train()
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    print("# Made by tests/tokenizer-reference.py with tokenizers %s (PyPI): a vocabulary, and"
          % tokenizers.__version__)
    print("# what it makes of texts, by tokenizer.ggml.pre.")
    for left, right in merges:
        print("merge\t%s %s" % (left, right))
    for name, (cut, ignore_merges) in KINDS.items():
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=ignore_merges))
        tokenizer.pre_tokenizer = cut
        tokenizer.decoder = decoders.ByteLevel()
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            assert tokenizer.decode(ids) == text, (name, text)
            print("ids\t%s\t%s\t%s" % (name, escape(text), " ".join(map(str, ids))))


if __name__ == "__main__":
    sys.exit(main())
