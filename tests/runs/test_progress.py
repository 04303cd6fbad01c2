"""What a person sees: lines in a file, one rewritten line on a terminal."""

from __future__ import annotations

import io

from veclink.runs.progress import Lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_than_on_a_terminal_only_notes_are_written():
    stream = io.StringIO()
    lines = Lines(stream)
    lines.step("working")
    lines.note("round 1 done")
    assert stream.getvalue() == "round 1 done\n"


def test_on_a_terminal_a_note_takes_the_place_of_the_step():
    stream = Terminal()
    lines = Lines(stream)
    lines.step("working hard")
    lines.note("done")
    assert stream.getvalue() == "working hard" + "\r" + " " * 12 + "\r" + "done\n"
