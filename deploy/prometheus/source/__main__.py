"""Writes rules, their tests and the runbook from the tables: `python -m deploy.prometheus.source`, or `make rules`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus.source.alert import Alert, Recording
from deploy.prometheus.source.cases import case_files
from deploy.prometheus.source.log_alerts import log_alerts
from deploy.prometheus.source.pipeline_alerts import pipeline_alerts
from deploy.prometheus.source.rollups import rollup_rules
from deploy.prometheus.source.run_alerts import facts, run_alerts
from deploy.prometheus.source.runbook import runbook_page

REPOSITORY = Path(__file__).parents[3]
NOTE = "# Written by deploy/prometheus/source from its tables; change those, then run `make rules`.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(document: Any) -> str:
    """Return a document as people write it by hand, with the note of where it comes from."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return NOTE + text


def group(name: str, interval: str, rules: Sequence[Alert | Recording]) -> dict[str, Any]:
    """Return a group of rules, which are evaluated one after the other."""
    return {"name": name, "interval": interval, "rules": [rule.rule() for rule in rules]}


def files() -> dict[str, str]:
    """Return all that is generated, by its path in the repository."""
    run, pipeline, logs = run_alerts(), pipeline_alerts(), log_alerts()
    return {
        # An alert reaches people within 30 s of its condition, so these are evaluated more often than values come.
        "deploy/prometheus/rules/runs.yaml": as_yaml({"groups": [group("otel-train-runs", "5s", [*facts(), *run])]}),
        "deploy/prometheus/rules/ranks.yaml": as_yaml({"groups": [group("otel-train-ranks", "15s", rollup_rules())]}),
        "deploy/prometheus/rules/pipeline.yaml": as_yaml({"groups": [group("otel-train-pipeline", "15s", pipeline)]}),
        # Without tenants Loki's ruler reads the folder of the tenant "fake".
        "deploy/loki/rules/fake/otel-train.yaml": as_yaml({"groups": [group("otel-train-events", "10s", logs)]}),
        "docs/runbook.md": runbook_page(
            (("Runs", [*run, *logs]), ("The stack and the way there", pipeline)),
        ),
        **{f"deploy/prometheus/tests/{name}": as_yaml(document) for name, document in case_files().items()},
    }


def main() -> None:
    """Write each file, and print where."""
    for name, text in files().items():
        path = REPOSITORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
