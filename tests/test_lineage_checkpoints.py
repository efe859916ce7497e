"""A checkpoint is whole or the former one is; its context names everything that made it and is found by content."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import signal
import struct
import subprocess
import sys
import textwrap
import types
import zipfile

import numpy as np
import pytest
import torch

from otel_train.clock import iso
from otel_train.errors import CheckpointError
from otel_train.lineage.checkpoints import save_checkpoint
from otel_train.lineage.contexts import (
    archive_context,
    context_path,
    find_context_by_sha,
    make_context,
    read_context,
    write_context,
)
from otel_train.lineage.documents import plain, read_document, write_document
from otel_train.lineage.hashing import folder_checksum
from otel_train.lineage.model_files import describe_checkpoint, parent_of

NOW_NS = 1_767_225_600_000_000_000


def sha_of(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def a_state(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((3, 4), value), "bias": torch.arange(3.0)}


def test_a_saved_state_loads_again_and_the_facts_are_those_of_the_file(tmp_path):
    """Path, size and SHA-256 are the file's, the duration that of the given clock."""
    ticks = iter([1_000_000_000, 3_500_000_000])
    facts = save_checkpoint(tmp_path / "new" / "model.pt", a_state(), mono_ns=lambda: next(ticks))
    path = tmp_path / "new" / "model.pt"
    loaded = torch.load(path)
    assert torch.equal(loaded["weight"], torch.full((3, 4), 1.0))
    assert facts == {
        "path": str(path),
        "kind": "file",
        "format": "torch",
        "size": path.stat().st_size,
        "sha256": sha_of(path),
        "checks": ["size", "sha256", "zip"],
        "duration_s": 2.5,
    }
    assert names_in(path.parent) == ["model.pt"]


def test_the_writer_follows_the_name_and_the_object(tmp_path):
    """Pickle by its suffix or without tensors, torch by tensors or suffix, bytes as they are."""
    cases = [
        ("model.pkl", {"a": 1}, "pickle", lambda path: pickle.loads(path.read_bytes()), {"a": 1}),
        ("model.joblib", [1, 2], "pickle", lambda path: pickle.loads(path.read_bytes()), [1, 2]),
        (
            "state",
            {"deep": [{"t": torch.tensor([2.0])}]},
            "torch",
            lambda path: torch.load(path)["deep"][0]["t"].item(),
            2.0,
        ),
        ("state.ckpt", {"epoch": 3}, "torch", torch.load, {"epoch": 3}),
        ("model.onnx", b"\x08\x07onnx", "bytes", lambda path: path.read_bytes(), b"\x08\x07onnx"),
    ]
    for name, obj, format_name, load, expected in cases:
        facts = save_checkpoint(tmp_path / name, obj)
        assert facts["format"] == format_name
        assert facts["sha256"] == sha_of(tmp_path / name)
        assert load(tmp_path / name) == expected


def test_a_module_is_found_to_hold_tensors(tmp_path):
    """A whole module goes through torch.save under any name."""
    assert save_checkpoint(tmp_path / "model", torch.nn.Linear(2, 1))["format"] == "torch"


def test_the_users_own_writer_gets_a_path_with_the_same_ending(tmp_path):
    """NumPy adds a suffix where it misses one, so the temporary name has to end like the real one."""
    given: list[str] = []

    def save(obj, path):
        given.append(path)
        np.save(path, obj)

    facts = save_checkpoint(tmp_path / "weights.npy", np.arange(3), save=save)
    assert given[0].endswith(".weights.npy")
    assert np.load(tmp_path / "weights.npy").tolist() == [0, 1, 2]
    assert (facts["format"], facts["sha256"]) == ("custom", sha_of(tmp_path / "weights.npy"))


def no_space(obj, path):
    with open(path, "wb") as handle:
        handle.write(b"half")
    raise OSError(28, "No space left on device", path)


@pytest.mark.parametrize(
    ("save", "cause"),
    [
        (no_space, "No space left on device"),
        (lambda obj, path: None, "nothing is at the path it was given"),
        (lambda obj, path: open(path, "wb").close(), "the new file is empty"),
        (lambda obj, path: zip_without_its_end(path), "the archive is not whole"),
        (lambda obj, path: zip_with_a_flipped_bit(path), "wrong checksum"),
    ],
)
def test_a_save_that_fails_leaves_the_former_file_whole(tmp_path, save, cause):
    """The error names path and cause; nothing else is left in the folder."""
    path = tmp_path / "model.pt"
    save_checkpoint(path, a_state())
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=cause) as caught:
        save_checkpoint(path, a_state(2.0), save=save)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["model.pt"]


