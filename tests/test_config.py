"""Settings: where each is found, how it is checked, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_train.config import (
    SETTINGS,
    Settings,
    is_disabled,
    parse_duration,
    parse_size,
    read_file,
    resolve,
)
from otel_train.errors import ConfigError


def found(tmp_path: Path, arguments: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> Settings:
    return resolve(arguments or {}, environ or {}, tmp_path)


def test_without_anything_every_setting_has_its_default(tmp_path: Path) -> None:
    """Each setting is there with the default of the table, and is said to be one."""
    settings = found(tmp_path)
    assert settings.values == {setting.name: setting.default for setting in SETTINGS}
    assert set(settings.origins.values()) == {"default"}


def test_an_argument_wins_over_environment_file_and_default(tmp_path: Path) -> None:
    """The order is argument, environment, file, default, setting by setting."""
    (tmp_path / "otel_train.toml").write_text('name = "file"\ngroup = "file"\nnotes = "file"\n')
    settings = found(
        tmp_path, {"name": "argument"}, {"OTEL_TRAIN_NAME": "environment", "OTEL_TRAIN_GROUP": "environment"}
    )
    assert (settings["name"], settings["group"], settings["notes"]) == ("argument", "environment", "file")
    assert settings.origins["name"] == "argument"
    assert settings.origins["group"] == "environment"
    assert settings.origins["notes"] == "file"
    assert settings.origins["tags"] == "default"


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    """As OpenTelemetry's specification has it, an empty variable is none."""
    assert found(tmp_path, {}, {"OTEL_TRAIN_NAME": ""})["name"] is None


def test_settings_are_read_from_pyproject_where_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    """The table [tool.otel_train] counts, and otel_train.toml comes before it."""
    (tmp_path / "pyproject.toml").write_text("[tool.otel_train]\nflood_per_s = 3\n")
    assert found(tmp_path)["flood_per_s"] == 3
    assert read_file(tmp_path)[1] == "pyproject.toml"
    (tmp_path / "otel_train.toml").write_text("flood_per_s = 4\n")
    assert found(tmp_path)["flood_per_s"] == 4


def test_a_damaged_file_of_our_own_is_an_error_and_anothers_is_not(tmp_path: Path) -> None:
    """otel_train.toml must be mended; a pyproject.toml that cannot be read is somebody else's business."""
    (tmp_path / "pyproject.toml").write_text("[tool\n")
    assert found(tmp_path)["name"] is None
    (tmp_path / "otel_train.toml").write_text("name = \n")
    with pytest.raises(ConfigError, match=r"otel_train\.toml.*mend the file") as caught:
        found(tmp_path)
    assert caught.value.field == "otel_train.toml"


def test_an_unknown_key_in_the_file_is_named_with_those_there_are(tmp_path: Path) -> None:
    """A misspelt key would otherwise be left out in silence."""
    (tmp_path / "otel_train.toml").write_text("consol = 'pretty'\n")
    with pytest.raises(ConfigError, match=r"otel_train.toml: consol='pretty'.*console") as caught:
        found(tmp_path)
    assert caught.value.value == "pretty"


WRONG: list[tuple[str, Any, str]] = [
    ("project", "", "a text that is not empty"),
    ("project", 3, "a text that is not empty"),
    ("project", "x" * 257, "at most 256 characters"),
    ("notes", 3, "use a text"),
    ("dir", "", "a path that is not empty"),
    ("dir", 3, "use a path"),
    ("dir", "a\0b", "a path"),
    ("tags", 3, "a list of texts"),
    ("tags", ["a", 3], "a list of texts"),
    ("every", 10, "a mapping from metric patterns"),
    ("every", {"train.*": 0}, "'train.*' needs a whole number of steps of at least 1"),
    ("every", {"train.*": 1.5}, "'train.*' needs a whole number"),
    ("console", "colour", '"pretty", "json", or None'),
    ("console_level", "loud", "use one of trace, debug, info, warning, error, critical"),
    ("log_level", 3, "use one of trace"),
    ("capture_output", "perhaps", "true or false"),
    ("capture_output", 2, "true or false"),
    ("log_ranks", "some", '"main" or "all"'),
    ("flood_per_s", 0, "a whole number of at least 1"),
    ("flood_per_s", 1.5, "a whole number of at least 1"),
    ("flood_per_s", True, "a whole number of at least 1"),
    ("sample_interval_s", -1, "a number of at least 0.1"),
    ("sample_interval_s", float("nan"), "a number of at least 0.1"),
    ("sample_interval_s", float("inf"), "a number of at least 0.1"),
    ("sample_interval_s", "often", "a number of at least 0.1"),
    ("flush_interval_s", 5, "a number from 0.01 to 1"),
    ("finish_timeout_s", 0, "a number from 0.1 to 600"),
    ("buffer_entries", 1, "at least 100"),
    ("buffer_entries", 10**400, "at least 100"),
    ("step_span_every", None.__class__, "a whole number"),
    ("segment_size", "1KB", "at least 64KiB"),
    ("segment_size", "1.2.3GB", "such as 20GB or 500MiB"),
    ("max_run_size", "20 parsecs", "such as 20GB or 500MiB"),
    ("endpoint", "localhost", "a URL with its scheme, such as http://localhost:4318"),
    ("endpoint", "ftp://localhost:4318", "a URL with its scheme, such as http://localhost:4318"),
    ("endpoint", "http://", "a URL with its scheme"),
]


