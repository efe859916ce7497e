"""The pages and data of the local page, asked for as a browser does."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from otel_train.view.page import LOCAL_SCRIPTS, LOCAL_STYLES, asset, joined
from otel_train.view.parts import PARTS
from otel_train.view.plotly_script import plotly_path
from otel_train.view.reading import read_run
from otel_train.view.report import build
from tests.runs import NS_PER_S, RUN_ID, START_NS, RunBuilder
from tests.serving import Served, serve_in_thread

HOSTILE = "</script><script>document.title='owned'</script><b id=foreign>&amp;\u2028"


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> RunBuilder:
    """A finished run with points that are not finite, a record and a hostile name."""
    root = tmp_path_factory.mktemp("runs") / 'a "quoted" <root>'
    made = RunBuilder(root, name=HOSTILE, tags=[HOSTILE]).attempt()
    made.log({"loss": [2.0, math.nan, math.inf, 1.0]}, steps=[0, 1, 2, 3])
    return made.record(HOSTILE, at_s=2.0).end()


@pytest.fixture(scope="module")
def served(builder: RunBuilder) -> Iterator[Served]:
    with serve_in_thread(builder.path.parent) as served:
        yield served


# Pages ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "page", "base"), [("", "runs", ""), ("compare", "compare", ""), (f"run/{RUN_ID}", "run", "../")]
)
def test_the_shell_of_a_page(served: Served, builder: RunBuilder, path: str, page: str, base: str) -> None:
    """It names the page, the run and the root, and every address in it is relative, so that any prefix will do."""
    answer = served.get(path)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    tags = Tags(answer.text)
    (body,) = tags.of("body")
    assert body["data-page"] == page
    assert body["data-base"] == base
    assert body["data-run"] == (RUN_ID if page == "run" else "")
    assert body["data-root"] == str(builder.path.parent)
    addresses = [value for _, attributes in tags.found for key, value in attributes.items() if key in ("href", "src")]
    assert addresses
    assert all(value and (value.startswith((base, "#")) and not value.startswith("/")) for value in addresses)
    assert not re.search(r"://", answer.text)
    scripts = [item["src"] for item in tags.of("script")]
    assert any("plotly" in str(source) for source in scripts) is (page != "runs")
    # The policy admits no script within the page.
    assert all(item["src"] for item in tags.of("script"))
    assert not re.search(r"\son\w+=", answer.text)


def test_what_a_shell_loads_is_there_and_kept_for_ever(served: Served) -> None:
    """Script, style and plotly have the names of their contents."""
    tags = Tags(served.get(f"run/{RUN_ID}").text)
    sources = [str(item["src"]) for item in tags.of("script")] + [str(item["href"]) for item in tags.of("link")]
    bodies = {}
    for source in sources:
        answer = served.get(source.removeprefix("../"))
        assert answer.status == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        stem, digest, suffix = source.rpartition("/")[2].split(".")
        assert hashlib.blake2s(answer.body, digest_size=8).hexdigest() == digest
        bodies[f"{stem}.{suffix}"] = answer
    assert bodies["page.js"].text == joined(LOCAL_SCRIPTS)
    assert bodies["page.css"].text == "\n".join(asset(name) for name in LOCAL_STYLES)
    # For browsers that know the sign: nothing of the script itself is another.
    assert bodies["plotly.js"].body == b"//# allFunctionsCalledOnLoad\n" + plotly_path().read_bytes()
    assert bodies["page.js"].headers["content-type"] == "text/javascript; charset=utf-8"
    assert served.get("assets/page.0123456789abcdef.js").status == 404
    assert served.get("assets/..%2f..%2fpage.py").status == 404


def test_the_scripts_reach_no_other_address() -> None:
    """No address of anybody else stands in them, nor what would run a text as script or markup."""
    text = joined(LOCAL_SCRIPTS)
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert not re.search(r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)


def test_an_unknown_run_is_answered_with_near_ones(served: Served) -> None:
    """As a page with links, and as JSON."""
    wrong = RUN_ID[:-1] + "x"
    page = served.get(f"run/{wrong}")
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert f'href="../run/{RUN_ID}"' in page.text
    assert f"there is no run &#x27;{wrong}&#x27;" in page.text
    # It looks like the other pages, and names each run once.
    assert 'class="brand" href="../"' in page.text
    assert re.search(r'rel="stylesheet" href="\.\./assets/page\.\w+\.css"', page.text)
    assert page.text.count(f">{RUN_ID}<") == 1
    assert "near it" not in page.text
    answer = served.get(f"api/run/{wrong}")
    assert answer.status == 404
    assert answer.json["error"]["near"] == [RUN_ID]
    assert f"near it: {RUN_ID}" in answer.json["error"]["message"]


def test_a_run_is_found_by_its_name(tmp_path: Path) -> None:
    """As on the command line, where one run has it; of two with one name both are offered, and nothing outside is."""
    one, two, other = (f"2026013{number}-120000-abcdefgh" for number in range(3))
    root = tmp_path / "runs"
    RunBuilder(root, one, name="wide net").attempt().end()
    for run_id in (two, other):
        RunBuilder(root, run_id, name="twice").attempt().end()
    RunBuilder(tmp_path, "20260201-120000-outside1", name="outside").attempt().end()
    with serve_in_thread(root) as served:
        for named in ("wide%20net", one[:9]):
            answer = served.get(f"run/{named}")
            assert (answer.status, answer.headers["location"]) == (307, one)
        answer = served.get("run/twice")
        assert answer.status == 404
        assert f'href="../run/{two}"' in answer.text
        assert f'href="../run/{other}"' in answer.text
        for outside in ("outside", "..", quote(str(tmp_path / "20260201-120000-outside1"), safe="")):
            assert served.get(f"run/{outside}").status == 404
        error = served.get("api/run/adamw").json["error"]
        assert (error["near"], error["message"].partition("; ")[2]) == ([other], f"the newest is {other}")


def test_a_folder_whose_name_is_no_text_has_an_address(tmp_path: Path) -> None:
    """Its bytes as they are; an unknown run is answered with it as with any other that is near."""
    copied = RunBuilder(tmp_path).attempt().log({"loss": [2.0]}).end()
    copied.path.rename(tmp_path / os.fsdecode(b"gr\xfc\xdfe"))
    with serve_in_thread(tmp_path) as served:
        for path in ("run/gr%FC%DFe", "api/run/gr%fc%dfe", "api/run/gr%FC%DFe/files"):
            assert served.get(path).status == 200, path
        for reference in ("gr%FC", "latest"):
            answer = served.get(f"run/{reference}")
            assert (answer.status, answer.headers["location"]) == (307, "gr%FC%DFe")
        answer = served.get("run/nothing")
        assert answer.status == 404
        assert "../run/gr%FC%DFe" in [link["href"] for link in Tags(answer.text).of("a")]
        assert served.get("run/gr%FF").status == 404


def test_a_hostile_address_is_shown_as_text(served: Served) -> None:
    """Also on the page that says that there is nothing."""
    for path in ("run/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "%3Cscript%3Ealert(1)%3C", "run/%3Cimg%20src=x%3E"):
        answer = served.get(path)
        assert answer.status == 404
        assert not Tags(answer.text).of("script")
        assert not Tags(answer.text).of("img")


def test_the_newest_run_has_an_address(tmp_path: Path) -> None:
    """It leads to the run itself, relative to wherever the page is."""
    with serve_in_thread(tmp_path) as served:
        assert served.get("run/latest").status == 404
        for number in range(3):
            RunBuilder(tmp_path, f"20260131-12000{number}-abcdefgh", created=f"2026-01-31T12:00:0{number}Z")
        answer = served.get("run/latest")
        assert (answer.status, answer.headers["location"]) == (307, "20260131-120002-abcdefgh")


def test_an_address_that_leads_to_a_run_keeps_the_view_that_it_names(served: Served) -> None:
    """Axis, zoom and open groups stand behind the question mark, whatever the run is called by."""
    for reference in (RUN_ID[:12], "latest"):
        answer = served.get(f"run/{reference}?axis=time&charts=val%2Floss+a&smoothing=0.5")
        assert (answer.status, answer.headers["location"]) == (
            307,
            f"{RUN_ID}?axis=time&charts=val%2Floss+a&smoothing=0.5",
        )


# Data ----------------------------------------------------------------------------------------------------------------


def test_the_data_of_a_run_are_those_of_its_report(served: Served, builder: RunBuilder) -> None:
    """Every part, with numbers that are not finite by their names, in strict JSON."""
    got = served.get(f"api/run/{RUN_ID}").json
    revision, live = got.pop("revision"), got.pop("live")
    assert isinstance(revision, int)
    assert live is False
    expected = strictly(build(read_run(builder.path, START_NS + 700 * NS_PER_S)))
    for payload in (got, expected):
        # They tell the time at which they were made.
        payload.pop("footer")
    assert got == expected
    assert got["name"] == HOSTILE


def strictly(value: object) -> object:
    return json.loads(
        json.dumps(value), parse_constant=lambda name: {"NaN": "NaN", "Infinity": "+Inf", "-Infinity": "-Inf"}[name]
    )


def test_parts_together_are_the_whole(served: Served) -> None:
    """Each alone, or several: merged they are the same as all at once."""
    whole = served.get(f"api/run/{RUN_ID}").json
    merged: dict[str, object] = {}
    charts: dict[str, object] = {}
    for name in PARTS:
        part = served.get(f"api/run/{RUN_ID}?parts={name}").json
        charts.update(part.pop("charts", {}))
        merged.update(part)
    assert {**merged, "charts": charts} == whole
    two = served.get(f"api/run/{RUN_ID}?parts=logs,,config,logs").json
    assert set(two) == {"logs", "config", "revision", "live"}


def test_an_unknown_part_is_refused_with_those_that_there_are(served: Served) -> None:
    """The fault is in the address."""
    answer = served.get(f"api/run/{RUN_ID}?parts=head,foo")
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("there is no part 'foo'; there are head, metrics, ")


def test_log_records_alone(served: Served) -> None:
    """They have an address of their own."""
    logs = served.get(f"api/run/{RUN_ID}/logs").json["logs"]
    assert HOSTILE in json.dumps(logs, ensure_ascii=False)


def test_answers_are_compressed_only_for_others(served: Served) -> None:
    """On this machine that costs time; a proxy on it speaks for somebody elsewhere."""
    path = f"api/run/{RUN_ID}"
    near = served.get(path, accept_encoding="gzip")
    assert "content-encoding" not in near.headers
    far = served.get(path, accept_encoding="gzip, br", x_forwarded_for="192.0.2.1")
    assert far.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(far.body)) == near.json
    assert "content-encoding" not in served.get(path, x_forwarded_for="192.0.2.1").headers
    sources = [str(item["src"]) for item in Tags(served.get("compare").text).of("script")]
    (name,) = [source for source in sources if "plotly" in source]
    plotly = served.get(name, accept_encoding="gzip", x_forwarded_for="192.0.2.1")
    assert gzip.decompress(plotly.body).endswith(b"\n" + plotly_path().read_bytes())


def test_concurrent_requests_share_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pages that open at once cost one reading."""
    from otel_train.view.live import LiveRun

    builder = RunBuilder(tmp_path).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).end()
    reads = []
    before = LiveRun.refresh

    def counted(self: LiveRun, *arguments: object, **options: object) -> object:
        change = before(self, *arguments, **options)  # type: ignore[arg-type]
        reads.append(change.kind)
        return change

    monkeypatch.setattr(LiveRun, "refresh", counted)
    with serve_in_thread(tmp_path) as served:
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(served.get(f"api/run/{builder.run_id}").json))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == 10
    assert all(answer == answers[0] for answer in answers)
    assert reads.count("reload") == 1


