from otel_train.lineage.changes import changes, code_changes, dataset_changes, summary

OLD = {
    "config": {"lr": 1e-4, "model": {"layers": 3}},
    "seed": {"seed": 1, "states": {"python": "a"}},
    "datasets": [{"name": "train", "size": 100, "checksum": {"algorithm": "sha256", "value": "a" * 64}}],
    "environment": {
        "python": {"version": "3.11.7"},
        "torch": {"version": "2.6.0", "cuda": "12.4"},
        "packages": {"numpy": "2.0.0", "torch": "2.6.0"},
        "code": {"commit": "1" * 40, "branch": "main", "dirty": False},
    },
}


def test_two_equal_attempts_have_nothing_to_tell():
    """And the line for people says so."""
    assert changes(OLD, OLD) == []
    assert summary([]) == "nothing changed"


def test_every_kind_of_change_is_named_with_both_values():
    """Configuration, code, data, environment and seed, each under its own heading."""
    new = {
        "config": {"lr": 5e-5, "model": {"layers": 3}},
        "seed": {"seed": 2, "states": {"python": "b"}},
        "datasets": [{"name": "train", "size": 100, "checksum": {"algorithm": "sha256", "value": "b" * 64}}],
        "environment": {
            "python": {"version": "3.12.1"},
            "torch": {"version": "2.6.0", "cuda": "12.4"},
            "packages": {"numpy": "2.1.0", "torch": "2.6.0", "tqdm": "4.67"},
            "code": {"commit": "2" * 40, "branch": "main", "dirty": True, "patch_sha256": "c" * 64},
        },
    }
    found = changes(OLD, new)
    assert [tuple(change.values()) for change in found] == [
        ("config", "lr", 1e-4, 5e-5),
        ("code", "commit", "1" * 40, "2" * 40),
        ("code", "patch", None, "c" * 64),
        ("data", "train", "a" * 64, "b" * 64),
        ("environment", "python.version", "3.11.7", "3.12.1"),
        ("environment", "packages.numpy", "2.0.0", "2.1.0"),
        ("environment", "packages.tqdm", None, "4.67"),
        ("seed", "seed", 1, 2),
    ]
    assert summary(found) == (
        "lr 0.0001 → 5e-05; code 1111111 → 2222222; uncommitted changes differ; data train aaaaaaa → bbbbbbb; 1 more; "
        "python.version 3.11.7 → 3.12.1; numpy 2.0.0 → 2.1.0; tqdm none → 4.67"
    )


def test_many_changed_packages_are_counted_in_the_line():
    """The list has them all."""
    packages = {f"p{i}": "1" for i in range(9)}
    found = changes(
        {"environment": {"packages": packages}}, {"environment": {"packages": dict.fromkeys(packages, "2")}}
    )
    assert len(found) == 9
    assert summary(found) == "9 packages"


def test_what_is_not_known_on_one_side_is_no_change():
    """A killed attempt has no environment, a folder without git no commit."""
    assert changes({"config": None}, OLD) == [{"what": "seed", "key": "seed", "old": None, "new": 1}]
    assert code_changes({"commit": "1"}, {"dirty": True, "patch_sha256": "c"}) == []
    assert code_changes({}, {"commit": "1"}) == []


def test_an_untracked_program_that_changed_is_a_change_of_code():
    """Untracked results are none."""
    old = {"dirty": False, "untracked": [{"path": "a.py", "sha256": "1"}, {"path": "out.csv", "sha256": "1"}]}
    new = {"dirty": False, "untracked": [{"path": "a.py", "sha256": "2"}, {"path": "out.csv", "sha256": "2"}]}
    assert code_changes(old, new) == [{"what": "code", "key": "a.py", "old": "1", "new": "2"}]


def test_data_sets_are_compared_by_name_once_both_are_described():
    """Files count one by one; without a checksum the size does; the newest record of a name is the one."""
    old = [
        {"name": "a", "size": 1},
        {"name": "a", "size": 10},
        {"name": "b", "files": [{"path": "x.csv", "checksum": {"value": "1"}}]},
        {"name": "only before", "size": 1},
    ]
    new = [{"name": "a", "size": 11}, {"name": "b", "files": [{"path": "x.csv", "checksum": {"value": "2"}}]}]
    assert [tuple(change.values()) for change in dataset_changes(old, new)] == [
        ("data", "a.size", 10, 11),
        ("data", "b.files.x.csv", "1", "2"),
    ]
