"""From a model file back to the raw data: across runs, after moves and renames, with what is missing said."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest

from otel_train.clock import iso
from otel_train.lineage.chain import trace_lineage
from otel_train.lineage.chain_nodes import Node
from otel_train.lineage.chain_text import render, size_text
from otel_train.lineage.checkpoints import save_checkpoint
from otel_train.lineage.contexts import archive_context, make_context, write_context
from otel_train.lineage.datasets import describe_dataset
from otel_train.lineage.files import describe_files
from otel_train.lineage.model_files import parent_of
from otel_train.lineage.stages import StageRecord

START_NS = 1_767_225_600_000_000_000
MINUTE_NS = 60_000_000_000
PREPARE, TRAIN, TUNE = "20260101-000000-aaaaaaaa", "20260101-010000-bbbbbbbb", "20260101-020000-cccccccc"


class Workshop:
    """Writes runs as the product does: records of the lineage room in run.json."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "runs"
        self.now_ns = START_NS

    def tick(self) -> int:
        self.now_ns += MINUTE_NS
        return self.now_ns

    def write(self, name: str, content: str):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def run(self, run_id: str, name: str, **lists) -> dict:
        environment = {"code": {"commit": f"{name}-commit", "branch": "main", "dirty": False}}
        attempt = {"attempt": 1, "config": {"lr": 0.1}, "seed": 7, "environment": environment}
        document = {"format": 1, "run_id": run_id, "run_name": name, "project": "digits", "status": "finished"}
        document |= {
            "created": iso(self.tick()),
            "attempts": [attempt],
            "datasets": [],
            "checkpoints": [],
            "stages": [],
        }
        document |= lists
        return document

    def keep(self, document: dict) -> None:
        folder = self.root / document["run_id"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(document))

    def stage(self, name: str, inputs, outputs, code=None, make=None) -> dict:
        stage = StageRecord(name, base=self.folder, hash_now=True)
        stage.start(self.tick(), self.now_ns)
        stage.add_inputs(inputs)
        if code:
            stage.add_code(code)
        if make:
            make()
        stage.add_outputs(outputs)
        stage.end(self.tick(), self.now_ns)
        return stage.to_dict() | {"attempt": 1, "rank": 0}

    def dataset(self, *arguments, **options) -> dict:
        return describe_dataset(*arguments, base=self.folder, **options) | {
            "attempt": 1,
            "rank": 0,
            "time": iso(self.tick()),
        }

    def checkpoint(self, document: dict, name: str, content: bytes, parents=(), step: int = 100) -> dict:
        fields = {"run": document["run_id"], "run_name": document["run_name"], "attempt": 1, "step": step}
        data, stages, code = document["datasets"], document["stages"], document["attempts"][0]["environment"]["code"]
        now_ns = self.tick()

        def context_of(facts):
            return make_context(
                facts, created_ns=now_ns, parents=parents, data=data, stages=stages, code=code, seed=7, **fields
            )

        facts = save_checkpoint(
            self.folder / name,
            content,
            describe=lambda facts: archive_context(self.root / document["run_id"], context_of(facts)),
        )
        write_context(facts["path"], context_of(facts))
        return facts | {"role": "saved", "time": iso(now_ns), "attempt": 1, "rank": 0, "step": step}


@pytest.fixture
def workshop(tmp_path):
    """A preprocess run, a train run on its features, and a fine-tune run from its model."""
    shop = Workshop(tmp_path)
    shop.write("raw.csv", "raw")
    shop.write("prepare.py", "prepare")
    prepare = shop.run(PREPARE, "prepare")
    made = lambda: shop.write("features.npy", "features")  # noqa: E731 - a name for what the stage does
    prepare["stages"] = [shop.stage("preprocess", "raw.csv", "features.npy", code="prepare.py", make=made)]
    shop.keep(prepare)

    train = shop.run(TRAIN, "train")
    train["datasets"] = [shop.dataset("train", path="features.npy", labels=[0, 1, 1])]
    train["checkpoints"] = [shop.checkpoint(train, "models/base.pt", b"base weights")]
    shop.keep(train)

    shop.write("extra.csv", "extra")
    tune = shop.run(TUNE, "tune")
    parent = parent_of(tmp_path / "models/base.pt", roots=[shop.root])
    tune["checkpoints"] = [parent | {"role": "loaded", "time": iso(shop.tick()), "attempt": 1, "rank": 0}]
    tune["datasets"] = [shop.dataset("extra", path="extra.csv", labels=[1])]
    tune["checkpoints"].append(shop.checkpoint(tune, "models/tuned.pt", b"tuned weights", [parent], step=20))
    shop.keep(tune)
    return shop


