"""Settings: one list of names, ranges that hold, errors that help, and a fixed order of precedence."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import yaml

from veclink.errors import SettingsError
from veclink.settings import PRESETS, Settings, load_settings, setting_names

BASE = Path(__file__).parents[1] / "conf" / "base.yml"


def _written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_base_file_gives_the_defaults() -> None:
    assert load_settings(BASE) == load_settings() == Settings()


def test_base_file_names_every_setting() -> None:
    sections = yaml.safe_load(BASE.read_text(encoding="utf-8"))
    assert {f"{section}.{name}" for section, body in sections.items() for name in body} == set(setting_names())


def test_base_file_comments_on_every_setting() -> None:
    lines = BASE.read_text(encoding="utf-8").splitlines()
    bare = [
        line.strip()
        for before, line in itertools.pairwise(lines)
        if re.match(r"  \w+:", line) and not before.lstrip().startswith("#") and not re.match(r"  \w+:", before)
    ]
    assert bare == []


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_preset_takes_effect_also_over_the_base_file(name: str) -> None:
    settings = load_settings(BASE, preset=name)
    assert settings.link.preset == name
    assert settings.link.model_dump().items() >= PRESETS[name].items()


def test_precedence_is_defaults_preset_file_command_line(tmp_path: Path) -> None:
    text = "link: {preset: paper, posterior_update: proposed_pairs, csls_k: 20}\nspark: {master: 'local[1]'}"
    config = _written(tmp_path, text)
    assert load_settings(config).link.posterior_update == "proposed_pairs"  # file over the preset it names
    assert load_settings(config, preset="paper").link.posterior_update == "all_pairs"  # named preset over file
    settings = load_settings(config, "paper", ["link.csls_k=30", "link.posterior_update=proposed_pairs"])
    assert settings.link.posterior_update == "proposed_pairs"  # --set over all
    assert settings.link.csls_k == 30
    assert settings.spark.master == "local[1]"  # file over default
    assert settings.link.views_initial == Settings().link.views_initial  # untouched


def test_preset_named_in_the_file_is_overruled_by_the_command_line(tmp_path: Path) -> None:
    config = _written(tmp_path, "link: {preset: paper}")
    assert load_settings(config).link.preset == "paper"
    assert load_settings(config, preset="reference").link.preset == "reference"


@pytest.mark.parametrize(
    ("override", "nearest"),
    [("link.cslsk=3", "link.csls_k"), ("csls_k=3", "link.csls_k"), ("prepare.id_colunm=x", "prepare.id_column")],
)
def test_unknown_setting_names_the_nearest(override: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=f"Did you mean {re.escape(nearest)}"):
        load_settings(overrides=[override])


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="Did you mean paper"):
        load_settings(preset="papre")


@pytest.mark.parametrize(
    "override",
    [
        "link.csls_k=0",
        "link.csls_k=2049",
        "link.view_fraction=0",
        "link.view_fraction=1.5",
        "link.stop_change=1",
        "link.posterior_bins=1",
        "link.backend=gpu",
        "link.evidence=some",
        "prepare.reject_limit=-0.1",
        "prepare.dim=0",
        "measure.precision_floor=1.1",
        "spark.partitions=0",
        "link.csls_k=many",
    ],
)
def test_value_out_of_range_names_setting_and_value(override: str) -> None:
    name, _, value = override.partition("=")
    with pytest.raises(SettingsError, match=re.escape(name)) as caught:
        load_settings(overrides=[override])
    assert value in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["link: [1, 2]", "- a", "link: {csls_k: 3", "link:\n  csls_k:\n    deep: 1"])
def test_file_that_is_no_tree_of_settings_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError):
        load_settings(_written(tmp_path, text))


def test_off_is_a_word_and_not_a_boolean(tmp_path: Path) -> None:
    assert load_settings(overrides=["link.seed_check=off"]).link.seed_check == "off"
    assert load_settings(_written(tmp_path, "link: {seed_check: off}")).link.seed_check == "off"


def test_an_empty_section_is_no_section(tmp_path: Path) -> None:
    assert load_settings(_written(tmp_path, "prepare:\nlink: {csls_k: 9}")).link.csls_k == 9


def test_a_boolean_is_no_number() -> None:
    with pytest.raises(SettingsError, match="csls_k"):
        load_settings(overrides=["link.csls_k=true"])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yml"):
        load_settings(tmp_path / "nowhere.yml")


def test_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load_settings(_written(tmp_path, "# nothing\n")) == Settings()


@pytest.mark.parametrize(("text", "value"), [("1e-9", 1e-9), ("1E3", 1000.0), ("2.5e+1", 25.0), ("3", 3.0)])
def test_numbers_are_written_as_everywhere(text, value):
    assert load_settings(overrides=[f"consensus.ridge={text}"]).consensus.ridge == value


def test_override_without_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="key=value"):
        load_settings(overrides=["link.csls_k"])


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().link.csls_k = 3  # type: ignore[misc]


def test_numbers_are_finite():
    with pytest.raises(SettingsError, match="growth"):
        load_settings(overrides=["consensus.growth=.inf"])
