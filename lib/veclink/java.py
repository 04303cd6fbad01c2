"""Which Java Spark will run on. Standard library only: set-up asks before anything is installed.

`python -m veclink.java check FOLDER` prints the Java that will be used, or what to install (exit code 2);
`python -m veclink.java fetch FOLDER` downloads one into FOLDER/.jdk (needs the package install-jdk).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from veclink.errors import InputError, VeclinkError

JAVA_VERSIONS = (17, 21)  # what Spark 4.x supports


def java_home(project: Path | None = None) -> Path:
    """Folder of a supported Java: JAVA_HOME, the project's own .jdk, or `java` on PATH, the first that fits.

    `project` is the folder that holds .jdk; by default the one that holds the virtual environment.
    Raises InputError with the one line that says what to install.
    """
    seen = []
    for place, home in _candidates(project or Path(sys.prefix).parent):
        major = java_major(home)
        if major in JAVA_VERSIONS:
            return home
        seen.append(f"{place}: {f'Java {major}' if major else 'no Java'}")
    raise InputError(
        f"Spark needs Java {' or '.join(map(str, JAVA_VERSIONS))}, and JAVA_HOME, .jdk and PATH have none",
        got=", ".join(seen) or None,
        do="Install one (for example `apt-get install openjdk-17-jre-headless`) or run `make java`",
    )


def _candidates(project: Path) -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    for home in sorted(project.glob(".jdk/*")):
        yield ".jdk", home
        yield ".jdk", home / "Contents" / "Home"  # how a Java for macOS is packed
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent


def java_major(home: Path) -> int | None:
    """Major version of the Java in `home`, None if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None  # made for another machine, or not a Java at all
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def fetch_java(project: Path) -> Path:
    """Download a Java into the project's own .jdk folder and return its home.

    Raises InputError if the network does not allow it.
    """
    import jdk  # the package install-jdk, which only set-up installs

    folder = project / ".jdk"
    folder.mkdir(exist_ok=True)
    try:
        jdk.install(str(JAVA_VERSIONS[0]), path=str(folder))
    except Exception as error:  # it raises whatever its downloader and unpacker raise
        raise InputError(
            "no Java could be downloaded",
            got=f"{type(error).__name__}: {error}",
            do="Install Java 17 or 21 by hand, for example `apt-get install openjdk-17-jre-headless`",
        ) from None
    return java_home(project)


def main(arguments: list[str]) -> int:
    """Run one of the two commands of the module's docstring."""
    verb, folder = arguments
    try:
        home = fetch_java(Path(folder)) if verb == "fetch" else java_home(Path(folder))
    except VeclinkError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"Java {java_major(home)}: {home}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