def outline(node: Node, depth: int = 0) -> list[tuple[int, str, str, str]]:
    """Return (depth, link, kind, title) of all nodes in the order of the tree."""
    title = node.title.rsplit("/", 1)[-1]
    rows = [(depth, node.link, node.kind, title)]
    for child in node.children:
        rows.extend(outline(child, depth + 1))
    return rows


TRAIN_CHAIN = [
    (0, "saved by", "run", f"run {TRAIN}"),
    (1, "data", "dataset", "data set train"),
    (2, "from", "file", "features.npy"),
    (3, "made by", "stage", f"stage preprocess of run {PREPARE}"),
    (4, "code", "code", "prepare.py"),
    (4, "input", "file", "raw.csv"),
    (4, "output", "file", "features.npy"),
]


def deeper(rows, by: int):
    return [(depth + by, link, kind, title) for depth, link, kind, title in rows]


def test_the_chain_of_three_runs_goes_back_to_the_raw_data(workshop):
    """Fine-tuned model, its run, the base model, its run, features, preprocessing, raw data, each with its checksum."""
    chain = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root])
    assert chain.found
    assert chain.problems == []
    assert outline(chain.root) == [
        (0, "", "model", "tuned.pt"),
        (1, "saved by", "run", f"run {TUNE}"),
        (2, "started from", "model", "base.pt"),
        *deeper(TRAIN_CHAIN, 3),
        (2, "data", "dataset", "data set extra"),
        (3, "from", "file", "extra.csv"),
    ]
    assert chain.root.sha256 == hashlib.sha256(b"tuned weights").hexdigest()
    run = chain.root.children[0]
    assert run.details["code"] == {"commit": "tune-commit", "branch": "main", "dirty": False}
    assert (run.details["name"], run.details["step"], run.details["seed"]) == ("tune", 20, 7)
    base = run.children[0]
    assert base.sha256 == hashlib.sha256(b"base weights").hexdigest()
    stage = base.children[0].children[0].children[0].children[0]
    assert stage.details["code"]["commit"] == "prepare-commit"
    assert stage.details["duration_s"] == 60.0
    assert stage.children[1].sha256 == hashlib.sha256(b"raw").hexdigest()
    assert stage.children[1].notes == ["raw: no known run made it"]


def test_a_moved_and_renamed_model_is_found_by_its_content(workshop):
    """Without the context beside it, the same chain comes out."""
    expected = outline(trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root]).root)[1:]
    moved = workshop.folder / "release" / "v1.bin"
    moved.parent.mkdir()
    (workshop.folder / "models/tuned.pt").rename(moved)
    (workshop.folder / "models/tuned.pt.context.json").unlink()
    chain = trace_lineage(moved, [workshop.root])
    assert outline(chain.root)[1:] == expected
    assert chain.problems == []


def test_a_run_of_which_only_the_context_is_left_is_told_by_it(workshop):
    """Folders of runs are pruned; the model still tells its run, code, data and parent."""
    shutil.rmtree(workshop.root / TUNE)
    chain = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root])
    assert outline(chain.root)[:3] == [
        (0, "", "model", "tuned.pt"),
        (1, "saved by", "run", f"run {TUNE}"),
        (2, "started from", "model", "base.pt"),
    ]
    assert outline(chain.root)[3:10] == deeper(TRAIN_CHAIN, 3)
    assert chain.root.children[0].details["code"]["commit"] == "tune-commit"
    assert chain.root.children[0].notes == ["told by the checkpoint's context alone"]
    assert chain.problems == [f"run {TUNE} is not under the folders searched"]
    shutil.rmtree(workshop.root)
    alone = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root])
    titles = [row[3] for row in outline(alone.root)]
    assert titles[:4] == ["tuned.pt", f"run {TUNE}", "base.pt", f"run {TRAIN}"]
    assert titles[-2:] == ["data set extra", "extra.csv"]


