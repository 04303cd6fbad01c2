"""The `veclink` command: prepare, diagnose, link, measure, cycles.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veclink.errors import InputError, NotTakenOff, VeclinkError
from veclink.settings import Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Find which vectors of two embedding clouds, made by different models, are the same object.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Source = Annotated[str, typer.Option(help="Source cloud: Parquet or Delta path, catalog table, or prepared cloud.")]
Target = Annotated[str, typer.Option(help="Target cloud, likewise.")]
Seeds = Annotated[str | None, typer.Option(help="Known pairs: CSV, Parquet or Delta, source_id and target_id.")]
AnchorSource = Annotated[str | None, typer.Option(help="Anchor vectors by the source's encoder, paired by id.")]
AnchorTarget = Annotated[str | None, typer.Option(help="Anchor vectors by the target's encoder.")]
Config = Annotated[Path | None, typer.Option(help="YAML settings file; conf/base.yml lists every setting.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="One setting, for example link.csls_k=30. Repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on the last line.")]


@app.command()
def prepare(
    input: Annotated[str, typer.Option(help="Cloud: Parquet or Delta path, or the name of a catalog table.")],
    out: Annotated[str, typer.Option(help="Folder for the prepared cloud.")],
    encoder: Annotated[str | None, typer.Option(help="Name of the model that made the vectors.")] = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Check a cloud, keep rejected rows with their reason, and write it ready for linking."""
    from dataclasses import asdict

    settings = load_settings(config, None, set_ or [])

    def work(spark: SparkSession) -> dict[str, Any]:
        from veclink.runs.prepare import prepare as run

        return asdict(run(spark, input, out, settings, encoder))

    _finish(_with_spark(settings, work), as_json)


@app.command()
def diagnose(
    source: Source,
    target: Target,
    seeds: Seeds = None,
    anchor_source: AnchorSource = None,
    anchor_target: AnchorTarget = None,
    out: Annotated[
        str | None, typer.Option(help="Folder for a page with pictures; `link` into it finds the clouds prepared.")
    ] = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Say before a run whether linking is expected to work, and why. Exit code 0 whatever it says."""
    settings = load_settings(config, None, set_ or [])

    def work(spark: SparkSession) -> dict[str, Any]:
        from veclink.runs.diagnose import diagnose as run
        from veclink.runs.link import LinkRequest
        from veclink.runs.progress import Lines

        request = LinkRequest(source, target, out or "", seeds, _anchors(anchor_source, anchor_target))
        return run(spark, request, settings, Lines())

    _finish(_with_spark(settings, work), as_json)


@app.command()
def link(
    source: Source,
    target: Target,
    out: Annotated[str, typer.Option(help="Folder for the result: links, rejects, iterations, run.")],
    seeds: Seeds = None,
    anchor_source: AnchorSource = None,
    anchor_target: AnchorTarget = None,
    source_encoder: Annotated[str | None, typer.Option(help="Name of the source's model.")] = None,
    target_encoder: Annotated[str | None, typer.Option(help="Name of the target's model.")] = None,
    preset: Annotated[str | None, typer.Option(help="How links are found: consensus, paper or reference.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the run, as link.random_seed.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the folder.")] = False,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Link two clouds from a few known pairs, from anchors that lie in neither, or from nothing."""
    settings = load_settings(config, preset, (set_ or []) + ([] if seed is None else [f"link.random_seed={seed}"]))

    def work(spark: SparkSession) -> dict[str, Any]:
        from veclink.runs.link import LinkRequest
        from veclink.runs.link import link as run
        from veclink.runs.progress import Lines

        anchors = _anchors(anchor_source, anchor_target)
        request = LinkRequest(source, target, out, seeds, anchors, (source_encoder, target_encoder), overwrite)
        return run(spark, request, settings, Lines())

    try:
        report = _with_spark(settings, work)
    except NotTakenOff as error:
        _finish(error.report, as_json)
        raise
    _finish(report, as_json)


@app.command()
def measure(
    links: Annotated[str, typer.Option(help="Output folder of a link run.")],
    truth: Annotated[str | None, typer.Option(help="All true pairs: CSV, Parquet or Delta.")] = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Judge the links of a run: with the truth, or by the seeds that were held back."""
    settings = load_settings(config, None, set_ or [])

    def work(spark: SparkSession) -> dict[str, Any]:
        from veclink.runs.measure import measure as run

        return run(spark, links, truth, settings)

    result = _with_spark(settings, work)
    _finish(result, as_json)
    if truth is not None:
        from veclink.runs.measure import check_floors

        check_floors(result, settings)


@app.command()
def cycles(
    links: Annotated[
        list[str], typer.Option(help="Output folder of a link run. Three or more, of three clouds or more.")
    ],
    out: Annotated[str, typer.Option(help="Folder for the result: links, suggested, groups, run.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the folder.")] = False,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Judge the links among three clouds or more by each other, and group the ids that are one object."""
    settings = load_settings(config, None, set_ or [])

    def work(spark: SparkSession) -> dict[str, Any]:
        from veclink.runs.cycles import CyclesRequest
        from veclink.runs.cycles import cycles as run
        from veclink.runs.progress import Lines

        return run(spark, CyclesRequest(tuple(links), out, overwrite), settings, Lines())

    _finish(_with_spark(settings, work), as_json)


def _anchors(source: str | None, target: str | None) -> tuple[str, str] | None:
    if (source is None) != (target is None):
        raise InputError("anchors need a table on each side", do="Give --anchor-source and --anchor-target")
    return None if source is None or target is None else (source, target)


def _with_spark(settings: Settings, work: Callable[[SparkSession], dict[str, Any]]) -> dict[str, Any]:
    from veclink.runtime import session

    return work(session(settings.spark))


def _finish(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
    else:
        print("\n".join(_lines(result)))


def _lines(result: dict[str, Any], indent: str = "") -> list[str]:
    """A result as lines of text: scalars by name, lists of records as tables."""
    lines: list[str] = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{indent}{name}:", *_table(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], str):
            lines += [f"{indent}{name}:", *[f"{indent}  {text}" for text in value]]
        else:
            lines.append(f"{indent}{name}: {_text(value)}")
    return lines


def _table(rows: list[dict[str, Any]], indent: str) -> list[str]:
    cells = [list(rows[0]), *[[_text(v) for v in row.values()] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [indent + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code (veclink.errors)."""
    try:
        app(args=arguments, prog_name="veclink")
    except VeclinkError as error:
        print(f"veclink: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:
        # Spark's own traces run to pages; the last line is what a person needs first.
        if "VECLINK_TRACE" in os.environ:
            raise
        from veclink.tables import cause

        print(
            f"veclink: {type(error).__name__}: {cause(error)} (VECLINK_TRACE=1 shows the whole trace)", file=sys.stderr
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
