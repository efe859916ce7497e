"""The doctor against real servers, folders and environments: each fault is found, told in words, and has its fix."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.cli.doctor_checks import endpoint
from otel_train.cli.main import main
from otel_train.clock import NS_PER_S, SYSTEM, wall_ns
from otel_train.config.doubts import find_doubts, known_variables
from otel_train.lineage.fitting import Misfit, fits, misfits
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.root_probe import probe_root
from tests.otlp_server import BlackHole, OtlpServer, attributes_of, free_port
from tests.otlp_servers import Certificates, HttpServer, Reply
from tests.runs import RunBuilder

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
Consult = Callable[..., tuple[int, list[dict[str, str]]]]


@pytest.fixture
def consult(root: Path, capsys: pytest.CaptureFixture[str]) -> Consult:
    """Run the command with `--json` and return its exit code and its checks."""

    def consult(*arguments: str) -> tuple[int, list[dict[str, str]]]:
        code = main(["doctor", "--json", *arguments])
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] == (code == 0)
        return code, document["checks"]

    return consult


@pytest.fixture
def http() -> Iterator[Callable[..., HttpServer]]:
    """Start servers that answer by a script, and end them with the test."""
    servers: list[HttpServer] = []

    def start(*script: Reply, **options: Any) -> HttpServer:
        servers.append(HttpServer(*script, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def of(checks: list[dict[str, str]], name: str) -> list[dict[str, str]]:
    return [check for check in checks if check["name"] == name]


def test_a_sound_machine_is_all_ok_and_nothing_is_sent_without_an_endpoint(root: Path, consult: Consult) -> None:
    """Exit code 0; versions as Python itself has them; the root is not made by looking for it."""
    code, checks = consult()
    assert code == 0
    assert [check for check in checks if check["state"] == "fail"] == []
    (python,) = of(checks, "python")
    assert python["text"].startswith(".".join(map(str, sys.version_info[:3])))
    (endpoint,) = of(checks, "endpoint")
    assert endpoint["state"] == "ok"
    assert "nothing was sent" in endpoint["text"]
    (clock,) = of(checks, "clock")
    assert clock["state"] == "ok"
    assert clock["text"].startswith("not compared: no endpoint is set")
    assert not root.exists()


def test_a_server_that_takes_it_gets_one_record_and_one_metric_of_no_run(
    monkeypatch: pytest.MonkeyPatch, consult: Consult
) -> None:
    """What arrives is marked as the doctor's, has no run id, and of traces nothing arrives but an empty request."""
    with OtlpServer() as server:
        monkeypatch.setenv(ENDPOINT, server.url)
        before_ns = wall_ns()
        code, checks = consult()
        assert code == 0
        (point,) = server.points()
        assert (point.name, point.value) == ("otel_train.doctor", 1)
        assert before_ns <= point.time_ns <= wall_ns()
        assert server.bodies() == ["a test record of otel-train doctor"]
        assert server.spans() == []
        for signal, blocks in (("metrics", "resourceMetrics"), ("logs", "resourceLogs")):
            (content,) = server.accepted(signal)
            (block,) = content[blocks]
            assert dict(attributes_of(block["resource"])) == {
                "service.name": "otel-train-doctor",
                "otel_train.doctor": True,
            }
        assert sorted(server.requests) == [("logs", 200), ("metrics", 200), ("traces", 200)]
    for signal in ("metrics", "logs", "traces"):
        (check,) = of(checks, f"endpoint {signal}")
        assert check["state"] == "ok"
        assert f"{server.url}/v1/{signal} took" in check["text"]
        assert "(http/json, gzip; from OTEL_EXPORTER_OTLP_ENDPOINT)" in check["text"]
    (clock,) = of(checks, "clock")
    assert clock["state"] == "ok"