def test_a_run_is_a_start_as_well_as_a_file(workshop):
    """By id, unique beginning, name or folder; everything of the run is told."""
    by_id = outline(trace_lineage(TRAIN, [workshop.root]).root)
    assert by_id == [(0, "", "run", f"run {TRAIN}"), *TRAIN_CHAIN[1:]]
    for reference in ("20260101-01", "train", str(workshop.root / TRAIN)):
        chain = trace_lineage(reference, [workshop.root])
        assert outline(chain.root) == by_id
        assert chain.found
    elsewhere = trace_lineage(workshop.root / TRAIN, [])
    assert outline(elsewhere.root)[0] == (0, "", "run", f"run {TRAIN}")


def test_any_file_that_a_stage_made_has_a_chain(workshop):
    """Not only models: features lead to their stage."""
    chain = trace_lineage(workshop.folder / "features.npy", [workshop.root])
    assert outline(chain.root) == [(0, "", "model", "features.npy"), *deeper(TRAIN_CHAIN[3:], -2)]


def test_a_file_of_unknown_origin_and_a_missing_one_are_said(workshop):
    """Nothing is known of the one; the other is looked for by its path, and by its checksum where one is given."""
    unknown = trace_lineage(workshop.write("other.pt", "?"), [workshop.root])
    assert (unknown.found, unknown.root.notes) == (False, ["no known run made it"])
    missing = trace_lineage("nothing.pt", [workshop.root])
    assert not missing.found
    assert missing.problems == ["nothing.pt: no such file, and no run of that id or name; looked for by its path"]
    (workshop.folder / "models/tuned.pt").unlink()
    by_path = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root])
    assert by_path.root.notes == ["found by its path"]
    assert by_path.root.children[0].title == f"run {TUNE}"
    by_sha = trace_lineage(hashlib.sha256(b"tuned weights").hexdigest(), [workshop.root])
    assert by_sha.root.children[0].title == f"run {TUNE}"


def test_an_overwritten_model_is_not_taken_for_what_the_run_saved(workshop):
    """Other content under the name is found by its path only, and that is a problem that is shown."""
    path = workshop.write("models/tuned.pt", "changed by hand")
    chain = trace_lineage(path, [workshop.root])
    assert chain.root.notes == ["found by its path", "its content differs from what was made"]
    assert chain.problems == [
        "the context beside it tells of other content; the file was changed since",
        f"{path}: its content differs from what run {TUNE} made there",
    ]


def test_data_that_changed_between_the_runs_is_noticed(workshop):
    """The features were edited after the stage made them: the chain holds by path, with the doubt beside it."""
    workshop.write("features.npy", "edited")
    again = workshop.run("20260101-030000-dddddddd", "again")
    again["datasets"] = [workshop.dataset("train", path="features.npy")]
    workshop.keep(again)
    chain = trace_lineage("again", [workshop.root])
    features = chain.root.children[0].children[0]
    assert features.notes == ["found by its path", "its content differs from what was made"]
    assert features.children[0].title == f"stage preprocess of run {PREPARE}"
    assert chain.problems == [f"features.npy: its content differs from what run {PREPARE} made there"]


def test_runs_that_made_each_others_inputs_are_shown_as_a_circle(workshop):
    """Two stages that read each other's output end the branch instead of going on for ever."""
    workshop.write("a.txt", "a")
    workshop.write("b.txt", "b")
    for run_id, name, source, product in (
        ("20260102-000000-eeeeeeee", "one", "a.txt", "b.txt"),
        ("20260102-000000-ffffffff", "two", "b.txt", "a.txt"),
    ):
        document = workshop.run(run_id, name)
        document["stages"] = [workshop.stage(f"make {product}", source, product)]
        workshop.keep(document)
    chain = trace_lineage("two", [workshop.root])
    kinds = [row[2] for row in outline(chain.root)]
    assert "cycle" in kinds
    assert chain.problems == ["stage make a.txt of run 20260102-000000-ffffffff is among its own sources"]


