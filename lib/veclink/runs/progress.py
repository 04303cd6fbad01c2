"""What a person sees while a run is on: one line a round; on a terminal the last line is rewritten."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO


class Progress(Protocol):
    """Where a run reports to."""

    def note(self, text: str) -> None:
        """A fact worth a line of its own."""

    def step(self, text: str) -> None:
        """What is going on now; replaced by the next step or note where the output allows it."""


class Quiet:
    """Reports nothing."""

    def note(self, text: str) -> None:
        """Drop the line."""

    def step(self, text: str) -> None:
        """Drop the line."""


class Lines:
    """Notes as lines on a stream (standard error); steps only on a terminal, each over the last."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._open = 0  # width of the step now on the last line

    def note(self, text: str) -> None:
        """Print a line that stays."""
        print(self._wipe() + text, file=self._stream, flush=True)
        self._open = 0

    def step(self, text: str) -> None:
        """Rewrite the last line of a terminal."""
        if self._terminal:
            print(self._wipe() + text, end="", file=self._stream, flush=True)
            self._open = len(text)

    def _wipe(self) -> str:
        return "\r" + " " * self._open + "\r" if self._open else ""
