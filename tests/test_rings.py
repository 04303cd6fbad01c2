"""Imports go one way: jobs and cli -> runs -> stages -> backends -> kernels, and leaves that know next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lib" / "veclink"

# What each leaf may import of ours. A new leaf is entered here, or the test fails.
LEAVES: dict[str, set[str]] = {
    "arrow_cols": set(),
    "candidates": {"kernels", "schemas"},
    "errors": set(),
    "half_parquet": set(),
    "java": {"errors"},
    "local_spark": {"errors", "java", "settings"},
    "pages": {"errors"},
    "runtime": {"errors", "java", "local_spark", "settings"},
    "schemas": set(),
    "settings": {"errors"},
    "shards": {"arrow_cols"},
    "steps": set(),
    "tables": {"errors", "half_parquet", "schemas"},
}
# What each ring may import of ours. Only stages may not import each other.
RINGS: dict[str, set[str]] = {
    "kernels": {"kernels"},
    "backends": {"kernels", "backends", "errors"},
    "stages": {"kernels", "backends", *LEAVES},
    "runs": {"kernels", "backends", "stages", "runs", *LEAVES},
    "cli": {"runs", *LEAVES},
    "jobs": {"cli", "runs", "stages", *LEAVES},
}
# Rings that see arrays only, and the libraries they may know.
LIBRARIES: dict[str, set[str]] = {
    "kernels": {"numpy"},
    "backends": {"numpy", "faiss", "cupy", "cuvs", "cudf", "cuml", "pylibraft", "rmm"},
}


def imported(source: str) -> Iterator[str]:
    """Dotted names of everything a module imports, wherever in it; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ("." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names)


def breaches(ring: str, source: str) -> list[str]:
    """What a module of a ring (or the leaf of that name) imports against the rules."""
    allowed = RINGS[ring] if ring in RINGS else LEAVES[ring]
    found = []
    for name in imported(source):
        top, _, rest = name.partition(".")
        if name.startswith("."):
            found.append(f"{name}: relative")
        elif top == "veclink":
            part = rest.partition(".")[0]
            if part in RINGS or part in LEAVES:
                if part not in allowed:
                    found.append(name)
            elif part != "__version__":
                found.append(f"{name}: in no ring")
        elif ring in LIBRARIES and top not in LIBRARIES[ring] and top not in sys.stdlib_module_names:
            found.append(name)
    return found


def _modules() -> list[tuple[str, Path]]:
    inside = [(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in PACKAGE.rglob("*.py")]
    jobs = [("jobs", path) for path in (ROOT / "jobs").glob("*.py")]
    return sorted((ring, path) for ring, path in inside + jobs if ring != "__init__")


@pytest.mark.parametrize(("ring", "path"), [pytest.param(r, p, id=str(p.relative_to(ROOT))) for r, p in _modules()])
def test_module_keeps_to_its_ring(ring: str, path: Path) -> None:
    assert ring in RINGS or ring in LEAVES, f"{ring} belongs to no ring: enter it above, or move it"
    assert breaches(ring, path.read_text(encoding="utf-8")) == []


def test_every_ring_and_leaf_was_looked_at() -> None:
    assert {ring for ring, _ in _modules()} == set(RINGS) | set(LEAVES)


def test_package_itself_imports_nothing_of_ours() -> None:
    assert list(imported((PACKAGE / "__init__.py").read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("ring", "source", "breach"),
    [
        ("kernels", "import pyarrow as pa", "pyarrow"),
        ("kernels", "def f():\n    from veclink import errors", "veclink.errors"),
        ("kernels", "from veclink.backends.numpy_tiles import nearest", "veclink.backends.numpy_tiles.nearest"),
        ("kernels", "from ..errors import InputError", "..errors.InputError: relative"),
        ("backends", "import pyspark.sql", "pyspark.sql"),
        ("backends", "from veclink import settings", "veclink.settings"),
        ("stages", "from veclink.stages.propose import plan", "veclink.stages.propose.plan"),
        ("stages", "if TYPE_CHECKING:\n    import veclink.runs.link", "veclink.runs.link"),
        ("runs", "from veclink import cli", "veclink.cli"),
        ("cli", "from veclink.stages import links", "veclink.stages.links"),
        ("schemas", "from veclink.errors import InputError", "veclink.errors.InputError"),
        ("runs", "from veclink import helpers", "veclink.helpers: in no ring"),
    ],
)
def test_checker_finds_a_breach(ring: str, source: str, breach: str) -> None:
    assert breaches(ring, source) == [breach]


def test_checker_lets_good_imports_pass() -> None:
    good = (
        "import math\nimport numpy.typing\nfrom veclink.kernels import csls\nfrom veclink.kernels.csls import Nearest"
    )
    assert breaches("kernels", good) == []
    assert breaches("stages", "from veclink import __version__, schemas\nimport pyspark") == []


def test_importing_the_package_loads_no_spark_and_no_gpu_library() -> None:
    heavy = {"pyspark", "delta", "faiss", "cupy", "cuvs", "cudf", "cuml", "torch", "pandas", "matplotlib"}
    code = f"import sys, veclink, veclink.cli, veclink.settings\nprint(sorted({heavy!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "lib")
    assert answer.stdout.strip() == "[]"