def zip_without_its_end(path):
    torch.save(a_state(), path)
    with open(path, "rb+") as handle:
        handle.truncate(os.path.getsize(path) - 30)


def zip_with_a_flipped_bit(path):
    torch.save({"weight": torch.zeros(1000)}, path)
    with zipfile.ZipFile(path) as archive:
        entry = next(one for one in archive.infolist() if one.file_size == 4000)
    with open(path, "rb+") as handle:
        handle.seek(entry.header_offset + 2000)
        handle.write(b"\x01")


def test_an_object_that_cannot_be_written_is_the_cause(tmp_path):
    """The user's own failure is chained, so that its traceback is seen."""
    with pytest.raises(CheckpointError, match=r"model\.pkl was not saved") as caught:
        save_checkpoint(tmp_path / "model.pkl", lambda: None)
    assert isinstance(caught.value.__cause__, (pickle.PicklingError, AttributeError))
    assert names_in(tmp_path) == []


def test_bytes_that_change_on_their_way_to_the_disk_are_noticed(tmp_path, monkeypatch):
    """What is read back has to be what was written."""

    class LyingFile:
        def __init__(self, handle):
            self.handle = handle

        def write(self, data):
            return self.handle.write(bytes(data).replace(b"weights", b"wei9hts"))

        def __getattr__(self, name):
            return getattr(self.handle, name)

    real_open = open
    monkeypatch.setattr(
        "otel_train.lineage.checkpoints.open",
        lambda path, mode="r", **options: (
            LyingFile(real_open(path, mode, **options)) if mode == "xb" else real_open(path, mode, **options)
        ),
        raising=False,
    )
    with pytest.raises(CheckpointError, match="were read back"):
        save_checkpoint(tmp_path / "model.bin", b"some weights")
    assert names_in(tmp_path) == []


def test_an_interruption_passes_as_it_is_and_leaves_nothing(tmp_path):
    """Ctrl-C in the middle of a save is no checkpoint error."""

    def interrupted(obj, path):
        with open(path, "wb") as handle:
            handle.write(b"half")
        raise KeyboardInterrupt

    (tmp_path / "model.pt").write_bytes(b"former")
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "model.pt", {}, save=interrupted)
    assert names_in(tmp_path) == ["model.pt"]
    assert (tmp_path / "model.pt").read_bytes() == b"former"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_kill_9_in_the_middle_of_a_save_leaves_the_former_file_and_the_next_save_clears_up(tmp_path):
    """The half-written file never has the real name, and goes with the next save."""
    path = tmp_path / "model.pt"
    facts = save_checkpoint(path, a_state())
    script = f"""
        import os, signal
        from otel_train.lineage.checkpoints import save_checkpoint
        def save(obj, path):
            with open(path, "wb") as handle:
                handle.write(b"half")
                handle.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        save_checkpoint({str(path)!r}, {{}}, save=save)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert sha_of(path) == facts["sha256"]
    left = [name for name in names_in(tmp_path) if name != "model.pt"]
    assert len(left) == 1
    assert left[0].startswith(".unfinished-")
    save_checkpoint(path, a_state(3.0))
    assert names_in(tmp_path) == ["model.pt"]
    assert torch.load(path)["weight"][0, 0].item() == 3.0


def test_a_save_under_way_in_this_or_another_living_process_is_not_cleared_away(tmp_path):
    """Two ranks or threads may save to one name; only the dead and another host's old ones go."""
    path = tmp_path / "model.pt"

    def save(obj, temporary):
        with open(temporary, "wb") as handle:
            handle.write(b"outer")
        save_checkpoint(path, b"inner", wall_ns=lambda: NOW_NS)

    host = _name_of_a_save(tmp_path).split("-")[1]
    living = tmp_path / f".unfinished-{host}-{os.getppid()}-00000000.model.pt"
    foreign = tmp_path / ".unfinished-ffffffff-1-00000000.model.pt"
    other_target = tmp_path / f".unfinished-{host}-999999999-00000000.other.pt"
    for one in (living, foreign, other_target):
        one.write_bytes(b"half")
    os.utime(foreign, ns=(NOW_NS, NOW_NS))
    save_checkpoint(path, {}, save=save, wall_ns=lambda: NOW_NS + 3_600_000_000_000)
    assert path.read_bytes() == b"outer"
    assert names_in(tmp_path) == sorted([living.name, foreign.name, other_target.name, "model.pt"])
    save_checkpoint(path, b"later", wall_ns=lambda: NOW_NS + 2 * 86_400_000_000_000)
    assert names_in(tmp_path) == sorted([living.name, other_target.name, "model.pt"])