def test_what_a_run_saved_and_evaluated_itself_is_no_circle(workshop):
    """A stage of the same run reads the model that the run saved."""
    document = workshop.run("20260102-000000-gggggggg", "whole")
    document["checkpoints"] = [workshop.checkpoint(document, "own.pt", b"own")]
    document["stages"] = [workshop.stage("evaluate", "own.pt", [])]
    workshop.keep(document)
    chain = trace_lineage("whole", [workshop.root])
    assert chain.problems == []
    assert outline(chain.root)[2:] == [
        (2, "input", "file", "own.pt"),
        (3, "saved by", "seen", "run 20260102-000000-gggggggg"),
    ]
    of_file = trace_lineage(workshop.folder / "own.pt", [workshop.root])
    assert outline(of_file.root)[1:] == [(1, "saved by", "run", "run 20260102-000000-gggggggg")]


def test_stages_of_one_run_hang_together_and_are_told_once(workshop):
    """Clean, extract, train: the data set leads to its stage, each stage to the one before; the list repeats none."""
    document = workshop.run("20260102-000000-hhhhhhhh", "pipeline")
    document["stages"] = [
        workshop.stage("clean", "raw.csv", "clean.csv", make=lambda: workshop.write("clean.csv", "clean")),
        workshop.stage("extract", "clean.csv", "x.npy", make=lambda: workshop.write("x.npy", "x")),
    ]
    document["datasets"] = [workshop.dataset("x", path="x.npy", dropped={"blank": 2})]
    workshop.keep(document)
    assert outline(trace_lineage("pipeline", [workshop.root]).root) == [
        (0, "", "run", "run 20260102-000000-hhhhhhhh"),
        (1, "data", "dataset", "data set x"),
        (2, "from", "file", "x.npy"),
        (3, "made by", "stage", "stage extract of run 20260102-000000-hhhhhhhh"),
        (4, "input", "file", "clean.csv"),
        (5, "made by", "stage", "stage clean of run 20260102-000000-hhhhhhhh"),
        (6, "input", "file", "raw.csv"),
        (6, "output", "file", "clean.csv"),
        (4, "output", "file", "x.npy"),
        (1, "stage", "seen", "stage clean"),
        (1, "stage", "seen", "stage extract"),
    ]
    text = render(trace_lineage("pipeline", [workshop.root]))
    assert "2 samples dropped before" in text
    assert "└─ stage extract  [told elsewhere in this tree]" in text


def test_data_in_memory_is_tied_by_its_checksum_or_its_stage(workshop):
    """The same array as a former run's data set leads there; else the stage that logged it tells the files."""
    first = workshop.run("20260102-000000-iiiiiiii", "first")
    first["stages"] = [workshop.stage("load", "raw.csv", [])]
    first["datasets"] = [workshop.dataset("numbers", [1, 2, 3]) | {"stage": "load"}]
    workshop.keep(first)
    second = workshop.run("20260102-000000-jjjjjjjj", "second")
    second["datasets"] = [workshop.dataset("same numbers", [1, 2, 3]), workshop.dataset("others", [4])]
    workshop.keep(second)
    rows = outline(trace_lineage("first", [workshop.root]).root)
    assert rows[1:4] == [
        (1, "data", "dataset", "data set numbers"),
        (2, "logged in", "stage", "stage load"),
        (3, "input", "file", "raw.csv"),
    ]
    rows = outline(trace_lineage("second", [workshop.root]).root)
    assert rows[1:] == [
        (1, "data", "dataset", "data set same numbers"),
        (2, "same as", "dataset", "data set numbers of run 20260102-000000-iiiiiiii"),
        (3, "logged in", "stage", "stage load"),
        (4, "input", "file", "raw.csv"),
        (1, "data", "dataset", "data set others"),
    ]


def test_splits_each_lead_to_their_files(workshop):
    """A data set of splits has its parts below it."""
    document = workshop.run("20260102-000000-kkkkkkkk", "splits")
    workshop.write("test.csv", "test")
    paths = {"train": workshop.folder / "features.npy", "test": workshop.folder / "test.csv"}
    document["datasets"] = [workshop.dataset("digits", paths)]
    workshop.keep(document)
    rows = outline(trace_lineage("splits", [workshop.root]).root)
    assert [row for row in rows if row[0] <= 3] == [
        (0, "", "run", "run 20260102-000000-kkkkkkkk"),
        (1, "data", "dataset", "data set digits"),
        (2, "part", "dataset", "data set train"),
        (3, "from", "file", "features.npy"),
        (2, "part", "dataset", "data set test"),
        (3, "from", "file", "test.csv"),
    ]