# Bad input -----------------------------------------------------------------------------------------------------------


def test_a_run_that_was_deleted_is_gone(tmp_path: Path) -> None:
    """Who has it open is told so; then it is no run at all."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [2.0]}).end()
    with serve_in_thread(tmp_path) as served:
        path = f"api/run/{builder.run_id}"
        assert served.get(path).status == 200
        shutil.rmtree(builder.path)
        gone = None
        # What was read half a second ago is still shown.
        for _ in range(100):
            gone = served.get(path)
            if gone.status != 200:
                break
            threading.Event().wait(0.05)
        assert gone is not None
        assert gone.status == 410
        assert gone.json["error"]["gone"] is True
        assert "was deleted" in gone.json["error"]["message"]
        assert served.get(path).status == 404
        assert served.get(f"run/{builder.run_id}").status == 404


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzipped"])
def test_a_run_that_takes_the_name_of_one_that_was_deleted_is_shown_alone(tmp_path: Path, is_packed: bool) -> None:
    """A script with a fixed id is run again: nothing of the older run is left, though its files were shorter."""

    def begun(losses: list[float], created: str) -> RunBuilder:
        made = RunBuilder(tmp_path, created=created).attempt().log({"loss": losses}, steps=range(len(losses))).end()
        segment = made.path / "attempt-1" / "rank-0" / "metrics.000001.jsonl"
        if is_packed:
            segment.with_name(f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
            segment.unlink()
        return made

    builder = begun([1.0, 2.0], "2026-01-31T12:00:00Z")
    with serve_in_thread(tmp_path) as served:
        path = f"api/run/{builder.run_id}?parts=metrics,run_log"
        assert served.get(path).json["summary"][0]["last"]["value"] == 2.0
        shutil.rmtree(builder.path)
        begun([7.0, 8.0, 9.0, 10.0], "2026-01-31T12:00:01Z")
        found = served.get(path).json
        # What was read half a second ago is still shown.
        for _ in range(2000):
            if found["summary"][0]["last"]["value"] != 2.0:
                break
            found = served.get(path).json
        assert found["charts"]["metrics"][0]["lines"][0]["y"] == [7.0, 8.0, 9.0, 10.0]
        assert (found["summary"][0]["points"], found["run_log"]["damage"]) == (4, [])


def test_an_empty_and_a_missing_root(tmp_path: Path) -> None:
    """The page is there all the same, and runs appear by themselves."""
    for root in (tmp_path / "empty", tmp_path / "missing"):
        if root.name == "empty":
            root.mkdir()
        with serve_in_thread(root) as served:
            assert served.get("").status == 200
            assert served.get("api/runs").json["total"] == 0
            answer = served.get("api/run/anything")
            assert answer.status == 404
            assert "no other run either" in answer.json["error"]["message"]
            with served.events("api/runs/events") as events:
                RunBuilder(root).attempt().end()
                assert events.next()[0] == "changed"
            assert served.get("api/runs").json["total"] == 1
        assert not (tmp_path / "missing").exists() or root.name == "missing"


def test_foreign_files_are_no_runs(tmp_path: Path) -> None:
    """Files, folders of others, hidden ones: passed over; a run that is damaged is still a run."""
    RunBuilder(tmp_path).attempt().log({"loss": [2.0]}).end()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "events.out.tfevents").write_bytes(b"\0" * 10)
    (tmp_path / "wandb").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    damaged = tmp_path / "20260131-130000-damaged2"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    with serve_in_thread(tmp_path) as served:
        rows = served.get("api/runs").json["rows"]
        assert {row["run_id"] for row in rows} == {RUN_ID, damaged.name}
        for name in ("wandb", "circle", "notes.txt"):
            assert served.get(f"api/run/{name}").status == 404
        answer = served.get(f"api/run/{damaged.name}")
        assert answer.status == 404
        assert "nothing in it can be read" in answer.json["error"]["message"]


def test_a_fault_nobody_expected_has_a_number(
    builder: RunBuilder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The visitor gets no traceback; the server's output has it, once for many."""
    from otel_train.view.serving import run_files

    def broken(folder: Path) -> None:
        raise ZeroDivisionError("made \x1b[31m up")

    monkeypatch.setattr(run_files, "list_files", broken)
    with serve_in_thread(builder.path.parent) as served:
        answers = [served.get(f"api/run/{RUN_ID}/files") for _ in range(3)]
    numbers = {answer.json["error"]["fault"] for answer in answers}
    assert {answer.status for answer in answers} == {500}
    (number,) = numbers
    assert re.fullmatch("[0-9a-f]{8}", number)
    assert f"fault {number}" in answers[0].json["error"]["message"]
    assert "ZeroDivision" not in answers[0].text
    written = capfd.readouterr().err
    assert written.count("Traceback") == 1
    assert f"fault {number} at /api/run/{RUN_ID}/files" in written
    assert "made \\x1b[31m up" in written
    assert "\x1b" not in written