def test_one_signal_with_an_endpoint_of_its_own_says_where_that_comes_from(
    monkeypatch: pytest.MonkeyPatch, http: Callable[..., HttpServer], consult: Consult
) -> None:
    """Only what goes anywhere is tried, and each line names the variable that sent it there."""
    one, other = http(), http()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"http://127.0.0.1:{other.port}/v1/logs")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    code, checks = consult("--endpoint", f"http://127.0.0.1:{one.port}")
    assert code == 0
    assert [posted.path for posted in one.posted] == ["/v1/metrics"]
    assert [posted.path for posted in other.posted] == ["/v1/logs"]
    assert "from --endpoint)" in of(checks, "endpoint metrics")[0]["text"]
    assert "from OTEL_EXPORTER_OTLP_LOGS_ENDPOINT)" in of(checks, "endpoint logs")[0]["text"]
    assert of(checks, "endpoint traces") == []


@pytest.mark.parametrize(
    ("reply", "state", "said", "fix"),
    [
        (Reply(404, b"no such page", content_type="text/plain"), "fail", "404 Not Found", "address without /v1/"),
        (Reply(401), "fail", "401 Unauthorized", "give a valid token in OTEL_EXPORTER_OTLP_HEADERS"),
        (Reply(403), "fail", "403 Forbidden", "may not write there"),
        (Reply(415), "fail", "415", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
        (Reply(200, b"<html>log in</html>", content_type="text/html"), "fail", "web page", ""),
        (Reply(302, headers={"Location": "https://elsewhere/"}), "fail", "302", "https://elsewhere/"),
        (Reply(503), "warn", "busy: 503", "senders try again by themselves"),
        (Reply(500), "fail", "500", ""),
        (
            Reply(200, b'{"partialSuccess":{"rejectedDataPoints":"1","errorMessage":"too old"}}'),
            "warn",
            "left the test out: too old",
            "log",
        ),
    ],
)
def test_what_a_server_answers_is_told_with_its_fix(
    http: Callable[..., HttpServer], consult: Consult, reply: Reply, state: str, said: str, fix: str
) -> None:
    """Wrong path, token, form; a log-in page; a server that is busy or out of order; a partial success."""
    server = http(judge=lambda posted: reply)
    code, checks = consult("--endpoint", f"http://127.0.0.1:{server.port}")
    (check,) = of(checks, "endpoint metrics")
    assert check["state"] == state
    assert said in check["text"]
    assert fix in check["fix"]
    assert check["fix"]
    assert code == (2 if state == "fail" else 0)
    assert len(server.posted) == 3, "no try is repeated"


def test_a_port_where_nobody_listens(consult: Consult) -> None:
    """The connection is refused, at once, and the fix names where the address came from."""
    began_s = time.monotonic()
    code, checks = consult("--endpoint", f"http://127.0.0.1:{free_port()}")
    assert code == 2
    (check,) = of(checks, "endpoint logs")
    assert check["state"] == "fail"
    assert "refused" in check["text"]
    assert check["fix"] == "start the server that --endpoint names, or mend the address"
    assert time.monotonic() - began_s < 60


def test_a_path_that_is_doubled(http: Callable[..., HttpServer], consult: Consult) -> None:
    """The commonest mistake of all, whatever the server says about it."""
    server = http(judge=lambda posted: Reply(404))
    code, checks = consult("--endpoint", f"http://127.0.0.1:{server.port}/v1/metrics")
    assert code == 2
    assert server.posted[0].path.startswith("/v1/metrics/v1/")
    for signal in ("metrics", "logs", "traces"):
        (check,) = of(checks, f"endpoint {signal}")
        assert check["fix"] == "leave /v1/… out of --endpoint: it is put behind the address by itself"


def test_a_name_that_nobody_knows(consult: Consult) -> None:
    """Without a network, too, the look-up of a name ends by itself or with the time that was given."""
    code, checks = consult("--endpoint", "http://no-such-host.invalid:4318", "--timeout", "2s")
    assert code == 2
    (check,) = of(checks, "endpoint metrics")
    assert "no address is known" in check["text"] or "no answer" in check["text"]


@pytest.mark.alone
def test_a_black_hole_is_given_the_time_once(consult: Consult) -> None:
    """Three signals wait side by side, each for the time that was given, and not one after the other."""
    with BlackHole() as hole:
        began_s = time.monotonic()
        code, checks = consult("--endpoint", hole.url, "--timeout", "4s")
        took_s = time.monotonic() - began_s
    assert code == 2
    for signal in ("metrics", "logs", "traces"):
        (check,) = of(checks, f"endpoint {signal}")
        assert "no answer from" in check["text"]
        assert "within 4 s" in check["text"]
        assert "firewall" in check["fix"]
    # One after the other it were twelve for the endpoint alone.
    assert 4 <= took_s < 11.5


def test_tls_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, http: Callable[..., HttpServer], certificates: Certificates, consult: Consult
) -> None:
    """An unknown authority, TLS where none is spoken, none where TLS is spoken; and all is well with the right file."""
    secure, plain = http(tls=certificates.server_context()), http()
    _, checks = consult("--endpoint", f"https://127.0.0.1:{secure.port}")
    (check,) = of(checks, "endpoint metrics")
    assert check["state"] == "fail"
    assert "no TLS with" in check["text"]
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE names the authority" in check["fix"]
    _, checks = consult("--endpoint", f"https://127.0.0.1:{plain.port}")
    assert "begin OTEL_EXPORTER_OTLP_ENDPOINT with http://" in of(checks, "endpoint metrics")[0]["fix"]
    _, checks = consult("--endpoint", f"http://127.0.0.1:{secure.port}")
    assert of(checks, "endpoint metrics")[0]["state"] == "fail"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", certificates.ca_pem)
    code, checks = consult("--endpoint", f"https://127.0.0.1:{secure.port}")
    assert code == 0
    assert "TLS, gzip" in of(checks, "endpoint metrics")[0]["text"]