def test_what_a_later_attempt_logged_is_not_among_the_sources_of_an_earlier_checkpoint(workshop):
    """Data sets of attempt 2 did not make a checkpoint of attempt 1; logged again alike they show once."""
    document = workshop.run("20260102-000000-llllllll", "resumed")
    document["datasets"] = [workshop.dataset("x", [1])]
    document["checkpoints"] = [workshop.checkpoint(document, "first.pt", b"first")]
    document["attempts"].append(document["attempts"][0] | {"attempt": 2, "config": {"lr": 0.05}})
    document["datasets"] += [workshop.dataset("x", [1]) | {"attempt": 2}, workshop.dataset("y", [2]) | {"attempt": 2}]
    document["checkpoints"].append(workshop.checkpoint(document, "second.pt", b"second") | {"attempt": 2})
    workshop.keep(document)
    first = trace_lineage(workshop.folder / "first.pt", [workshop.root]).root.children[0]
    assert [child.title for child in first.children] == ["data set x"]
    assert first.details["config"] == {"lr": 0.1}
    second = trace_lineage(hashlib.sha256(b"second").hexdigest(), [workshop.root]).root.children[0]
    assert [child.title for child in second.children] == ["data set x", "data set y"]
    assert second.details["config"] == {"lr": 0.05}


def test_a_copy_that_another_run_only_logged_does_not_hide_the_origin(workshop):
    """Who saved the content made it; the other mention is counted."""
    copy = workshop.write("copies/base-copy.pt", "base weights")
    document = workshop.run("20260102-000000-mmmmmmmm", "logger")
    [entry] = describe_files(copy)
    document["checkpoints"] = [entry | {"role": "logged", "time": iso(workshop.tick()), "attempt": 1}]
    workshop.keep(document)
    chain = trace_lineage(copy, [workshop.root])
    assert chain.root.children[0].title == f"run {TRAIN}"
    assert chain.root.notes == ["1 more run made the same content"]


def test_empty_files_are_not_taken_for_each_other(workshop):
    """All empty files have one checksum; it says nothing about where they come from."""
    document = workshop.run("20260102-000000-nnnnnnnn", "empty")
    document["stages"] = [workshop.stage("touch", [], "empty.txt", make=lambda: workshop.write("empty.txt", ""))]
    workshop.keep(document)
    assert not trace_lineage(workshop.write("other-empty.txt", ""), [workshop.root]).found


def test_damaged_and_foreign_run_files_are_passed_over_and_said(workshop):
    """The rest of the chain is still found."""
    for name, content in (
        ("cut", '{"run_id": "x'),
        ("foreign", "[]"),
        ("nameless", "{}"),
        ("odd", '{"run_id": "o", "stages": [3], "datasets": {"a": 1}, "attempts": "x"}'),
    ):
        folder = workshop.root / name
        folder.mkdir()
        (folder / "run.json").write_text(content)
    chain = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root])
    assert chain.found
    assert len(chain.problems) == 3
    assert all(problem.startswith("damaged, left out: ") for problem in chain.problems)
    assert outline(trace_lineage("o", [workshop.root]).root)[0] == (0, "", "run", "run o")


def test_a_missing_input_is_a_missing_link_in_the_text(workshop):
    """What was not there when the run asked for it is told under the tree."""
    document = workshop.run("20260102-000000-oooooooo", "gap")
    document["stages"] = [workshop.stage("load", ["gone.csv", "s3://bucket/raw.csv"], [])]
    workshop.keep(document)
    chain = trace_lineage("gap", [workshop.root])
    assert outline(chain.root)[2:] == [(2, "input", "missing", "gone.csv"), (2, "input", "url", "raw.csv")]
    assert chain.problems == ["gone.csv: it was missing when the run asked for it"]
    assert "Missing or doubtful:\n  - gone.csv: it was missing when the run asked for it" in render(chain)


def test_a_large_tree_is_cut_and_says_so(workshop):
    """The bound on nodes ends the tree, not the command."""
    chain = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root], max_nodes=3)
    assert "the tree was cut: it is too large" in chain.problems
    assert len(outline(chain.root)) <= 5


