import argparse
import collections
import copy
import dataclasses
import enum
import json
import math
import pathlib
import pickle
import threading
import types

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from otel_train.errors import ConfigError
from otel_train.lineage.config_diff import diff, flatten
from otel_train.lineage.config_values import Limits, to_plain
from otel_train.lineage.redact import Redactor
from otel_train.lineage.run_config import RunConfig


@dataclasses.dataclass
class Optimizer:
    lr: float = 0.1
    api_key: str = "FAKE"


class Kind(enum.Enum):
    ONE = 1
    TWO = "two"


class ClassConfig:
    lr = 0.1
    _private = 2

    def method(self):
        return self.lr


class Pydanticish:
    def model_dump(self):
        return {"lr": 0.1, "token": "FAKE"}


def test_configurations_of_every_usual_type_become_plain_mappings():
    """Mapping, Namespace, dataclass, OmegaConf, pydantic, a class and its object say the same."""
    assert to_plain(None) == {}
    assert to_plain({"lr": 0.1}) == {"lr": 0.1}
    assert to_plain(argparse.Namespace(lr=0.1, token="FAKE")) == {"lr": 0.1, "token": "[redacted]"}
    assert to_plain(argparse.Namespace()) == {}
    assert to_plain(Optimizer()) == {"lr": 0.1, "api_key": "[redacted]"}
    omega = OmegaConf.create({"a": {"b": "${c}"}, "c": 2, "missing": "???", "list": [1, {"d": 3}]})
    assert to_plain(omega) == {"a": {"b": 2}, "c": 2, "missing": "???", "list": [1, {"d": 3}]}
    assert to_plain(OmegaConf.create({"a": "${nowhere}"})) == {"a": "${nowhere}"}
    assert to_plain(Pydanticish()) == {"lr": 0.1, "token": "[redacted]"}
    assert to_plain(ClassConfig) == {"lr": 0.1}
    assert to_plain(ClassConfig()) == {"lr": 0.1}
    assert to_plain({"inner": Optimizer(), "own": ClassConfig(), "omega": omega["a"]})["inner"]["lr"] == 0.1


@pytest.mark.parametrize("wrong", ["lr=1", 5, [1, 2], len])
def test_what_is_no_configuration_is_refused_with_the_fix(wrong):
    """The error names the argument and what to pass instead."""
    with pytest.raises(ConfigError, match=r"config=.*use a mapping, argparse\.Namespace, dataclass or OmegaConf"):
        to_plain(wrong)


def test_odd_values_become_json_values_that_mean_the_same():
    """Scalars of NumPy keep their digits, enums their names, arrays their shape, functions their path."""
    pair = collections.namedtuple("pair", "a b")
    config = {
        "one": Kind.ONE,
        "two": Kind.TWO,
        "path": pathlib.PurePosixPath("/x"),
        "np": np.float32(0.1),
        "int": np.int64(3),
        "small": np.arange(3),
        "big": np.zeros((100, 100)),
        "scalar": torch.tensor(1.5, requires_grad=True),
        "tensor": torch.zeros(200),
        "dtype": torch.float32,
        "set": {3, 1},
        "pair": pair(1, 2),
        "tuple": (1, 2),
        "function": len,
        "class": Optimizer,
        "object": types.SimpleNamespace(q=1),
        "module": math,
        "layer": torch.nn.Linear(2, 3),
        "bytes": b"abc",
        "huge": 2**70,
        "range": range(3),
    }
    assert to_plain(config) == {
        "one": "ONE",
        "two": "two",
        "path": "/x",
        "np": 0.1,
        "int": 3,
        "small": [0, 1, 2],
        "big": "ndarray(float64, shape=(100, 100))",
        "scalar": 1.5,
        "tensor": "Tensor(torch.float32, shape=(200,))",
        "dtype": "torch.float32",
        "set": [1, 3],
        "pair": {"a": 1, "b": 2},
        "tuple": [1, 2],
        "function": "builtins.len",
        "class": f"{__name__}.Optimizer",
        "object": {"q": 1},
        "module": "math",
        "layer": "Linear(in_features=2, out_features=3, bias=True)",
        "bytes": "[3 bytes]",
        "huge": "1180591620717411303424",
        "range": "range(0, 3)",
    }


def test_hostile_values_neither_raise_nor_run_away():
    """Cycles, depth, damaged text, failing representations and addresses all end in a bounded text."""

    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    config = {"n": float("nan"), "surrogate": "x\ud800", "broken": Broken(), "lambda": object(), 1: "one", "1": "uno"}
    config["self"] = config
    deep = config["deep"] = {}
    for _ in range(100):
        deep["d"] = deep = {}
    plain = to_plain(config)
    assert math.isnan(plain["n"])
    assert plain["surrogate"] == "x\\ud800"
    assert (
        plain["broken"]
        == "<test_hostile_values_neither_raise_nor_run_away.<locals>.Broken whose repr raises RuntimeError>"
    )
    assert plain["lambda"] == "<object object>"
    assert (plain["1"], plain["1 (str)"]) == ("one", "uno")
    assert plain["self"]["self"] == "[cut, contains itself]"
    assert "[cut, deeper than 32 levels]" in json.dumps(plain["deep"])


