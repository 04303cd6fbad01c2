"""The memory of a run's processes while it lasts: driver (Python and JVM) and executors (JVM and workers, each).

Linux only: /proc is read once a second.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType

SECONDS = 1.0
EXECUTOR = "CoarseGrainedExecutorBackend"
DRIVER = "driver"


class Peak:
    """The most memory that driver and executors of the process `root` held at a time, in bytes.

    own: what is no other's (RssAnon). all: pages of mapped files too, which the system can take back.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self.own: dict[str, int] = defaultdict(int)
        self.all: dict[str, int] = defaultdict(int)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SECONDS):
            own, every = defaultdict(int), defaultdict(int)
            for role, pid in self._roles():
                status = _read(f"/proc/{pid}/status")
                own[role] += _kilobytes(status, "RssAnon") * 1024
                every[role] += _kilobytes(status, "VmRSS") * 1024
            for peak, now in ((self.own, own), (self.all, every)):
                for role, size in now.items():
                    peak[role] = max(peak[role], size)

    def _roles(self) -> list[tuple[str, int]]:
        """Every process of the run: the driver's, or those of the executor it descends from."""
        children = defaultdict(list)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            text = _read(str(stat))
            if text:
                children[int(text.rpartition(")")[2].split()[1])].append(int(stat.parent.name))
        found, queue = [], [(DRIVER, self._root)]
        while queue:
            role, pid = queue.pop()
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ")
            if EXECUTOR in command:
                number = re.search(r"--executor-id (\S+)", command)
                role = f"executor {number.group(1) if number else pid}"
            found.append((role, pid))
            queue += [(role, child) for child in children[pid]]
        return found


def _read(path: str) -> str:
    """A file of /proc; nothing if its process has just ended."""
    try:
        return Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _kilobytes(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found.group(1)) if found else 0
