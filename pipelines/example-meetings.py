#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Answers a question over several meetings.

    example-meetings.py --model model.gguf --prompt "Who waters the beans?" monday.txt tuesday.txt

Each meeting is a session of its own, and is read once; all of them share the model. Every meeting is asked,
and the answer comes with what it rests on. A line `Name: words` tells who speaks.
"""
import argparse
import os
import re
import sys

try:
    import gi

    gi.require_version("Lychee", "1.0")
    from gi.repository import GLib, Lychee
except (ImportError, ValueError) as error:
    sys.exit(f"example-meetings.py: error: {error} (Debian: python3-gi;"
             " in the source tree: pipelines/setup --tests, then meson devenv -C build)")


def read(model, path):
    """Reads a meeting into a session."""
    session = Lychee.Session(model=model)
    with open(path, encoding="utf-8") as meeting:
        for line in meeting:
            speaker, words = re.match(r"(?:(\w[\w .'-]{0,30}):\s)?(.*)", line.rstrip("\n")).groups()
            session.append_text(words + "\n", speaker, Lychee.TIME_NONE, Lychee.TIME_NONE, None)
    session.flush(None)
    return session


def ask(model, path, question):
    """Prints the answer of one meeting, with what it rests on."""
    answer = read(model, path).ask(question, None, None)
    print(f"{path}: {answer.get_text().strip()}")
    for evidence in answer.get_evidence():
        print(f"    {evidence.weight:4.0%} {evidence.text.strip()}")


def main():
    parser = argparse.ArgumentParser(description="Answers a question over several meetings.")
    parser.add_argument("-m", "--model", default=os.environ.get("LYCHEE_MODEL"), metavar="FILE",
                        help="language model, a GGUF file (or: variable LYCHEE_MODEL)")
    parser.add_argument("-p", "--prompt", default="What was decided?", metavar="TEXT", help="what to ask")
    parser.add_argument("-n", "--max-tokens", type=int, default=80, metavar="N", help="longest answer, in tokens (80)")
    parser.add_argument("meetings", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    if not arguments.model:
        parser.error("name a model: --model or LYCHEE_MODEL")
    if arguments.max_tokens < 0:
        parser.error("--max-tokens must be 0 or more")

    about = ""
    try:
        model = Lychee.Model.new_from_file(arguments.model)
        question = Lychee.Question(prompt=arguments.prompt, max_tokens=arguments.max_tokens, evidence=2)
        for path in arguments.meetings:
            about = f"{path}: "
            ask(model, path, question)
    except GLib.Error as error:
        sys.exit(f"example-meetings.py: error: {about}{error.message}")
    except (OSError, UnicodeError) as error:
        sys.exit(f"example-meetings.py: error: {about}{getattr(error, 'strerror', None) or error}")


if __name__ == "__main__":
    main()