def _name_of_a_save(folder) -> str:
    names: list[str] = []

    def save(obj, path):
        names.append(os.path.basename(path))
        with open(path, "wb") as handle:
            handle.write(b"x")

    save_checkpoint(folder / "model.pt", {}, save=save)
    return names[0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_write_that_the_system_refuses_in_mid_file_leaves_the_former_one(tmp_path):
    """The system's own refusal (a limit on file size here, as a full disk elsewhere) is named, and nothing is left."""
    script = f"""
        import resource
        from otel_train.errors import CheckpointError
        from otel_train.lineage.checkpoints import save_checkpoint
        path = {str(tmp_path / "model.pkl")!r}
        save_checkpoint(path, "former")
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
        try:
            save_checkpoint(path, [bytes(1_000_000) + bytes([number]) for number in range(5)])
        except CheckpointError as fault:
            print(fault)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    printed = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    assert "model.pkl was not saved, the former one is as it was: OSError" in printed
    assert "File too large" in printed
    assert names_in(tmp_path) == ["model.pkl"]
    assert pickle.loads((tmp_path / "model.pkl").read_bytes()) == "former"


def test_a_link_is_followed_and_the_modes_of_the_former_file_stay(tmp_path):
    """Saving through a link writes where it points; a group-writable file stays one."""
    target = tmp_path / "large disk" / "real.pt"
    target.parent.mkdir()
    target.write_bytes(b"former")
    target.chmod(0o664)
    (tmp_path / "model.pt").symlink_to(target)
    facts = save_checkpoint(tmp_path / "model.pt", b"content")
    assert facts["path"] == str(target)
    assert target.read_bytes() == b"content"
    assert (tmp_path / "model.pt").is_symlink()
    assert target.stat().st_mode & 0o777 == 0o664


def test_a_very_long_name_can_be_saved(tmp_path):
    """The temporary name must not pass what a file system allows."""
    path = tmp_path / ("m" * 240 + ".pt")
    assert save_checkpoint(path, b"x")["path"] == str(path)
    assert len(names_in(tmp_path)) == 1


def test_a_writer_may_write_a_folder_which_takes_the_place_of_the_former(tmp_path):
    """Whole folders of other libraries: checksum of the list, the former one gone, nothing beside it."""

    def save(obj, path):
        os.mkdir(path)
        for name, content in obj.items():
            with open(os.path.join(path, name), "w") as handle:
                handle.write(content)

    path = tmp_path / "model"
    save_checkpoint(path, {"config.json": "{}", "old.bin": "1"}, save=save)
    facts = save_checkpoint(path, {"config.json": "{}", "model.bin": "2"}, save=save)
    assert names_in(path) == ["config.json", "model.bin"]
    assert names_in(tmp_path) == ["model"]
    assert (facts["kind"], facts["files"], facts["size"]) == ("folder", 2, 3)
    assert facts["sha256"] == folder_checksum(path).value


def test_a_folder_caught_between_two_renames_comes_back(tmp_path):
    """A kill between the renames leaves the former folder under another name; the next save restores it first."""
    (tmp_path / ".former.model").mkdir()
    (tmp_path / ".former.model" / "model.bin").write_text("former")
    with pytest.raises(CheckpointError):
        save_checkpoint(tmp_path / "model", {}, save=no_space)
    assert (tmp_path / "model" / "model.bin").read_text() == "former"


def test_the_description_comes_before_the_rename_and_its_fault_is_only_said(tmp_path):
    """So a kill right after the rename still finds the context; and telemetry never keeps a model from being saved."""
    seen: list[bool] = []

    def describe(facts):
        seen.append((tmp_path / "model.pt").exists())
        raise OSError("the run's folder is full")

    facts = save_checkpoint(tmp_path / "model.pt", b"x", describe=describe)
    assert seen == [False]
    assert facts["problems"] == ["its context was not kept: the run's folder is full"]
    assert (tmp_path / "model.pt").read_bytes() == b"x"


def a_safetensors_module(content_of):
    module = types.ModuleType("safetensors.torch")

    def save_file(tensors, path):
        with open(path, "wb") as handle:
            handle.write(content_of(tensors))

    module.save_file = save_file
    return module


def safetensors_bytes(tensors) -> bytes:
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_safetensors_goes_through_its_package_and_is_checked_by_its_header(tmp_path, monkeypatch):
    """A file cut short is refused; without the package the error says what to install."""
    monkeypatch.setitem(sys.modules, "safetensors", types.ModuleType("safetensors"))
    monkeypatch.setitem(sys.modules, "safetensors.torch", a_safetensors_module(safetensors_bytes))
    facts = save_checkpoint(tmp_path / "model.safetensors", a_state())
    assert (facts["format"], facts["checks"]) == ("safetensors", ["size", "sha256", "safetensors"])
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors_bytes(a_state())
    cut = a_safetensors_module(lambda tensors: safetensors_bytes(tensors)[:-4])
    monkeypatch.setitem(sys.modules, "safetensors.torch", cut)
    with pytest.raises(CheckpointError, match="its tensors need 60 bytes, it holds 56"):
        save_checkpoint(tmp_path / "model.safetensors", a_state())
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(CheckpointError, match="pip install safetensors"):
        save_checkpoint(tmp_path / "model.safetensors", a_state())
    with pytest.raises(CheckpointError, match="'epoch' is neither a tensor nor an array"):
        save_checkpoint(tmp_path / "model.safetensors", {**a_state(), "epoch": 3})


def test_a_torch_file_without_true_crcs_is_not_called_damaged(tmp_path):
    """The library can be told to leave the CRCs out; then only the archive's list is checked."""
    torch.serialization.set_crc32_options(False)
    try:
        facts = save_checkpoint(tmp_path / "model.pt", a_state(), save=torch.save)
    finally:
        torch.serialization.set_crc32_options(True)
    assert facts["sha256"] == sha_of(tmp_path / "model.pt")


def a_context(facts, **changes):
    fields = {
        "created_ns": NOW_NS,
        "run": "20260101-000000-abcdefgh",
        "run_name": "digits",
        "project": "p",
        "attempt": 2,
        "step": 100,
        "epoch": 3,
        "iterations": 400,
        "metrics": {"loss": 0.25, "f1": math.nan},
        "best": True,
        "data": [{"name": "train", "size": 5, "checksum": {"value": "aa"}, "classes": {"0": 5}, "problems": ["x"]}],
        "code": {"commit": "c0ffee", "branch": "main", "dirty": True},
        "dependencies": {"torch": "2.15.0"},
        "image": "registry/image:1",
        "config": {"lr": 1e-3},
        "seed": 7,
    }
    return make_context(facts, **(fields | changes))


def test_a_context_lies_beside_its_model_and_carries_everything(tmp_path):
    """Run, attempt, step, code, dependencies, image, data checksums and the model's SHA-256, as strict JSON."""
    facts = save_checkpoint(tmp_path / "model.pt", a_state())
    written = write_context(facts["path"], a_context(facts))
    assert written == tmp_path / "model.pt.context.json"

    def refuse(token):
        raise AssertionError(token)

    context = json.loads(written.read_text(), parse_constant=refuse)
    assert context["format"] == 1
    assert context["sha256"] == sha_of(tmp_path / "model.pt")
    assert context["size"] == (tmp_path / "model.pt").stat().st_size
    assert context["created"] == iso(NOW_NS) == "2026-01-01T00:00:00.000000Z"
    assert context["metrics"] == {"loss": 0.25, "f1": "NaN"}
    assert (context["run"], context["attempt"], context["step"], context["iterations"]) == (
        "20260101-000000-abcdefgh",
        2,
        100,
        400,
    )
    assert context["data"] == [{"name": "train", "size": 5, "checksum": {"value": "aa"}}]
    assert context["code"]["commit"] == "c0ffee"
    assert (context["dependencies"], context["image"]) == ({"torch": "2.15.0"}, "registry/image:1")
    assert (context["config"], context["seed"], context["best"]) == ({"lr": 0.001}, 7, True)
    assert read_context(tmp_path / "model.pt") == context
    assert read_context(written) == context
    assert names_in(tmp_path) == ["model.pt", "model.pt.context.json"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"format": 1, "kin', "not whole JSON"),
        (b"", "not whole JSON"),
        (b"\xff\xfe", "not whole JSON"),
        (b"[1]", "a list where an object was expected"),
        (b"{}", "no checkpoint context"),
        (b'{"kind": "otel-train checkpoint context", "format": 99}', "newer than this version"),
    ],
)
def test_a_damaged_context_is_a_clear_error(tmp_path, content, reason):
    """The message names the file and what is wrong with it."""
    (tmp_path / "model.pt.context.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=reason) as caught:
        read_context(tmp_path / "model.pt")
    assert "model.pt.context.json" in str(caught.value)


def test_a_context_that_is_not_there_is_said(tmp_path):
    """The model's own path is in the message."""
    with pytest.raises(CheckpointError, match="no context lies beside it"):
        read_context(tmp_path / "model.pt")


def test_a_moved_and_renamed_model_finds_its_context_by_content(tmp_path):
    """The copy in the run's folder is found under any of the roots, damaged copies are passed over."""
    root = tmp_path / "runs"
    run_folder = root / "20260101-000000-abcdefgh"
    facts = save_checkpoint(tmp_path / "model.pt", a_state())
    archived = archive_context(run_folder, a_context(facts))
    damaged = root / "20270101-000000-zzzzzzzz" / "artifacts" / "contexts" / archived.name
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    elsewhere = tmp_path / "elsewhere" / "renamed.bin"
    elsewhere.parent.mkdir()
    (tmp_path / "model.pt").rename(elsewhere)
    found = find_context_by_sha([tmp_path / "no such root", root], sha_of(elsewhere))
    assert found is not None
    assert (found["run"], found["step"], found["found_at"]) == ("20260101-000000-abcdefgh", 100, str(archived))
    assert find_context_by_sha([root], "0" * 64) is None
    assert find_context_by_sha([root], "../../etc/passwd") is None
    parent = parent_of(elsewhere, roots=[root])
    assert (parent["run"], parent["run_name"], parent["step"], parent["iterations"]) == (
        "20260101-000000-abcdefgh",
        "digits",
        100,
        400,
    )
    assert (parent["sha256"], parent["context"]) == (sha_of(elsewhere), str(archived))


def test_a_context_of_other_content_is_not_believed(tmp_path):
    """A model that was overwritten by hand has no parent run, and the record says why."""
    facts = save_checkpoint(tmp_path / "model.pt", a_state())
    write_context(facts["path"], a_context(facts))
    assert parent_of(tmp_path / "model.pt")["run"] == "20260101-000000-abcdefgh"
    (tmp_path / "model.pt").write_bytes(b"overwritten")
    parent = parent_of(tmp_path / "model.pt")
    assert "run" not in parent
    assert parent["problems"] == ["the context beside it tells of other content; the file was changed since"]
    context_path(tmp_path / "model.pt").write_text("{")
    assert "damaged" in parent_of(tmp_path / "model.pt")["problems"][0]


def test_names_urls_and_missing_files_are_parents_too(tmp_path):
    """A model's public name and a URL without its signature are kept; a path that is not there is a problem."""
    assert parent_of("bert-base-uncased") == {
        "path": "bert-base-uncased",
        "kind": "name",
        "base_model": "bert-base-uncased",
    }
    assert parent_of("s3://key:word@bucket/model.pt?X-Amz-Signature=abc")["path"] == "s3://bucket/model.pt"
    missing = parent_of(tmp_path / "nothing.pt")
    assert missing["kind"] == "missing"
    assert missing["problems"] == [f"{tmp_path / 'nothing.pt'}: cannot be read: No such file or directory"]


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (
            {"trainer_state.json": '{"global_step": 500, "epoch": 2.5, "best": NaN}', "model.safetensors": "x"},
            {"format": "huggingface", "iterations": 500, "epoch": 2.5},
        ),
        (
            {"adapter_config.json": '{"base_model_name_or_path": "base/model"}', "adapter_model.safetensors": "x"},
            {"format": "huggingface", "base_model": "base/model"},
        ),
        (
            {"latest": "global_step1000", "global_step1000/mp_rank_00_model_states.pt": "x"},
            {"format": "deepspeed", "iterations": 1000},
        ),
        ({".metadata": "x", "__0_0.distcp": "x"}, {"format": "torch-distributed"}),
        ({"latest_checkpointed_iteration.txt": "70\n"}, {"format": "megatron", "iterations": 70}),
        ({"a": "x"}, {"format": "unknown"}),
    ],
)
def test_folders_of_other_libraries_are_told_apart(tmp_path, files, facts):
    """Format, iterations, epoch and base model come from the small files within."""
    folder = tmp_path / "checkpoint"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    described = describe_checkpoint(folder)
    assert {key: described[key] for key in facts} == facts
    assert described["sha256"] == folder_checksum(folder).value
    assert described["files"] == len(files)


