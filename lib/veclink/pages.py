"""Reports as one self-contained HTML file: tables, and pictures drawn by matplotlib and put in as data.

matplotlib is an extra (`report`) and is imported inside functions.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veclink.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Two sides that are told apart by eyes of every kind, also in print (from the Okabe-Ito palette).
SOURCE, TARGET, MARK, QUIET = "#0072b2", "#d55e00", "#111111", "#8a8f98"

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 80rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; } .quiet { color: #5b6470; }
.verdict { border-left: .5rem solid; padding: .6rem 1rem; margin: 1.2rem 0; background: #f5f6f8; }
.verdict b { font-size: 1.25rem; } .good { border-color: #2b8a3e; } .middling { border-color: #e8a200; }
.bad { border-color: #c92a2a; }
.tables { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid #e3e6ea; }
th { color: #5b6470; font-weight: 600; } th:first-child, td:first-child { text-align: left; }
th.words, td.words { text-align: left; padding-left: 1rem; } td.words { color: #5b6470; }
.pictures { display: flex; flex-wrap: wrap; gap: 1.4rem; margin-top: 1.4rem; }
figure { margin: 0; flex: 1 1 21rem; max-width: 27rem; break-inside: avoid; } img { width: 100%; height: auto; }
figcaption { color: #5b6470; font-size: .9rem; }
"""


def need_matplotlib() -> None:
    """Raises InputError if pictures cannot be drawn here."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "pictures need the library matplotlib, which is not installed",
            do="Install veclink[report], or leave the page out",
        )


def figure(title: str, width: float = 4.4, height: float = 3.3) -> tuple[Figure, Axes]:
    """An empty picture in the style of all reports; sizes in inches. Nothing global of matplotlib is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.tick_params(colors="#3c434c", labelsize=9)
    axes.grid(color="#e9ebee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_fontsize(9.5)
    axes.yaxis.label.set_fontsize(9.5)
    axes.set_title(title, fontsize=11, loc="left")
    return picture, axes


def svg(picture: Figure) -> bytes:
    """A picture as SVG, byte for byte the same for the same picture."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "veclink"}):
        picture.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def image(picture: Figure, alt: str, caption: str) -> str:
    """A picture as an HTML figure that needs no other file. alt: what it shows, for those who do not see it."""
    data = base64.b64encode(svg(picture)).decode("ascii")
    return (
        f'<figure><img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def pictures(figures: Iterable[str]) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pictures">{"".join(figures)}</div>'


def paragraph(text: str, quiet: bool = False) -> str:
    """A paragraph of plain text."""
    return f"<p{' class=quiet' if quiet else ''}>{html.escape(text)}</p>"


def heading(text: str) -> str:
    """A heading inside the page."""
    return f"<h2>{html.escape(text)}</h2>"


def banner(mood: str, word: str, text: str) -> str:
    """What a reader has to know first. mood: good, middling or bad."""
    return f'<div class="verdict {mood}"><b>{html.escape(word)}</b><p>{html.escape(text)}</p></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], words_last: bool = False) -> str:
    """A table; floats with three digits, None as a dash. words_last: the last column holds text."""
    mark = ' class="words"' if words_last else ""
    lines = ["<tr>" + "".join(f"<th{_last(i, head, mark)}>{html.escape(h)}</th>" for i, h in enumerate(head)) + "</tr>"]
    for row in rows:
        cells = (f"<td{_last(i, row, mark)}>{html.escape(_text(v))}</td>" for i, v in enumerate(row))
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return f'<div class="tables"><table>{"".join(lines)}</table></div>'


def _last(at: int, row: Sequence[Any], mark: str) -> str:
    return mark if at == len(row) - 1 else ""


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write_page(path: Path, title: str, parts: Iterable[str]) -> None:
    """Write a page from its parts (HTML made by the functions here), whole or not at all."""
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{html.escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
