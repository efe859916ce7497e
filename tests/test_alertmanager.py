"""Alertmanager's configuration as `prepare` writes it from the environment, and the texts that it sends."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stack.programs import find, why_missing

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "deploy" / "prepare" / "prepare.sh"
CONFIGURATION = REPOSITORY / "deploy" / "alertmanager"
TEMPLATES = CONFIGURATION / "templates" / "otel-train.tmpl"
EMAIL = {"ALERT_EMAIL_TO": "o'neil@example.org", "ALERT_EMAIL_SMARTHOST": "mail.example.org:587"}
LOGIN = {"ALERT_EMAIL_USERNAME": "it's me", "ALERT_EMAIL_PASSWORD": 'pa"ss $HOME `x` \\'}
SLACK = {"ALERT_SLACK_URL": "https://hooks.example.org/services/T/B/x"}
WEBHOOKS = {"ALERT_WEBHOOK_URL": "http://one.example:1/a?b=*&c=%20 http://two.example:2/"}
# What the image has in which `prepare` runs.
BUSYBOX_PROGRAMS = ("cat", "chmod", "chown", "cp", "head", "id", "mkdir", "mv", "od", "rm", "sed", "tr")


class Prepared:
    """The folders that `prepare` works in, and its runs."""

    def __init__(self, folder: Path, shell: list[str], path: str) -> None:
        self.folder = folder
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        self._shell, self._path = shell, path

    def __call__(self, **variables: str) -> subprocess.CompletedProcess[str]:
        places = {"DATA": f"{self.folder}/data", "SECRETS": str(self.secrets), "CONFIGURATION": str(CONFIGURATION)}
        return subprocess.run(
            [*self._shell, SCRIPT],
            env={"PATH": self._path, **places, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    @property
    def path(self) -> Path:
        return self.secrets / "alertmanager" / "alertmanager.yml"

    def receiver(self) -> dict[str, Any]:
        """The only receiver, with what it tells."""
        (receiver,) = yaml.safe_load(self.path.read_text(encoding="utf-8"))["receivers"]
        return dict(receiver)

    def password(self) -> str:
        return (self.secrets / "grafana" / "password").read_text(encoding="utf-8")


@pytest.fixture(params=["sh", "busybox"])
def prepare(request: pytest.FixtureRequest, tmp_path: Path) -> Prepared:
    """`prepare` by this machine's shell, and by the shell and the programs of busybox alone."""
    if request.param == "sh":
        return Prepared(tmp_path, ["/bin/sh"], os.defpath)
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox: its shell is that of the image in which prepare runs")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in BUSYBOX_PROGRAMS:
        (programs / name).symlink_to(busybox)
    return Prepared(tmp_path, [busybox, "sh"], str(programs))


def amtool(*arguments: str | Path) -> str:
    """Run amtool and return what it prints; the test is left out where it is missing."""
    program = find("amtool")
    if program is None:
        pytest.skip(why_missing("amtool"))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_settings_nobody_is_told(prepare: Prepared) -> None:
    """The shipped file as it stands; and of a receiver that was set and is not any more, nothing stays."""
    assert prepare(**WEBHOOKS, **SLACK, **EMAIL, **LOGIN).returncode == 0
    done = prepare()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert prepare.path.read_text() == (CONFIGURATION / "alertmanager.yml").read_text()
    assert prepare.receiver() == {"name": "people"}
    assert [path.name for path in prepare.path.parent.iterdir()] == ["alertmanager.yml"]


def test_each_webhook_has_its_file(prepare: Prepared) -> None:
    """Several URLs, each with whatever characters, stand in files that only their reader can read."""
    assert prepare(**WEBHOOKS).returncode == 0
    configs = prepare.receiver()["webhook_configs"]
    urls = [Path(config["url_file"]).read_text() for config in configs]
    assert urls == ["http://one.example:1/a?b=*&c=%20", "http://two.example:2/"]
    assert {stat.S_IMODE(Path(config["url_file"]).stat().st_mode) for config in configs} == {0o600}
    assert "example" not in prepare.path.read_text()


