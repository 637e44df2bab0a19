#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs a program with a window on a display of its own, and takes a picture of it.

Usage: screenshot.py [--running] PNG COMMAND...

The picture is taken once something on the display is red: a part of a transcript that an answer attends to
(pipelines/example-window.py). Fails where that does not come about. With --running it is the last one before
the program prints its answer.
"""
import mmap
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import gi

gi.require_version("GdkPixbuf", "2.0")
from gi.repository import GdkPixbuf, GLib  # noqa: E402

LIMIT = 100  # seconds for all of it
WIDTH, HEIGHT = 760, 560


def frame(path):
    """The display's pixels, RGB, out of the X server's own file (X Window Dump, all big-endian)."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as dump:
        header = struct.unpack(">25I", dump[:100])
        size, width, height, bits, stride, colours = (header[i] for i in (0, 4, 5, 11, 12, 19))
        if bits != 32 or (width, height) != (WIDTH, HEIGHT):
            sys.exit(f"the display has {width} x {height} pixels of {bits} bits")
        start = size + colours * 12
        pixels = dump[start:start + stride * height]
    result = bytearray(width * height * 3)
    for channel in range(3):  # stored as blue, green, red, nothing
        result[channel::3] = pixels[2 - channel::4]
    return bytes(result)


def reds(pixels):
    return sum(r > g + 25 and r > b + 20 for r, g, b in zip(pixels[::3], pixels[1::3], pixels[2::3]))


def main():
    running = sys.argv[1] == "--running"
    png, *command = sys.argv[1 + running:]
    end = time.monotonic() + LIMIT
    folder = tempfile.mkdtemp()
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", f"{WIDTH}x{HEIGHT}x24",
                               "-nolisten", "tcp", "-fbdir", folder], pass_fds=[write],
                              stderr=subprocess.DEVNULL)
    os.close(write)
    program = None
    try:
        with os.fdopen(read) as display:
            number = display.readline().strip()
        if not number:
            sys.exit("Xvfb did not start")
        program = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(
            os.environ, DISPLAY=f":{number}", GDK_BACKEND="x11", GSK_RENDERER="cairo", GSETTINGS_BACKEND="memory",
            GTK_A11Y="none"))
        pixels = b""
        while reds(pixels) < 200:
            if program.poll() is not None or time.monotonic() > end:
                sys.exit("nothing is coloured")
            time.sleep(0.05)  # what is waited for is on the screen, which tells nobody
            pixels = frame(os.path.join(folder, "Xvfb_screen0"))
        while running:
            last, pixels = pixels, frame(os.path.join(folder, "Xvfb_screen0"))
            if select.select([program.stdout], [], [], 0.05)[0]:
                pixels = last
                break
        GdkPixbuf.Pixbuf.new_from_bytes(GLib.Bytes.new(pixels), GdkPixbuf.Colorspace.RGB, False, 8, WIDTH,
                                        HEIGHT, WIDTH * 3).savev(png, "png", [], [])
    finally:
        for process in (program, server):
            if process:
                process.terminate()
                process.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