def test_the_step_of_a_checkpoint_folder_may_be_in_its_name(tmp_path):
    """checkpoint-1500 is 1,500 iterations where no file within says otherwise."""
    (tmp_path / "checkpoint-1500").mkdir()
    (tmp_path / "checkpoint-1500" / "model.bin").write_text("x")
    assert describe_checkpoint(tmp_path / "checkpoint-1500")["iterations"] == 1500


def test_single_files_are_told_apart_by_their_first_bytes(tmp_path):
    """A torch archive, HDF5, pickle, and what is none of them."""
    torch.save(a_state(), tmp_path / "a.pt")
    (tmp_path / "b.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (tmp_path / "c.pkl").write_bytes(pickle.dumps([1]))
    (tmp_path / "d.gguf").write_bytes(b"GGUF")
    (tmp_path / "e").write_bytes(b"?")
    formats = [describe_checkpoint(path)["format"] for path in sorted(tmp_path.iterdir())]
    assert formats == ["torch", "hdf5", "pickle", "gguf", "unknown"]
    sampled = describe_checkpoint(tmp_path / "a.pt", whole_bytes=0)
    assert sampled["sha256"] == sha_of(tmp_path / "a.pt")


def test_documents_hold_whatever_a_user_puts_into_a_configuration(tmp_path):
    """Foreign objects become texts, non-finite numbers their names, names that are no UTF-8 their escapes."""
    nested: list[object] = []
    nested.append(nested)
    document = {
        "path": tmp_path,
        "set": {2, 1},
        "array": np.array([1, 2]),
        "number": np.float32(0.5),
        "tensor": torch.tensor(3),
        "infinite": [math.inf, -math.inf],
        "name": "caf\udce9",
        3: object,
    }
    write_document(tmp_path / "a.json", document)
    assert read_document(tmp_path / "a.json") == {
        "path": str(tmp_path),
        "set": [1, 2],
        "array": "(ndarray)",
        "number": 0.5,
        "tensor": 3,
        "infinite": ["Infinity", "-Infinity"],
        "name": "caf\udce9",
        "3": "<class 'object'>",
    }
    assert "nested too deeply" in json.dumps(plain(nested))
    with pytest.raises(OSError, match="No such file or directory"):
        write_document(tmp_path / "nowhere" / "a.json", {})
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_document(tmp_path / "folder.json", {})
    assert names_in(tmp_path) == ["a.json", "folder.json"]


def test_a_context_without_a_checksum_cannot_be_kept_for_later(tmp_path):
    """It could never be found again."""
    with pytest.raises(ValueError, match="without the model's SHA-256"):
        archive_context(tmp_path, {"sha256": None})


def test_a_model_tells_the_base_model_of_its_parent(tmp_path):
    """Fine-tuned twice: the public name at the start of the chain is passed on; stages are in the context as well."""
    facts = save_checkpoint(tmp_path / "model.pt", a_state())
    stage = {"name": "train", "parameters": {"lr": 1}, "inputs": [{"path": "x", "size": 3, "modified": "now"}]}
    context = a_context(facts, parents=[parent_of("base/model")], stages=[stage])
    write_context(facts["path"], context)
    assert context["stages"] == [
        {"name": "train", "parameters": {"lr": 1}, "inputs": [{"path": "x", "size": 3}], "outputs": [], "code": []}
    ]
    assert parent_of(tmp_path / "model.pt")["base_model"] == "base/model"