def test_slack_and_email_are_as_they_were_set(prepare: Prepared) -> None:
    """Quotes, dollar signs and the like arrive as they are; passwords are not in the configuration."""
    assert prepare(**SLACK, **EMAIL, **LOGIN, ALERT_SLACK_CHANNEL="#training: 'alerts'").returncode == 0
    receiver = prepare.receiver()
    (slack,) = receiver["slack_configs"]
    (email,) = receiver["email_configs"]
    assert Path(slack["api_url_file"]).read_text() == SLACK["ALERT_SLACK_URL"]
    assert slack["channel"] == "#training: 'alerts'"
    assert (email["to"], email["from"]) == ("o'neil@example.org", "o'neil@example.org")
    assert (email["smarthost"], email["auth_username"]) == ("mail.example.org:587", "it's me")
    assert Path(email["auth_password_file"]).read_text() == LOGIN["ALERT_EMAIL_PASSWORD"]
    assert "pa" + '"ss' not in prepare.path.read_text()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"ALERT_EMAIL_TO": "a@example.org"}, "set ALERT_EMAIL_SMARTHOST"),
        ({"ALERT_EMAIL_TO": "a@example.org\nb: c"}, "more than one line"),
    ],
)
def test_what_cannot_work_is_said_at_the_start(variables: dict[str, str], says: str, prepare: Prepared) -> None:
    """The service fails with the reason, and leaves no half configuration for Alertmanager to fail on."""
    done = prepare(**variables)
    assert done.returncode == 1
    assert says in done.stderr
    assert not prepare.path.exists()


def test_grafana_has_one_random_password_until_it_is_set(prepare: Prepared) -> None:
    """Drawn once, kept over restarts, readable by nobody else; GRAFANA_PASSWORD takes its place."""
    prepare()
    first = prepare.password()
    prepare()
    assert re.fullmatch(r"[0-9a-f]{36}", first)
    assert prepare.password() == first
    assert stat.S_IMODE((prepare.secrets / "grafana" / "password").stat().st_mode) == 0o600
    prepare(GRAFANA_PASSWORD="my own $1")
    assert prepare.password() == "my own $1"
    other = prepare.folder / "other"
    other.mkdir()
    assert (
        subprocess.run(
            ["/bin/sh", SCRIPT],
            env={"PATH": os.defpath, "DATA": "/nowhere", "SECRETS": str(other), "CONFIGURATION": str(CONFIGURATION)},
            check=True,
        ).returncode
        == 0
    )
    assert (other / "grafana" / "password").read_text() != first


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_volumes_belong_to_those_who_write_them(prepare: Prepared) -> None:
    """Each image runs as its own user; a volume that there is not is left out."""
    for name in ("collector", "prometheus", "loki", "tempo", "grafana"):
        (prepare.folder / "data" / name / "inner").mkdir(parents=True)
    assert prepare(**SLACK).returncode == 0
    owners = {path.name: (path / "inner").stat().st_uid for path in (prepare.folder / "data").iterdir()}
    assert owners == {"collector": 10001, "prometheus": 65534, "loki": 10001, "tempo": 10001, "grafana": 472}
    assert (prepare.secrets / "grafana" / "password").stat().st_uid == 472
    assert {path.stat().st_uid for path in prepare.path.parent.iterdir()} == {65534}


@pytest.mark.parametrize(
    "variables", [{}, WEBHOOKS, SLACK, EMAIL, {**EMAIL, **LOGIN}, {**WEBHOOKS, **SLACK, **EMAIL, **LOGIN}]
)
def test_alertmanager_takes_what_was_written(variables: dict[str, str], tmp_path: Path) -> None:
    """`amtool check-config` for each combination, with the templates where they are in the repository."""
    prepare = Prepared(tmp_path, ["/bin/sh"], os.defpath)
    assert prepare(**variables).returncode == 0
    text = prepare.path.read_text(encoding="utf-8")
    prepare.path.write_text(text.replace("/etc/otel-train/alertmanager", str(CONFIGURATION)), encoding="utf-8")
    assert "1 templates" in amtool("check-config", prepare.path)