def test_a_long_history_of_fine_tuning_is_followed_to_its_bound(tmp_path):
    """Three hundred runs, each from the last: no recursion error, and the end is said."""
    shop = Workshop(tmp_path)
    parent = None
    for number in range(300):
        document = shop.run(f"20260101-000000-{number:08}", f"tune {number}")
        if parent is not None:
            document["checkpoints"] = [parent | {"role": "loaded"}]
        sha256 = hashlib.sha256(str(number).encode()).hexdigest()
        parent = {"path": f"/models/{number}.pt", "absolute": f"/models/{number}.pt", "kind": "file", "sha256": sha256}
        document["checkpoints"] = [*document["checkpoints"], parent | {"role": "saved", "time": iso(shop.tick())}]
        shop.keep(document)
    chain = trace_lineage(sha256, [shop.root])
    assert sum(row[2] == "run" for row in outline(chain.root)) == 100
    assert chain.problems == ["the chain goes on behind run 20260101-000000-00000199; only 100 steps are followed"]


def test_the_text_is_a_tree_with_short_checksums(workshop):
    """Lines, branches, code, configuration; ASCII where the terminal has no more; no control characters pass."""
    tuned = workshop.folder / "models/tuned.pt"
    text = render(trace_lineage(tuned, [workshop.root]))
    base, raw = hashlib.sha256(b"base weights").hexdigest(), hashlib.sha256(b"raw").hexdigest()
    extra = hashlib.sha256(b"extra").hexdigest()
    lines = text.splitlines()
    assert lines[0] == f"{tuned}  sha256 {hashlib.sha256(b'tuned weights').hexdigest()[:12]}  13 B"
    assert lines[1] == f"└─ saved by run {TUNE} (tune)  attempt 1  step 20  finished"
    assert lines[2] == "   │  code tune-commit on main"
    assert lines[3] == "   │  seed 7"
    assert lines[4] == "   │  configuration: lr=0.1"
    assert f"   ├─ started from {workshop.folder / 'models/base.pt'}  sha256 {base[:12]}  12 B" in lines
    assert any(line.endswith("─ data set train  3 samples  2 classes") for line in lines)
    assert lines[-2:] == [
        "   └─ data set extra  1 sample  1 class",
        f"      └─ from extra.csv  sha256 {extra[:12]}  5 B  [raw: no known run made it]",
    ]
    assert any(line.endswith(f"input raw.csv  sha256 {raw[:12]}  3 B  [raw: no known run made it]") for line in lines)
    assert render(trace_lineage(tuned, [workshop.root]), unicode=False).isascii()
    document = workshop.run("20260102-000000-pppppppp", "evil\x1b[2J name")
    workshop.keep(document)
    assert "\x1b" not in render(trace_lineage("20260102-000000-pppppppp", [workshop.root]))


def test_the_chain_is_json_and_counts_its_progress(workshop):
    """For --json: strict JSON with the whole tree; runs read are counted for the progress bar."""
    seen: list[tuple[int, int]] = []
    chain = trace_lineage(
        workshop.folder / "models/tuned.pt", [workshop.root], progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    document = json.loads(json.dumps(chain.to_dict(), allow_nan=False))
    assert (document["found"], document["problems"]) == (True, [])
    assert document["chain"]["children"][0]["children"][0]["sha256"] == hashlib.sha256(b"base weights").hexdigest()


def test_an_unverified_chain_believes_the_context_and_says_so(workshop):
    """For files too large to hash: nothing but the context is read."""
    chain = trace_lineage(workshop.folder / "models/tuned.pt", [workshop.root], verify=False)
    assert chain.root.notes == ["its checksum is that of the context beside it, not verified"]
    assert chain.root.children[0].title == f"run {TUNE}"
    bare = trace_lineage(workshop.write("bare.pt", "x"), [workshop.root], verify=False)
    assert not bare.found
    assert "no context lies beside it" in bare.problems[0]


def test_sizes_read_as_people_write_them():
    """Decimal units, one digit behind the point."""
    assert [size_text(size) for size in (0, 999, 1200, 3_400_000, 7_000_000_000, 2e12)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "3.4 MB",
        "7.0 GB",
        "2.0 TB",
    ]