@pytest.mark.parametrize(("name", "value", "fix"), WRONG)
def test_a_wrong_argument_names_itself_its_value_and_the_fix(tmp_path: Path, name: str, value: Any, fix: str) -> None:
    """Each check says which argument is wrong, what it was given, and what to use instead."""
    with pytest.raises(ConfigError) as caught:
        found(tmp_path, {name: value})
    assert caught.value.field == name
    assert caught.value.value is value
    assert fix in caught.value.fix
    assert str(caught.value) == f"{name}={value!r}: {caught.value.fix}"


def test_a_wrong_variable_or_line_of_the_file_is_named_as_that(tmp_path: Path) -> None:
    """The message names where the value came from: the variable, or the file and its key."""
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_ENDPOINT='collector': use a URL"):
        found(tmp_path, {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector"})
    (tmp_path / "otel_train.toml").write_text("sample_interval_s = -2\n")
    with pytest.raises(ConfigError, match=r"otel_train\.toml: sample_interval_s=-2: use a number of at least 0\.1"):
        found(tmp_path)


RIGHT: list[tuple[str, Any, Any]] = [
    ("project", "digits", "digits"),
    ("dir", Path("a") / "b", str(Path("a") / "b")),
    ("dir", b"runs", "runs"),
    ("dir", "~/runs", str(Path.home() / "runs")),
    ("tags", "a, b,,c ", ("a", "b", "c")),
    ("tags", ["a"], ("a",)),
    ("every", {"train.*": 10, "val.*": "epoch"}, {"train.*": 10, "val.*": 0}),
    ("every", "train.*=10,x=epoch", {"train.*": 10, "x": 0}),
    ("every", " ", {}),
    ("console", "json", "json"),
    ("console", "off", None),
    ("console", False, None),
    ("log_level", "warning", "WARNING"),
    ("capture_output", "YES", True),
    ("capture_output", "off", False),
    ("capture_output", 0, False),
    ("flood_per_s", "25", 25),
    ("sample_interval_s", "0.5", 0.5),
    ("segment_size", "1MiB", 1 << 20),
    ("max_run_size", 1e9, 1_000_000_000),
    ("endpoint", "https://collector:4318/", "https://collector:4318/"),
    ("endpoint", "HTTP://collector:4318", "HTTP://collector:4318"),
    ("endpoint", "collector:4317", "collector:4317"),
]


@pytest.mark.parametrize(("name", "value", "parsed"), RIGHT)
def test_a_right_argument_is_understood(tmp_path: Path, name: str, value: Any, parsed: Any) -> None:
    """What environments and files give as texts means the same as Python's own values."""
    assert found(tmp_path, {name: value})[name] == parsed


def test_sizes_are_decimal_or_binary() -> None:
    """20GB are 20 billion bytes, 500MiB are 500 times 2 to the 20th; case and blanks do not matter."""
    assert parse_size("20GB") == 20_000_000_000
    assert parse_size("500 MiB") == 524_288_000
    assert parse_size("1.5k") == 1500
    assert parse_size(4096) == 4096
    for wrong in ("", "GB", "20XB", "-1", "1..5GB", "."):
        with pytest.raises(ValueError, match="such as 20GB"):
            parse_size(wrong)


def test_durations_have_units_of_one_letter() -> None:
    """30d are 2,592,000 seconds; a plain number is seconds."""
    assert parse_duration("30d") == 2_592_000.0
    assert parse_duration("12h") == 43_200.0
    assert parse_duration("1.5m") == 90.0
    assert parse_duration("2w") == 1_209_600.0
    assert parse_duration(10) == 10.0
    for wrong in ("", "d", "3 years", "-1d", "1.2.3s"):
        with pytest.raises(ValueError, match="such as 30d"):
            parse_duration(wrong)


def test_only_true_disables() -> None:
    """OTEL_SDK_DISABLED means what it means everywhere: `true` in any case, nothing else."""
    assert is_disabled({"OTEL_SDK_DISABLED": " True "})
    assert not is_disabled({"OTEL_SDK_DISABLED": "1"})
    assert not is_disabled({})


def test_each_setting_has_a_variable_of_its_own_and_a_sentence() -> None:
    """Own variables begin with OTEL_TRAIN_; the two others are OpenTelemetry's."""
    variables = [setting.variable for setting in SETTINGS]
    assert len(set(variables)) == len(variables)
    assert {name for name in variables if not name.startswith("OTEL_TRAIN_")} == {
        "OTEL_SERVICE_NAME",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    }
    assert all(setting.help.endswith(".") for setting in SETTINGS)