def document(status: str, count: int = 1) -> dict[str, Any]:
    """A notification as Alertmanager's templates see it."""
    labels = {"run_id": "r-1", "project": "digits", "run_name": "brave fox", "severity": "warning"}
    alert = {
        "status": status,
        "labels": labels,
        "annotations": {
            "summary": "Training waits for data: brave fox",
            "description": "45% <of> the step time.",
            "value": "45%",
            "threshold": "30%",
            "dashboard": "http://grafana.example/d/otel-train-run?var-run_id=r-1&from=1&to=2",
            "logs": "http://grafana.example/explore?panes=%7B%7D",
            "runbook": "docs/runbook.md#data_wait",
        },
        "startsAt": "2026-01-01T00:05:00Z",
        "endsAt": "2026-01-01T00:15:00Z",
        "fingerprint": "0",
    }
    return {
        "receiver": "people",
        "status": status,
        "alerts": [alert] * count,
        "groupLabels": {"run_id": "r-1"},
        "commonLabels": labels,
        "commonAnnotations": {},
        "externalURL": "http://localhost:9093",
    }


@pytest.fixture
def render(tmp_path: Path) -> Callable[[str, dict[str, Any]], str]:
    """Fill one of the shipped templates by amtool."""

    def render(name: str, data: dict[str, Any], kind: str = "text") -> str:
        path = tmp_path / "data.json"
        path.write_text(json.dumps(data))
        text = f'{{{{ template "otel-train.{name}" . }}}}'
        return amtool(
            *("template", "render", f"--template.glob={TEMPLATES}", f"--template.text={text}"),
            *(f"--template.data={path}", f"--template.type={kind}"),
        )

    return render


def test_a_title_names_what_run_and_project(render: Callable[..., str]) -> None:
    """And how many more there are, and that it is over."""
    assert render("title", document("firing")).strip() == "Training waits for data: brave fox [digits]"
    assert render("title", document("resolved", 3)).strip() == (
        "Resolved: Training waits for data: brave fox and 2 more [digits]"
    )


def test_slack_has_run_project_value_threshold_and_links(render: Callable[..., str]) -> None:
    """What a person needs to decide whether to get up; of many alerts the first ten."""
    text = render("slack.text", document("firing", 12))
    for part in (
        "*Run:* brave fox (r-1), project digits",
        "*Training waits for data: brave fox* (warning)",
        "*Value:* 45%  *Threshold:* 30%  *Since:* 2026-01-01 00:05:00 UTC",
        "<http://grafana.example/d/otel-train-run?var-run_id=r-1&from=1&to=2|Dashboard>",
        "<http://grafana.example/explore?panes=%7B%7D|Logs> | docs/runbook.md#data_wait",
        "and 2 more.",
    ):
        assert part in text
    assert text.count("|Dashboard>") == 10
    assert "(resolved)" in render("slack.text", document("resolved"))


def test_an_email_has_the_same(render: Callable[..., str]) -> None:
    """As HTML: what a run's texts hold does not become markup."""
    text = render("email.html", document("firing"), "html")
    for part in (
        "<p>Run <b>brave fox</b> (r-1), project digits</p>",
        "<tr><td>value</td><td>45%</td></tr>",
        "<tr><td>threshold</td><td>30%</td></tr>",
        "2026-01-01 00:05:00 UTC",
        "45% &lt;of&gt; the step time.",
        '<a href="http://grafana.example/explore?panes=%7B%7D">Logs</a>',
        '<a href="http://grafana.example/d/otel-train-run?var-run_id=r-1&amp;from=1&amp;to=2">Dashboard</a>',
    ):
        assert part in text