def test_three_hundred_keys_and_a_long_value_are_all_kept():
    """Depth 4, 301 keys, and 1,200 characters are nothing unusual."""
    config = {f"k{i}": {"a": {"b": {"c": i}}} for i in range(300)} | {"labels": "y" * 1200}
    flat = flatten(to_plain(config))
    assert len(flat) == 301
    assert flat["k299.a.b.c"] == 299
    assert flat["labels"] == "y" * 1200


def test_what_is_too_large_is_cut_with_a_mark():
    """16 KiB a value, 1 MiB in all; the mark says what is missing."""
    plain = to_plain({"v": "z" * 20_000, "ä": "ä" * 10_000, "map": {str(i): "q" * 1000 for i in range(5000)}, "z": 1})
    assert plain["v"] == "z" * 16_384 + "…[cut, 20000 characters]"
    assert plain["ä"] == "ä" * 8192 + "…[cut, 10000 characters]"
    assert plain["map"]["…"].startswith("[cut, ")
    assert len(json.dumps(plain)) < 1.2 * (1 << 20)
    assert to_plain({"l": ["x" * 50] * 9}, limits=Limits(total_bytes=100)) == {
        "l": ["x" * 50, "x" * 50, "…[cut, 7 more items]"]
    }


def test_a_secret_is_hidden_before_a_value_is_cut():
    """Half a token at the end of a cut value would have no known shape."""
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert "ghp_" not in to_plain({"v": "x " * 8185 + token + " y" * 9000})["v"]


def test_flat_keys_are_dotted():
    """Lists of scalars are one value, other lists are numbered, equal dotted keys are told apart."""
    flat = flatten({"a": {"b": 1, "c": [1, 2]}, "d": [{"e": 2}], "f": {}, "a.b": 3})
    assert flat == {"a.b": 1, "a.c": "[1, 2]", "d.0.e": 2, "f": "{}", "a.b#2": 3}


def test_differences_name_the_key_and_both_values():
    """Both learning rates are there; NaN equals its stored text, 1 equals 1.0, True is another value than 1."""
    old = {"lr": 1e-4, "n": float("nan"), "i": 1, "flag": 1, "gone": {"x": 2}}
    new = {"lr": 5e-5, "n": "NaN", "i": 1.0, "flag": True, "added": None}
    assert diff(old, new) == [
        {"key": "added", "old": None, "new": None, "change": "added"},
        {"key": "flag", "old": 1, "new": True, "change": "changed"},
        {"key": "gone.x", "old": 2, "new": None, "change": "removed"},
        {"key": "lr", "old": 1e-4, "new": 5e-5, "change": "changed"},
    ]


def test_the_runs_configuration_gives_the_users_values_and_tells_changes():
    """Reading gives what was put in, printing and recording give it redacted."""
    told = []
    config = RunConfig(Optimizer(), on_change=lambda plain, changes: told.append((dict(plain), changes)))
    assert (config["lr"], config.lr, config.api_key, len(config), sorted(config)) == (
        0.1,
        0.1,
        "FAKE",
        2,
        ["api_key", "lr"],
    )
    assert repr(config) == "RunConfig({'lr': 0.1, 'api_key': '[redacted]'})"
    config.update({"lr": 0.2}, model={"layers": 3})
    config["lr"] = 0.2  # no change
    assert config.model == {"layers": 3}
    assert told == [
        (
            {"lr": 0.2, "api_key": "[redacted]", "model": {"layers": 3}},
            [
                {"key": "lr", "old": 0.1, "new": 0.2, "change": "changed"},
                {"key": "model.layers", "old": None, "new": 3, "change": "added"},
            ],
        )
    ]
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        _ = config.nothing
    assert copy.deepcopy(config)["lr"] == 0.2
    assert pickle.loads(pickle.dumps(config)).model == {"layers": 3}


def test_a_wrong_update_and_a_failing_listener_stop_nothing(caplog):
    """After the start the configuration is telemetry: a warning is all that comes of a fault."""

    def fail(plain, changes):
        raise RuntimeError("disk")

    config = RunConfig({"lr": 1}, on_change=fail)
    config.update(5)
    config.update(lr=2)
    assert config["lr"] == 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "left it out: use a mapping" in caplog.text


def test_updates_of_many_threads_are_all_kept():
    """No update overwrites another's key."""
    config = RunConfig({}, Redactor())
    threads = [
        threading.Thread(target=lambda n=n: [config.update({f"{n}.{i}": i}) for i in range(20)]) for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(config) == len(config.plain()) == 100
