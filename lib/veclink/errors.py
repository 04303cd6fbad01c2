"""One error tree. Each class carries the exit code the command line ends with (DESIGN.md, "Exit codes")."""

from typing import Any


class VeclinkError(Exception):
    """Base of every error veclink raises on purpose.

    The message says what is wrong and which input, what was got, and what to do.
    """

    exit_code = 1

    def __init__(self, what: str, *, got: object = None, do: str | None = None) -> None:
        parts = [what.rstrip(".") + "."]
        if got is not None:
            parts.append(f"Got {got}.")
        if do is not None:
            parts.append(do.rstrip(".") + ".")
        super().__init__(" ".join(parts))


class InputError(VeclinkError):
    """Data or settings that cannot be used."""

    exit_code = 2


class SettingsError(InputError):
    """A setting with an unknown name or a value out of its range."""


class NotTakenOff(VeclinkError):
    """The run ended, but its links cannot be trusted; none are reported.

    report: what the run says of itself, as a run that took off returns it.
    """

    exit_code = 3

    def __init__(self, report: dict[str, Any]) -> None:
        do = "Give more seeds, more rows or more alike encoders; or lower the limits, if wrong links do no harm"
        super().__init__(report["exit_reason"], do=do)
        self.report = report


class GateNotMet(VeclinkError):
    """A floor the user set (for example on measured precision) was not reached."""

    exit_code = 4


class RunLocked(VeclinkError):
    """Another process is writing to the same output folder."""

    exit_code = 5
