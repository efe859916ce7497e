import hashlib
import os
import stat
import subprocess

import pytest

from otel_train.lineage.git import describe_code
from otel_train.lineage.git_files import read_git_files
from otel_train.lineage.redact import Redactor

ENVIRON = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example",
}


def git(folder, *arguments):
    return subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env=ENVIRON,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def describe(folder, environ=ENVIRON, **options):
    return describe_code(str(folder), Redactor(), environ=environ, **options)


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "src" / "train.py").write_text("lr = 1\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    git(root, "remote", "add", "origin", "https://u:FAKEPAT2@git.example/a/b.git")
    return root


def test_a_clean_tree_gives_commit_branch_and_remote_without_credentials(repository):
    """From a folder within the tree as well; nothing differs, so there is no patch."""
    assert describe(repository / "src") == {
        "root": str(repository),
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "remote": "https://git.example/a/b.git",
        "dirty": False,
    }


def test_a_dirty_tree_gives_the_patch_and_names_untracked_files(repository):
    """Staged and unstaged changes are in one patch with its digest; secrets in it are hidden."""
    (repository / "src" / "train.py").write_text("lr = 2\npassword = 'FAKE'\n")
    (repository / "staged.py").write_text("x\n")
    git(repository, "add", "staged.py")
    (repository / "new ü.py").write_text("y\n")
    (repository / "data").mkdir()
    (repository / "data" / "a.bin").write_bytes(b"0")
    found = describe(repository)
    raw = subprocess.run(["git", "diff", "HEAD"], cwd=repository, env=ENVIRON, capture_output=True, check=True).stdout
    assert found["dirty"] is True
    assert found["changed_files"] == ["src/train.py", "staged.py"]
    assert "-lr = 1\n+lr = 2\n+password = '[redacted]'\n" in found["patch"]
    assert "+++ b/staged.py" in found["patch"]
    assert "FAKE" not in str(found)
    assert (found["patch_bytes"], found["patch_sha256"]) == (len(raw), hashlib.sha256(raw).hexdigest())
    assert found["untracked"] == [
        {"path": "data/"},
        {"path": "new ü.py", "size": 2, "sha256": hashlib.sha256(b"y\n").hexdigest()},
    ]


def test_a_large_patch_is_cut_and_its_digest_is_of_the_whole(repository):
    """The size of what was cut is said."""
    (repository / "src" / "train.py").write_text("x = 1\n" * 5000)
    whole, cut = describe(repository), describe(repository, max_patch_bytes=1000)
    assert cut["patch_cut"] is True
    assert cut["patch"] == whole["patch"][:1000] + f"\n[cut, {whole['patch_bytes']} bytes]\n"
    assert cut["patch_sha256"] == whole["patch_sha256"]
    assert "patch_cut" not in whole


def test_a_renamed_and_a_deleted_file_are_changes(repository):
    """The former name of a rename is no entry of its own."""
    git(repository, "mv", "src/train.py", "moved.py")
    assert describe(repository)["changed_files"] == ["moved.py"]


def test_a_detached_head_has_a_commit_and_no_branch(repository):
    """As after a checkout of a tag."""
    git(repository, "checkout", "-q", "--detach")
    found = describe(repository)
    assert found["detached"] is True
    assert "branch" not in found
    assert found["commit"] == git(repository, "rev-parse", "HEAD")


def test_a_repository_without_a_commit_gives_its_branch_and_everything_as_patch(tmp_path):
    """The patch is against the empty tree."""
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "a.py").write_text("a\n")
    git(tmp_path, "add", ".")
    found = describe(tmp_path)
    assert (found["branch"], found["dirty"], "commit" in found) == ("trunk", True, False)
    assert "+a" in found["patch"]


def test_shallow_clones_worktrees_and_submodules_are_described(repository, tmp_path):
    """Each has its own root; the shallow one says so."""
    (repository / "src" / "train.py").write_text("lr = 3\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "shallow"), "sub")
    shallow, tree, sub = describe(tmp_path / "shallow"), describe(tmp_path / "tree"), describe(repository / "sub")
    assert (shallow["shallow"], shallow["dirty"]) == (True, False)
    assert (tree["branch"], tree["root"]) == ("side", str(tmp_path / "tree"))
    assert (sub["root"], sub["commit"]) == (str(repository / "sub"), shallow["commit"])
    assert read_git_files(str(tmp_path / "tree" / "src"))["branch"] == "side"


def test_the_remote_of_the_branch_comes_before_origin(repository):
    """A fork's branch names where it is pushed to."""
    git(repository, "remote", "add", "fork", "git@git.example:me/b.git")
    git(repository, "config", "branch.main.remote", "fork")
    assert describe(repository)["remote"] == "git@git.example:me/b.git"


def test_outside_a_repository_the_reason_is_said_and_build_variables_are_used(tmp_path):
    """A container without the repository still knows its commit where its build handed it in."""
    environ = ENVIRON | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    assert describe(tmp_path, environ) == {"reasons": {"code": "the folder is in no git work tree"}}
    found = describe(tmp_path, environ | {"GITHUB_SHA": "0123456789abcdef0123", "GITHUB_REF_NAME": "main"})
    assert (found["commit"], found["branch"]) == ("0123456789abcdef0123", "main")
    assert found["from"] == "the environment variable GITHUB_SHA"


def test_without_git_its_files_are_read(repository):
    """Commit, branch and remote are there; whether the tree is dirty is not known, and why."""
    found = describe(repository, git="no-such-git")
    assert found == {
        "root": str(repository),
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "remote": "https://git.example/a/b.git",
        "reasons": {"code": "git is not installed, or the folder is gone"},
    }
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert read_git_files(str(repository))["commit"] == head
    git(repository, "checkout", "-q", "--detach")
    assert read_git_files(str(repository))["detached"] is True


def program(tmp_path, text):
    path = tmp_path / "fake-git"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_folder_of_another_user_is_explained_and_not_trusted(repository, tmp_path):
    """Git's refusal stands; its files, which start no program, are read."""
    text = "echo \"fatal: detected dubious ownership in repository at '/x'\" >&2; exit 128"
    found = describe(repository, git=program(tmp_path, text))
    assert "safe.directory" in found["reasons"]["code"]
    assert found["commit"] == git(repository, "rev-parse", "HEAD")
    assert "dirty" not in found


def test_a_git_that_hangs_is_stopped_with_its_children_and_nobody_is_asked(repository, tmp_path):
    """The time limit is for all calls; no prompt, lock, pager or network is possible."""
    text = f"env | grep -E '^(GIT|SSH)_' | sort > {tmp_path}/environment; sleep 60 | cat"
    found = describe(repository, git=program(tmp_path, text), timeout_s=1.0)
    assert found["reasons"]["code"] == "git took longer than 1 s (rev-parse)"
    assert found["branch"] == "main"
    seen = (tmp_path / "environment").read_text().split()
    assert {"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=none", "GIT_ASKPASS="} <= set(seen)


def test_a_hooks_idea_of_the_repository_is_left_aside(repository, tmp_path):
    """GIT_DIR of a calling git does not hide the script's own repository."""
    found = describe(repository, ENVIRON | {"GIT_DIR": str(tmp_path / "other"), "GIT_INDEX_FILE": "/nowhere"})
    assert found["commit"] == git(repository, "rev-parse", "HEAD")


def test_a_folder_that_is_gone_raises_nothing(tmp_path):
    """The run goes on without its code."""
    assert describe(tmp_path / "gone")["reasons"] == {"code": "git is not installed, or the folder is gone"}