def test_a_certificate_that_is_not_there_is_found_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, http: Callable[..., HttpServer], consult: Consult
) -> None:
    """The variable is named, and no request was made."""
    server = http()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")
    code, checks = consult("--endpoint", f"https://127.0.0.1:{server.port}")
    assert code == 2
    (check,) = of(checks, "endpoint")
    assert check["text"] == "OTEL_EXPORTER_OTLP_CERTIFICATE is '/nowhere/ca.pem'"
    assert check["fix"] == "name a PEM file that is there and can be read"
    assert server.posted == []


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_other_protocols(monkeypatch: pytest.MonkeyPatch, consult: Consult, protocol: str) -> None:
    """The same test data goes by protobuf and by gRPC."""
    pytest.importorskip("grpc")
    from tests.test_export_grpc import GrpcServer

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    if protocol == "grpc":
        server = GrpcServer()
        try:
            code, checks = consult("--endpoint", f"http://127.0.0.1:{server.port}")
            names = [
                metric.name
                for request in server.accepted
                for block in getattr(request, "resource_metrics", ())
                for scope in block.scope_metrics
                for metric in scope.metrics
            ]
            assert names == ["otel_train.doctor"]
        finally:
            server.close()
    else:
        http = HttpServer()
        try:
            code, checks = consult("--endpoint", f"http://127.0.0.1:{http.port}")
            assert {posted.headers["content-type"] for posted in http.posted} == {"application/x-protobuf"}
        finally:
            http.close()
    assert code == 0
    assert f"({protocol}, " in of(checks, "endpoint metrics")[0]["text"]


class Shifted:
    """The machine's clock, set wrong."""

    mono_ns = staticmethod(SYSTEM.mono_ns)

    def __init__(self, ahead_s: float) -> None:
        self._ahead_ns = int(ahead_s * NS_PER_S)

    def wall_ns(self) -> int:
        return SYSTEM.wall_ns() + self._ahead_ns


@pytest.mark.parametrize(
    ("ahead_s", "state", "said"),
    [
        (90.0, "warn", r"is 1 min (2[89]|3[012]) s ahead of that of http://127\.0\.0\.1:\d+"),
        (-90.0, "warn", r"is 1 min (2[89]|3[012]) s behind that of .*"),
        (3600.0, "fail", r"is (59 min 5\d s|1 h 00 min) ahead of that of .*"),
        (0.0, "ok", r"agrees with the server's to .*"),
    ],
)
def test_a_clock_that_is_off(http: Callable[..., HttpServer], ahead_s: float, state: str, said: str) -> None:
    """The server's Date says what time it is there; a minute and a half is a warning, an hour a fault."""
    environ = {ENDPOINT: f"http://127.0.0.1:{http().port}"}
    (check,) = [check for check in endpoint(None, environ, 5.0, Shifted(ahead_s)) if check.name == "clock"]
    assert check.state == state
    assert re.fullmatch(said, check.text)
    assert ("NTP" in check.fix) is (state != "ok")