def test_nothing_is_written_about_requests(builder: RunBuilder, capfd: pytest.CaptureFixture[str]) -> None:
    """A page asks every second; only who wants to see that does."""
    with serve_in_thread(builder.path.parent) as served:
        served.get(f"api/run/{RUN_ID}")
        served.get("nix")
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    with serve_in_thread(builder.path.parent, verbose=True, token="ein geheimes Wort") as served:
        served.get(f"run/{RUN_ID}?token=ein+geheimes+Wort")
        served.get("nix%0Anix")
    lines = capfd.readouterr().err.splitlines()
    assert re.fullmatch(rf"otel-train ui: GET /run/{RUN_ID} 200 \d+ ms", lines[0])
    assert re.fullmatch(r"otel-train ui: GET /nix%0Anix 401 \d+ ms", lines[1])


def test_looking_changes_nothing_in_a_run(tmp_path: Path) -> None:
    """All of its files have the bytes and times that they had."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).record("x").end()

    def state() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes())
            for path in builder.path.rglob("*")
            if path.is_file()
        }

    before = state()
    with serve_in_thread(tmp_path) as served:
        for path in ("", "api/runs", f"run/{RUN_ID}", f"api/run/{RUN_ID}", f"api/run/{RUN_ID}/files"):
            assert served.get(path).status == 200
    assert state() == before
