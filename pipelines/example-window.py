#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Shows a transcript that scrolls as it is read, and colours it by what the running answer attends to.

    example-window.py --model model.gguf --prompt "What was decided?" meeting.txt

Each chunk is coloured by its share of the attention that question and answer pay to the transcript: the
darker, the more. Colours change while the answer is written. A new question may be typed at any time. Answers
go to standard output, too, when they are complete.
"""
import argparse
import bisect
import os
import sys

try:
    import gi

    gi.require_version("Gdk", "4.0")
    gi.require_version("Gtk", "4.0")
    gi.require_version("Lychee", "1.0")
    from gi.repository import Gdk, Gio, GLib, Gtk, Lychee, Pango
except (ImportError, ValueError) as error:
    sys.exit(f"example-window.py: error: {error} (Debian: python3-gi and gir1.2-gtk-4.0;"
             " in the source tree: pipelines/setup --tests, then meson devenv -C build)")

SHADES = 8


def shade(number):
    """A red, the more of it the greater the number."""
    colour = Gdk.RGBA()
    colour.parse(f"rgba(176, 48, 76, {0.12 + 0.1 * number:.2f})")
    return colour


class Window(Gtk.ApplicationWindow):
    """A transcript, a question and its answer."""

    def __init__(self, application, arguments):
        super().__init__(application=application, title="Lychee", default_width=760, default_height=560)
        self.arguments = arguments
        self.lines = arguments.lines
        self.session = None
        self.asking = 0
        self.places = []  # of each chunk that is shown: its position in tokens, where its text begins and ends
        self.tokens = 0

        self.view = Gtk.TextView(editable=False, cursor_visible=False, wrap_mode=Gtk.WrapMode.WORD,
                                 left_margin=16, right_margin=16, top_margin=12, bottom_margin=12,
                                 pixels_below_lines=4)
        self.text = self.view.get_buffer()
        self.shades = [self.text.create_tag(None, background_rgba=shade(i)) for i in range(SHADES)]
        self.end = self.text.create_mark(None, self.text.get_end_iter(), False)
        scrolled = Gtk.ScrolledWindow(child=self.view, vexpand=True)

        self.entry = Gtk.Entry(text=arguments.prompt, placeholder_text="Ask about what was said")
        self.entry.connect("activate", lambda entry: self.ask())
        self.answer = Gtk.Label(wrap=True, xalign=0, selectable=True, wrap_mode=Pango.WrapMode.WORD_CHAR)
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=8, margin_top=8, margin_bottom=8,
                      margin_start=8, margin_end=8)
        for child in (scrolled, self.entry, self.answer):
            box.append(child)
        self.set_child(box)
        Lychee.Model.new_async(arguments.model, None, self.on_loaded)

    def fail(self, error):
        self.arguments.failed = True
        self.answer.set_text(error.message)
        print(f"example-window.py: error: {error.message}", file=sys.stderr)

    def on_loaded(self, source, result):
        try:
            self.session = Lychee.Session(model=Lychee.Model.new_finish(result))
        except GLib.Error as error:
            self.fail(error)
            return
        self.read_next()

    def read_next(self):
        """Gives the next line to the session."""
        if not self.lines:
            self.session.flush_async(None, self.on_all_read)
            return
        self.session.append_text_async(self.lines.pop(0), None, Lychee.TIME_NONE, Lychee.TIME_NONE, None,
                                       self.on_read)

    def on_read(self, session, result):
        try:
            session.append_text_finish(result)
        except GLib.Error as error:
            self.fail(error)
            return
        self.show_chunks()
        self.read_next()

    def on_all_read(self, session, result):
        try:
            session.flush_finish(result)
        except GLib.Error as error:
            self.fail(error)
            return
        self.show_chunks()
        self.ask()

    def show_chunks(self):
        """Shows the chunks that were read since the last time."""
        for chunk in self.session.get_chunks()[len(self.places):]:
            begin = self.text.get_char_count()
            self.text.insert(self.text.get_end_iter(), chunk.text)
            self.places.append((self.tokens, begin, self.text.get_char_count()))
            self.tokens += chunk.n_ids
        self.view.scroll_mark_onscreen(self.end)

    def ask(self):
        if not self.session or not self.entry.get_text():
            return
        self.asking += 1
        self.answer.set_text("")
        question = Lychee.Question(prompt=self.entry.get_text(), max_tokens=self.arguments.max_tokens, evidence=24)
        asking = self.asking

        def on_piece(piece, *_):
            if asking == self.asking:
                self.answer.set_text(self.answer.get_text() + piece)
            return asking == self.asking  # another question ends this answer

        def on_progress(question, so_far):
            if asking == self.asking:
                self.colour(so_far.get_evidence())

        question.connect("progress", on_progress)
        # PyGObject hands on_piece what the tuple holds.
        self.session.ask_async(question, on_piece, (), None, self.on_answer, asking)

    def on_answer(self, session, result, asking):
        try:
            answer = session.ask_finish(result)
        except GLib.Error as error:
            self.fail(error)
            return
        if asking == self.asking:
            self.colour(answer.get_evidence())
            print(answer.get_text().strip(), flush=True)

    def colour(self, evidence):
        """Marks each piece of evidence where its text is, and has the most important one in view."""
        self.text.remove_all_tags(*self.text.get_bounds())
        for piece in evidence:
            at = bisect.bisect(self.places, (piece.position, self.text.get_char_count())) - 1
            begin, end = (self.text.get_iter_at_offset(offset) for offset in self.places[at][1:])
            self.text.apply_tag(self.shades[round(piece.weight / evidence[0].weight * (SHADES - 1))], begin, end)
            if piece is evidence[0]:
                self.view.scroll_to_iter(begin, 0, True, 0, 0.3)


def main():
    parser = argparse.ArgumentParser(description="Shows what the answers about a transcript rest on.")
    parser.add_argument("-m", "--model", default=os.environ.get("LYCHEE_MODEL"), metavar="FILE",
                        help="language model, a GGUF file (or: variable LYCHEE_MODEL)")
    parser.add_argument("-p", "--prompt", default="What was decided?", metavar="TEXT",
                        help="what to ask when all is read")
    parser.add_argument("-n", "--max-tokens", type=int, default=80, metavar="N", help="longest answer, in tokens (80)")
    parser.add_argument("transcript", metavar="FILE")
    arguments = parser.parse_args()
    if not arguments.model:
        parser.error("name a model: --model or LYCHEE_MODEL")
    if arguments.max_tokens < 0:
        parser.error("--max-tokens must be 0 or more")
    try:
        with open(arguments.transcript, encoding="utf-8") as transcript:
            arguments.lines = transcript.readlines()
    except (OSError, UnicodeError) as error:
        sys.exit(f"example-window.py: error: {arguments.transcript}: {getattr(error, 'strerror', None) or error}")

    arguments.failed = False
    application = Gtk.Application(flags=Gio.ApplicationFlags.NON_UNIQUE)
    application.connect("activate", lambda application: Window(application, arguments).present())
    return application.run([]) or arguments.failed


if __name__ == "__main__":
    sys.exit(main())