def test_the_root_is_tried_with_a_real_lock_and_nothing_stays(tmp_path: Path) -> None:
    """Another process sees the lock; of what was written nothing is left, and a root that is not there is not made."""
    found = probe_root(tmp_path)
    assert (found.fault, found.locks, found.exists) == ("", "work", True)
    assert found.free_bytes is not None
    stat = os.statvfs(tmp_path)
    assert found.free_bytes == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.1)
    assert list(tmp_path.iterdir()) == []
    below = probe_root(tmp_path / "a" / "b")
    assert (below.fault, below.tried, below.exists) == ("", tmp_path, False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_named_and_is_not_there_is_doubted(tmp_path: Path, consult: Consult) -> None:
    """By `--dir` it may be a slip of the key; the usual one is simply not made yet. Neither is made by that."""
    missing = tmp_path / "nowhere"
    code, checks = consult("--dir", str(missing))
    assert code == 0
    (folder,) = of(checks, "folder")
    assert folder["state"] == "warn"
    assert folder["text"] == f"{missing} (not there yet; the first run makes it in {tmp_path})"
    assert "--dir" in folder["fix"]
    assert of(consult()[1], "folder")[0]["state"] == "ok"
    assert not missing.exists()


def test_locks_that_do_not_work_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where taking a lock does nothing, as on some network file systems, the second process does not see it."""
    monkeypatch.setattr(WriterLock, "acquire", lambda self, timeout_s=0.2: True)
    found = probe_root(tmp_path)
    assert found.locks == "unseen"
    assert found.lock_fault == "another process does not see a lock that is held"


def test_a_root_that_is_a_file_or_cannot_be_written(
    tmp_path: Path, consult: Consult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are faults that name the folder and the fix."""
    file = tmp_path / "file"
    file.write_text("no folder")
    code, checks = consult("--dir", str(file))
    assert code == 2
    (check,) = of(checks, "folder")
    assert check["text"] == f"{file} is a file"
    assert "OTEL_TRAIN_DIR" in check["fix"]
    assert of(checks, "locks") == []

    def refuse(*arguments: Any, **options: Any) -> str:
        raise PermissionError(13, "Permission denied")

    # The tests may run as root, whom no rights keep out.
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    code, checks = consult("--dir", str(tmp_path))
    assert code == 2
    assert of(checks, "folder")[0]["text"] == f"{tmp_path} cannot be written (Permission denied)"


def cards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a small library in NVML's place, which answers as NVIDIA's would."""
    if shutil.which("cc") is None or not sys.platform.startswith("linux"):
        pytest.skip("the stand-in for NVML needs a C compiler and Linux")
    from tests.test_sources_gpu import compile_fake, use

    return use(compile_fake(folder), folder, monkeypatch)


def test_the_cards_are_told_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consult: Consult) -> None:
    """Driver and CUDA as NVML has them, equal cards counted; none of them visible is a warning that says why."""
    fake = cards(tmp_path, monkeypatch)
    for place in (0, 1):
        fake.add(place)
    _, checks = consult()
    (check,) = of(checks, "gpu")
    assert check["state"] == "ok"
    assert check["text"] == "driver 580.95.05, CUDA 13.0; 2 x NVIDIA H200 141.0 GiB"
    fake.add(2, handle__rc=15)
    code, checks = consult()
    lost = of(checks, "gpu")[-1]
    assert (code, lost["state"], lost["text"]) == (2, "fail", "GPU 2 does not answer: GPU is lost")
    assert "dmesg" in lost["fix"]
    fake.add(2, handle__rc=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    code, checks = consult()
    (check,) = of(checks, "gpu")
    assert (code, check["state"]) == (0, "warn")
    assert check["text"] == "driver 580.95.05, CUDA 13.0; no card is visible with CUDA_VISIBLE_DEVICES='7'"
    assert "CUDA_VISIBLE_DEVICES" in check["fix"]


def test_without_a_card_the_reason_is_told_and_is_a_fault_only_where_one_is_meant(
    monkeypatch: pytest.MonkeyPatch, consult: Consult
) -> None:
    """No library at all: all is well on a laptop, a warning in a container that was promised cards."""
    import pynvml

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    monkeypatch.setattr(
        "os.path.exists", lambda path, real=os.path.exists: path != "/proc/driver/nvidia" and real(path)
    )
    _, checks = consult()
    (check,) = of(checks, "gpu")
    assert check["state"] == "ok"
    assert check["text"] == "no GPU is sampled: NVML Shared Library Not Found"
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    _, checks = consult()
    (check,) = of(checks, "gpu")
    assert check["state"] == "warn"
    assert "--gpus all" in check["fix"]


def test_lost_and_damaged_runs_are_counted(root: Path, consult: Consult) -> None:
    """One finished, one without an end, one whose run.json is cut; each has a line, and they are no fault."""
    RunBuilder(root, "20260131-120000-aaaaaaaa").attempt().log({"loss": [1.0]}, steps=[0]).end()
    RunBuilder(root, "20260131-120001-bbbbbbbb").attempt().log({"loss": [1.0]}, steps=[0])
    broken = RunBuilder(root, "20260131-120002-cccccccc").attempt().log({"loss": [1.0]}, steps=[0]).end()
    (broken.path / "run.json").write_text('{"run_id": "2026')
    code, checks = consult()
    assert code == 0
    found = of(checks, "runs")
    assert [check["state"] for check in found] == ["ok", "warn", "warn"]
    assert found[0]["text"].startswith("3 (")
    assert "20260131-120001-bbbbbbbb" in found[1]["text"]
    assert found[2]["text"] == "1 without a readable run.json: 20260131-120002-cccccccc"
    assert "otel-train show 20260131-120002-cccccccc" in found[2]["fix"]


@pytest.mark.parametrize(
    ("environ", "variable", "text", "fix", "wrong"),
    [
        ({"OTEL_TRAIN_TAG": "x"}, "OTEL_TRAIN_TAG", "nobody reads", "did you mean OTEL_TRAIN_TAGS?", False),
        ({"OTEL_EXPORTER_OLTP_ENDPOINT": "x"}, "OTEL_EXPORTER_OLTP_ENDPOINT", "nobody reads", ENDPOINT, False),
        ({"OTEL_EXPORTER_OTLP_HEADER": "x"}, "OTEL_EXPORTER_OTLP_HEADER", "", "OTEL_EXPORTER_OTLP_HEADERS", False),
        ({"otel_train_dir": "x"}, "otel_train_dir", "nobody reads", "did you mean OTEL_TRAIN_DIR?", False),
        ({"OTEL_TRAIN_XYZZY": "x"}, "OTEL_TRAIN_XYZZY", "nobody reads", "docs/settings.md", False),
        ({"OTEL_TRAIN_EVERY": "a=0"}, "OTEL_TRAIN_EVERY", "refused at init()", "at least 1", True),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED", "nothing is recorded", "unset", False),
        ({"OTEL_SDK_DISABLED": "1"}, "OTEL_SDK_DISABLED", "counts as false", "true or false", False),
        ({ENDPOINT: "http://h:4317"}, ENDPOINT, "HTTP to port 4317", "4318", False),
        (
            {ENDPOINT: "http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            ENDPOINT,
            "gRPC to port 4318",
            "4317",
            False,
        ),
        ({ENDPOINT: "http://h:4318/v1/logs"}, ENDPOINT, "ends with /v1/logs", "leave out /v1/logs", True),
        (
            {ENDPOINT: "http://h:4318", "OTEL_EXPORTER_OTLP_CERTIFICATE": "ca.pem"},
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "not used",
            "https://",
            False,
        ),
        (
            {ENDPOINT: "http://far:4318", "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer x"},
            "OTEL_EXPORTER_OTLP_HEADERS",
            "unencrypted",
            "https://",
            False,
        ),
        ({"OTEL_TRAIN_DIR": "none"}, "OTEL_TRAIN_DIR", "nothing would be kept", ENDPOINT, True),
        (
            {"OTEL_TRAIN_SENDER": "none", ENDPOINT: "http://h:4318"},
            "OTEL_TRAIN_SENDER",
            "nothing is sent",
            "otel-train push",
            False,
        ),
        (
            {"OTEL_LOGS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://h:4318/v1/logs"},
            "OTEL_LOGS_EXPORTER",
            "is not used",
            "unset one",
            False,
        ),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "10"}, "OTEL_EXPORTER_OTLP_TIMEOUT", "milliseconds", "10000", False),
        (
            {"OTEL_SERVICE_NAME": "a", "OTEL_RESOURCE_ATTRIBUTES": "x=1,service.name=b"},
            "OTEL_RESOURCE_ATTRIBUTES",
            "'a', which wins",
            "service.name",
            False,
        ),
    ],
)
def test_a_doubtful_variable_is_named(
    tmp_path: Path, environ: dict[str, str], variable: str, text: str, fix: str, wrong: bool
) -> None:
    """One doubt for each, with the variable, what is odd about it, and what to do."""
    (doubt,) = find_doubts(environ, tmp_path)
    assert doubt.variable == variable
    assert text in doubt.text
    assert fix in doubt.fix
    assert doubt.wrong is wrong


def test_variables_that_are_well_or_not_ours_are_left_alone(tmp_path: Path) -> None:
    """The specification's others, those of instrumentations, and each of ours with a good value."""
    environ = {
        "OTEL_TRAIN_DIR": "/data/runs",
        "OTEL_TRAIN_TAGS": "a,b",
        ENDPOINT: "http://localhost:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_PYTHON_LOG_CORRELATION": "true",
        "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_EXPORTER_PROMETHEUS_PORT": "9464",
        "OTEL_LOG_LEVEL": "info",
        "HOTEL": "x",
    }
    assert find_doubts(environ, tmp_path) == []


def test_the_settings_file_is_looked_at(tmp_path: Path) -> None:
    """A key that there is not, with the one that is near; a value that is refused; a file that is no TOML."""
    file = tmp_path / "otel_train.toml"
    file.write_text('tag = ["x"]\nflush_interval_s = 7\n')
    doubts = find_doubts({}, tmp_path)
    assert [(doubt.variable, doubt.wrong) for doubt in doubts] == [
        ("otel_train.toml: tag", True),
        ("otel_train.toml: flush_interval_s", True),
    ]
    assert doubts[0].fix == "did you mean tags?"
    file.write_text("tags = [")
    (doubt,) = find_doubts({}, tmp_path)
    assert doubt.variable == "otel_train.toml"
    assert doubt.wrong


def test_every_variable_that_the_project_reads_is_known() -> None:
    """Else the doctor would call it misspelt: those of the package, of compose, and of the scripts around it."""
    top = Path(__file__).parent.parent
    texts = [path for folder in ("otel_train", "deploy", "collector") for path in (top / folder).rglob("*.*")]
    texts += [top / "docker-compose.yml", top / ".env.example"]
    named: set[str] = set()
    for path in texts:
        if path.suffix in (".py", ".yml", ".yaml", ".sh", ".example", ".tmpl"):
            named |= set(re.findall(r"\bOTEL_TRAIN_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    assert len(named) > 30
    assert named - known_variables() == set()


class Distribution:
    """An installed package as `importlib.metadata` has it."""

    def __init__(self, name: str, version: str, *requires: str) -> None:
        self.metadata = {"Name": name, "Version": version}
        self.requires = list(requires)

    def read_text(self, name: str) -> None:
        return None


def test_packages_that_do_not_fit_are_named_with_who_wants_what() -> None:
    """An exporter of another release than the SDK; a package that is missing; extras and markers do not count."""
    found = [
        Distribution(
            "otel-train", "0.1.0", "opentelemetry-sdk<1.50,>=1.45", "urllib3<3,>=2", "plotly; extra == 'view'"
        ),
        Distribution("opentelemetry_sdk", "1.45.2", "opentelemetry-api==1.45.2"),
        Distribution("opentelemetry-api", "1.44.0", "importlib-metadata<8; python_version < '3.10'"),
        Distribution("other", "1", "opentelemetry-api==9"),
    ]
    assert misfits(["otel-train", "opentelemetry-sdk", "opentelemetry-api"], found) == [
        Misfit("opentelemetry-api", "1.44.0", "==1.45.2", "opentelemetry-sdk"),
        Misfit("urllib3", "", "<3,>=2", "otel-train"),
    ]


VERSIONS = (
    "1.45",
    "1.45.0",
    "1.45.2",
    "1.44.9",
    "1.50",
    "1.50.0rc1",
    "1.50.dev1",
    "2",
    "0.66b1",
    "0.66b2",
    "0.66",
    "10.0",
)
CLAUSES = (
    *(">=1.45,<1.50", "==1.45.2", "~=1.45", "~=1.45.1", "!=1.45.2", "==1.45.*", "!=1.45.*", ">1.45", "<=1.45"),
    *("==0.66b1", ">=0.66b1", "<2,>=1.45", "<1.50", ""),
)


@pytest.mark.parametrize("clause", CLAUSES)
def test_versions_are_compared_as_pip_does(clause: str) -> None:
    """Every version against every clause, with the library that pip uses as the judge."""
    specifiers = pytest.importorskip("packaging.specifiers")
    judge = specifiers.SpecifierSet(clause)
    expected = {version: judge.contains(version, prereleases=True) for version in VERSIONS}
    assert {version: fits(version, clause) for version in VERSIONS} == expected


def test_text_for_people_has_a_line_for_each_check_and_the_fix_behind_it(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State, name, text and fix in one line; the last line counts."""
    monkeypatch.setenv("OTEL_TRAIN_TAG", "x")
    assert main(["doctor", "--endpoint", f"http://127.0.0.1:{free_port()}"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"(ok  |warn|fail)  \S", line) for line in lines[:-2])
    (line,) = [line for line in lines if "OTEL_TRAIN_TAG" in line]
    assert re.fullmatch(r"warn  variable +OTEL_TRAIN_TAG nobody reads .*  fix: did you mean OTEL_TRAIN_TAGS\?", line)
    assert lines[-1] == "3 faults and 1 warning"


def test_a_wrong_option_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The option, its value and the fix, with the code of what was not understood."""
    assert main(["doctor", "--timeout", "soon"]) == 2
    assert "--timeout 'soon'" in capsys.readouterr().err
    assert main(["doctor", "--endpoint", "localhost"]) == 2
    assert "--endpoint 'localhost'" in capsys.readouterr().err


def test_a_wrong_variable_hides_nothing_else(monkeypatch: pytest.MonkeyPatch, consult: Consult) -> None:
    """A value that init() would refuse is a fault of its own, and the endpoint is tried all the same."""
    monkeypatch.setenv("OTEL_TRAIN_SENDER", "pigeon")
    with OtlpServer() as server:
        monkeypatch.setenv(ENDPOINT, server.url)
        code, checks = consult()
    assert code == 2
    (variable,) = of(checks, "variable")
    assert variable["text"].startswith("OTEL_TRAIN_SENDER 'pigeon' is refused")
    assert of(checks, "endpoint metrics")[0]["state"] == "ok"


@pytest.mark.slow
def test_the_command_leaves_no_thread_and_ends_quickly_without_a_network(tmp_path: Path) -> None:
    """As a program of its own, against an address of a network for documentation: it comes back by itself."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "otel_train.cli.main",
            "doctor",
            "--endpoint",
            "http://192.0.2.1:4318",
            "--timeout",
            "1s",
        ],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == ""
    assert done.stdout.count("endpoint ") >= 3
    assert not [thread for thread in threading.enumerate() if thread.name == "otel-train-probe"]
