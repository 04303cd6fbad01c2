"""Every setting of veclink, typed and frozen, with its default, range and reason.

`conf/base.yml` lists the same settings for people to copy (a test holds the two equal). Precedence:
defaults here < preset named in the settings file < settings file < `--preset` < `--set key=value`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from veclink.errors import SettingsError


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class PrepareSettings(_Frozen):
    """How raw tables are read and checked."""

    id_column: str = "id"
    vector_column: str = "vector"
    encoder_column: str | None = None
    dim: int | None = Field(None, ge=1)
    reject_limit: float = Field(0.01, ge=0, le=1)
    mixed_space_sample_rows: int = Field(2_000, ge=0)


class LinkSettings(_Frozen):
    """The linking loop (Geometric Embedding Hashing). Defaults come from the paper unless a reason says otherwise."""

    preset: Literal["paper", "reference", "consensus"] = "consensus"
    posterior_update: Literal["all_pairs", "proposed_pairs"] = "proposed_pairs"
    evidence: Literal["all_views", "out_of_bag"] = "all_views"
    bandwidth: Literal["cloud", "anchors"] = "cloud"
    views_initial: int = Field(5, ge=1)
    view_fraction: float = Field(0.4, gt=0, le=1)
    view_growth: float = Field(0.3, ge=0)
    view_size_min: int = Field(5, ge=1)
    csls_k: int = Field(50, ge=1, le=2_048)
    posterior_bins: int = Field(100, ge=2)
    rounds_max: int = Field(30, ge=1)
    rounds_max_small: int = Field(100, ge=1)
    small_rows: int = Field(20_000, ge=0)
    stop_change: float = Field(0.01, gt=0, lt=1)
    stop_rounds: int = Field(3, ge=1)
    tau_rows: int = Field(500_000, ge=1)
    view_memory_gib: float = Field(8.0, gt=0)
    seed_check: Literal["error", "warn", "off"] = "error"
    takeoff_recovery: float = Field(0.75, ge=0, le=1)
    holdback_seeds: int = Field(0, ge=0)
    random_seed: int = Field(0, ge=0)
    backend: Literal["auto", "numpy", "faiss"] = "auto"

    @property
    def schedule(self) -> tuple[int, float, float, int]:
        """The settings of kernels.views.schedule, in its order."""
        return self.views_initial, self.view_fraction, self.view_growth, self.view_size_min


class ConsensusSettings(_Frozen):
    """The loop of preset consensus."""

    start: Literal["seeds", "unpaired", "plain"] = "seeds"
    start_maps: int = Field(2, ge=1)
    start_agreement: float = Field(0.7, ge=0, le=1)
    start_growth: float = Field(0.1, ge=0)
    start_rounds_max: int = Field(6, ge=1)
    unpaired_maps: int = Field(3, ge=2)
    agreement_min: float = Field(0.5, ge=0, le=1)
    start_share: float = Field(0.5, gt=0, le=1)
    audit_limit: float = Field(0.03, gt=0, le=1)
    view_kind: Literal["cca", "ridge", "hash"] = "cca"
    views: int = Field(8, ge=2)
    bag_share: float = Field(0.65, gt=0, lt=1)
    evidence: Literal["bounded", "free", "votes"] = "bounded"
    window: int = Field(3, ge=1)
    ridge: float = Field(1.0, gt=0)
    width: int = Field(256, ge=2)
    penalty: float = Field(0.5, gt=0)
    growth: float = Field(2.5, gt=0)
    anchors_max: int = Field(50_000, ge=100)
    promote_floor: float = Field(0.35, ge=0, le=1)
    rounds_max: int = Field(20, ge=2)
    min_confidence: float = Field(0.5, ge=0, le=1)
    target_precision: float | None = Field(None, gt=0, le=1)
    stop_change: float = Field(0.03, gt=0, lt=1)
    takeoff_recovery: float = Field(0.75, ge=0, le=1)
    takeoff_seeds: float = Field(0.4, ge=0, le=1)
    takeoff_ahead: float = Field(0.7, ge=0.5, le=1)


class CellsSettings(_Frozen):
    """Clouds above link.tau_rows."""

    rows: int = Field(2_000, ge=100)
    probes: int = Field(6, ge=1)
    group_rows: int = Field(32_000, ge=100)
    sample_rows: int = Field(25_000, ge=100)
    growing_rows: int = Field(100_000, ge=100)
    full_rounds: int = Field(2, ge=1)


class CyclesSettings(_Frozen):
    """Loops of links among three clouds and more."""

    kappa: float | None = Field(0.2, gt=0, lt=1)


class MeasureSettings(_Frozen):
    """How links are judged."""

    reliability_bins: int = Field(10, ge=2)
    precision_floor: float | None = Field(None, ge=0, le=1)
    recall_floor: float | None = Field(None, ge=0, le=1)


class DiagnoseSettings(_Frozen):
    """The look before a run."""

    sample_rows: int = Field(5_000, ge=100, le=20_000)
    hub_k: int = Field(10, ge=1, le=100)
    shuffles: int = Field(199, ge=19)


class SparkSettings(_Frozen):
    """The embedded Spark session, and how work is cut. The session part is ignored where a session already runs."""

    master: str = "local[*]"
    driver_memory: str = "3g"
    partitions: int | None = Field(None, ge=1)
    threads_per_task: int = Field(1, ge=1)
    work_dir: str | None = None


class Settings(_Frozen):
    """All settings of one use."""

    prepare: PrepareSettings = PrepareSettings()
    link: LinkSettings = LinkSettings()
    consensus: ConsensusSettings = ConsensusSettings()
    cells: CellsSettings = CellsSettings()
    cycles: CyclesSettings = CyclesSettings()
    measure: MeasureSettings = MeasureSettings()
    diagnose: DiagnoseSettings = DiagnoseSettings()
    spark: SparkSettings = SparkSettings()


CONSENSUS = "consensus"
# consensus: our own loop. The others are two readings of the published method:
# paper: every pair ever proposed is updated in every round.
# reference: the published code: only pairs proposed in this round are updated and can be promoted.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"posterior_update": "all_pairs"},
    "reference": {"posterior_update": "proposed_pairs"},
    CONSENSUS: {},
}


def load_settings(
    config: str | Path | None = None, preset: str | None = None, overrides: Sequence[str] = ()
) -> Settings:
    """Settings from a YAML file, a preset name and `key=value` overrides (dotted keys, values read as YAML).

    Raises SettingsError on an unknown key (naming the nearest known one), a value out of range or an unreadable file.
    """
    tree = {name: body for name, body in (_read_yaml(config) if config is not None else {}).items() if body is not None}
    link = tree.get("link") or {}
    if not isinstance(link, dict):
        raise SettingsError("section link must be a mapping", got=link)
    named = link.get("preset") or LinkSettings().preset
    tree["link"] = {**_preset(named), **link}
    if preset is not None:
        tree["link"] |= _preset(preset)
    for item in overrides:
        key, eq, value = item.partition("=")
        if not eq:
            raise SettingsError("--set needs key=value", got=item, do="Example: --set link.csls_k=30")
        if key.strip() == "link.preset":
            raise SettingsError("a preset is chosen with --preset", got=item)
        _put(tree, key.strip().split("."), _yaml(value, f"--set {key}"))
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None


def _preset(name: Any) -> dict[str, Any]:
    if not isinstance(name, str) or name not in PRESETS:
        raise SettingsError(f"preset must be one of {sorted(PRESETS)}", got=name, do=_nearest(str(name), PRESETS))
    return {**PRESETS[name], "preset": name}


def setting_names() -> list[str]:
    """Dotted names of all settings."""
    return [f"{s}.{k}" for s, f in Settings.model_fields.items() for k in f.annotation.model_fields]  # type: ignore[union-attr]


def _read_yaml(path: str | Path) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {path} cannot be read", got=str(error)) from None
    tree = _yaml(text, str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError(f"settings file {path} must hold a mapping", got=type(tree).__name__)
    return tree


class _Loader(yaml.SafeLoader):
    """YAML 1.2 where it matters: only true and false are booleans (`off`, `no` stay words), and 1e-9 is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:bool"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise SettingsError(f"{where} is not valid YAML", got=str(error).replace("\n", " ")) from None


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    node: Any = tree
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise SettingsError(f"setting {'.'.join(path)} lies under a value, not a section")
    node[path[-1]] = value


def _nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    leaves = {k.rsplit(".", 1)[-1]: k for k in known}
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    close = close or [leaves[c] for c in difflib.get_close_matches(name.rsplit(".", 1)[-1], list(leaves), 1, 0.6)]
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}"


def _explain(error: ValidationError) -> str:
    lines = []
    for e in error.errors():
        name = ".".join(map(str, e["loc"]))
        if e["type"] == "extra_forbidden":
            lines.append(f"unknown setting {name}. {_nearest(name, setting_names())}")
        else:
            lines.append(f"setting {name}: {e['msg']}. Got {e['input']!r}")
    return "; ".join(lines)
