"""GPUs are read through the real nvidia-ml-py over a small library that answers as NVIDIA's would."""

import ctypes
import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pynvml
import pytest
from machine_samples import HandClock, assert_named_in_table, value, values

from otel_train.sources.gpu import GpuSampler

MIB = 1 << 20
GIB = 1 << 30
SOURCE = Path(__file__).parent / "fake_nvml" / "fake_nvml.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"),
    reason="the stand-in for NVML needs a C compiler and Linux",
)
UUIDS = [f"GPU-{n}e4f9b17-1111-2222-3333-44445555666{n}" for n in range(4)]


def compile_fake(folder: Path, *flags: str) -> Path:
    library = folder / "libnvidia-ml.so.1"
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    return compile_fake(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory):
    return compile_fake(tmp_path_factory.mktemp("old_nvml"), "-DOLD_DRIVER")


class Cards:
    """The text file that the fake reads at every call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = {"driver": "580.95.05", "cuda": "13000", "nvml": "13.580.95", "count": "0"}
        self.write()

    def set(self, **lines: object) -> None:
        """Describe; keys are written with double underscores for dots and a leading one before digits."""
        for key, text in lines.items():
            self.lines[key.lstrip("_").replace("__", ".")] = str(text)
        self.write()

    def add(self, index: int, **lines: object) -> None:
        """Add a healthy H200 that uses 4,096 MiB; None takes a reading away."""
        card = {
            "uuid": UUIDS[index],
            "name": "NVIDIA H200",
            "mig": 0,
            "utilization": 87,
            "power": 612_345,
            "memory.used": 4096 * MIB,
            "memory.total": 141 * GIB,
            "memory.reserved": 600 * MIB,
            "energy": 1_234_567,
            "temperature": 61,
            "clock": 1980,
            "throttle": 0x4 | 0x20,
            "ecc.corrected": 3,
            "ecc.uncorrected": 0,
            "pcie.received": 2000,
            "pcie.sent": 500,
            **{key.replace("__", "."): text for key, text in lines.items()},
        }
        for key, text in card.items():
            if text is not None:
                self.lines[f"{index}.{key}"] = str(text)
        self.lines["count"] = str(max(int(self.lines["count"]), index + 1))
        self.write()

    def write(self) -> None:
        self.path.write_text("".join(f"{key} {text}\n" for key, text in self.lines.items()))

    @property
    def calls(self) -> list[str]:
        calls = Path(f"{self.path}.calls")
        return calls.read_text().split() if calls.exists() else []


def use(library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    cards = Cards(folder / "cards.txt")
    monkeypatch.setenv("FAKE_NVML_FILE", str(cards.path))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return cards


@pytest.fixture
def cards(fake_library, tmp_path, monkeypatch):
    return use(fake_library, tmp_path, monkeypatch)


@pytest.fixture
def info(caplog):
    caplog.set_level(logging.INFO, logger="otel_train")
    return caplog


def sampler(visible: str | None = None, **options: object) -> GpuSampler:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return GpuSampler(environ=environ, **options)


def seen(visible: str | None) -> list[tuple[int, int]]:
    """Return (index, physical index) of each device that has a memory reading."""
    attributes = [dict(s.attributes) for s in sampler(visible).sample(0) if s.name == "hw.gpu.memory.usage"]
    return [(a["index"], a["physical_index"]) for a in attributes]


def test_a_healthy_card_gives_every_reading_in_base_units(cards, info):
    """Milliwatts become watts, millijoules joules, percents shares, MHz Hz; nothing is noted as missing."""
    cards.add(0)
    samples = sampler().sample(0)
    assert value(samples, "hw.gpu.utilization", hw__gpu__task="general") == 0.87
    assert value(samples, "hw.gpu.memory.usage") == 4096 * MIB == 4294967296
    assert value(samples, "hw.gpu.memory.limit") == 141 * GIB
    assert value(samples, "hw.gpu.memory.utilization") == 4096 * MIB / (141 * GIB)
    assert value(samples, "hw.power", hw__type="gpu") == 612.345
    assert value(samples, "hw.energy", hw__type="gpu") == 1234.567
    assert value(samples, "hw.temperature", hw__type="gpu") == 61
    assert value(samples, "hw.gpu.clock") == 1_980_000_000
    assert value(samples, "hw.errors", error__type="corrected") == 3
    assert value(samples, "hw.errors", error__type="uncorrected") == 0
    assert value(samples, "hw.status", hw__state="ok") == 1
    assert value(samples, "hw.status", hw__state="failed") == 0
    assert {dict(s.attributes)["reason"]: s.value for s in samples if s.name == "hw.gpu.throttled"} == {
        **dict.fromkeys(["gpu_idle", "applications_clocks_setting", "hw_slowdown", "sync_boost"], 0),
        **dict.fromkeys(["hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"], 0),
        **dict.fromkeys(["sw_power_cap", "sw_thermal_slowdown"], 1),
    }
    for sample in samples:
        expected = [("hw.id", UUIDS[0]), ("hw.name", "NVIDIA H200"), ("index", 0), ("physical_index", 0)]
        assert list(sample.attributes[:4]) == expected
    assert_named_in_table(samples)
    assert info.records == []


def test_pcie_traffic_adds_up_by_the_time_that_passed(cards):
    """2,000 KB/s received over 5 s make ten million bytes; a wall clock that was set back changes nothing."""
    cards.add(0)
    clock = HandClock()
    gpu = sampler(clock=clock)
    first = gpu.sample(clock.wall_ns())
    clock.advance(5)
    clock.wall -= 60_000_000_000
    second = gpu.sample(clock.wall_ns())
    cards.set(_0__pcie__received=1000)
    clock.advance(2)
    third = gpu.sample(clock.wall_ns())
    received = [value(round_, "hw.gpu.io", network__io__direction="receive") for round_ in (first, second, third)]
    sent = [value(round_, "hw.gpu.io", network__io__direction="transmit") for round_ in (first, second, third)]
    assert received == [0, 10_000_000, 12_000_000]
    assert sent == [0, 2_500_000, 3_500_000]


def test_old_drivers_are_read_by_the_older_names(old_library, tmp_path, monkeypatch, info):
    """Temperature and throttle reasons come all the same; memory then counts the driver's reserve as used."""
    cards = use(old_library, tmp_path, monkeypatch)
    cards.add(0)
    samples = sampler().sample(0)
    assert value(samples, "hw.temperature") == 61
    assert value(samples, "hw.gpu.throttled", reason="sw_power_cap") == 1
    assert value(samples, "hw.gpu.memory.usage") == (4096 + 600) * MIB
    assert {"nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons"} <= set(cards.calls)
    assert info.records == []


def test_new_names_come_first(cards):
    """Where the driver has the newer calls, those that end with CUDA 14 are not used."""
    cards.add(0)
    sampler().sample(0)
    assert {"nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"} <= set(cards.calls)
    assert not {"nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons"} & set(cards.calls)


def test_an_unsupported_reading_is_absent_and_said_once(cards, info):
    """Memory is 4,294,967,296 bytes in use; utilisation has no point, not a zero, and is not asked for again."""
    cards.add(0, utilization=None)
    gpu = sampler()
    rounds = [gpu.sample(0) for _ in range(3)]
    assert [value(samples, "hw.gpu.memory.usage") for samples in rounds] == [4294967296] * 3
    assert [values(samples, "hw.gpu.utilization") for samples in rounds] == [[], [], []]
    assert [r.getMessage() for r in info.records] == ["GPU 0 (NVIDIA H200): no reading of utilization: Not Supported"]
    assert gpu.identify()["gpus"][0]["unsupported"] == {"utilization": "Not Supported"}
    assert cards.calls.count("nvmlDeviceGetUtilizationRates") == 1


def test_a_passing_fault_loses_one_round_only(cards, info):
    """A time-out is asked again the next time, and forgotten when it is over."""
    cards.add(0, power__rc=10)
    gpu = sampler()
    during = gpu.sample(0)
    during += gpu.sample(0)
    cards.set(_0__power__rc=0)
    after = gpu.sample(0)
    assert values(during, "hw.power") == []
    assert value(after, "hw.power") == 612.345
    assert [r.getMessage() for r in info.records] == ["GPU 0 (NVIDIA H200): no reading of power: Timeout"]
    assert gpu.identify()["gpus"][0]["unsupported"] == {}


def test_unexpected_exceptions_are_contained_to_their_reading(cards, info, monkeypatch):
    """What the bindings raise beyond NVML's errors costs that reading alone."""

    def surprise(_: object) -> int:
        raise ValueError("not what anybody expected")

    cards.add(0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", surprise)
    gpu = sampler()
    samples = gpu.sample(0) and gpu.sample(0)
    assert values(samples, "hw.power") == []
    assert value(samples, "hw.temperature") == 61
    assert [r.getMessage() for r in info.records] == [
        "GPU 0 (NVIDIA H200): no reading of power: ValueError: not what anybody expected"
    ]


def test_without_nvml_there_is_one_line_of_info(info, monkeypatch):
    """No library: nothing is sampled, nothing is raised, and the reason stands in the environment record."""

    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    gpu = sampler()
    assert [gpu.sample(0) for _ in range(3)] == [[], [], []]
    assert gpu.identify() == {"unavailable": "NVML Shared Library Not Found"}
    assert [(r.levelname, r.getMessage()) for r in info.records] == [
        ("INFO", "GPUs are not sampled: NVML Shared Library Not Found")
    ]
    gpu.close()


def test_a_driver_of_another_version_is_one_line_of_info(cards, info):
    """After an update of the driver without a restart NVML refuses to start; it is not tried again each round."""
    cards.add(0)
    cards.set(init__rc=18)
    gpu = sampler()
    assert [gpu.sample(0) for _ in range(3)] == [[], [], []]
    assert [(r.levelname, r.getMessage()) for r in info.records] == [
        ("INFO", "GPUs are not sampled: RM has detected an NVML/RM version mismatch.")
    ]
    assert cards.calls.count("nvmlInitWithFlags") == 1


def test_a_failing_count_lets_go_of_nvml(cards, info):
    """NVML that starts and then cannot count its cards is shut down again."""
    cards.set(count__rc=999)
    assert sampler().sample(0) == []
    assert cards.calls[-1] == "nvmlShutdown"
    assert [r.getMessage() for r in info.records] == ["GPUs are not sampled: Unknown Error"]


def test_a_card_lost_in_mid_run_stops_nothing_else(cards, info):
    """The other card goes on, one warning is given without a traceback, and the lost one's status says failed."""
    cards.add(0)
    cards.add(1)
    gpu = sampler()
    before = gpu.sample(0)
    cards.set(_1__rc=15)
    rounds = [gpu.sample(0) for _ in range(3)]
    assert values(before, "hw.status", hw__state="ok") == [1, 1]
    for samples in rounds:
        assert value(samples, "hw.power", hw__id=UUIDS[0]) == 612.345
        assert values(samples, "hw.power", hw__id=UUIDS[1]) == []
        assert value(samples, "hw.status", hw__id=UUIDS[0], hw__state="ok") == 1
        assert value(samples, "hw.status", hw__id=UUIDS[1], hw__state="ok") == 0
        assert value(samples, "hw.status", hw__id=UUIDS[1], hw__state="failed") == 1
    (warning,) = info.records
    assert warning.levelname == "WARNING"
    assert warning.exc_info is None
    assert warning.getMessage() == "GPU 1 (NVIDIA H200) is lost, its readings end here: GPU is lost"


def test_a_card_lost_before_the_start_is_said_and_the_others_are_read(cards, info):
    """The cards behind it are sampled; without a UUID the lost one goes by its place."""
    cards.add(0)
    cards.add(1, handle__rc=15)
    cards.add(2)
    gpu = sampler()
    samples = gpu.sample(0) and gpu.sample(0)
    assert values(samples, "hw.power", physical_index=2) == [612.345]
    assert value(samples, "hw.status", hw__id="index:1", hw__state="failed") == 1
    assert [r.getMessage() for r in info.records] == ["GPU 1 is lost, its readings end here: GPU is lost"]
    assert gpu.identify()["unreachable"] == {"1": "GPU is lost"}
    assert seen("1,2") == [(0, 2)]


def test_a_card_that_may_not_be_used_is_left_out(cards, info):
    """A card of another user is no fault: one line of info, no status."""
    cards.add(0)
    cards.add(1, handle__rc=4)
    samples = sampler().sample(0)
    assert values(samples, "hw.status", hw__state="ok") == [1]
    assert [r.getMessage() for r in info.records] == ["GPU 1 is not sampled: Insufficient Permissions"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("none", []),
        ("2", [(0, 2)]),
        ("3,1", [(0, 3), (1, 1)]),
        (" 3 , 1 ", [(0, 3), (1, 1)]),
        ("1,-1,2", [(0, 1)]),
        ("0,7,1", [(0, 0)]),
        ("1,1", []),
        ("1gpu,2", [(0, 1), (1, 2)]),
        (UUIDS[2], [(0, 2)]),
        (UUIDS[2].lower(), [(0, 2)]),
        ("GPU-3e4f", [(0, 3)]),
        (f"{UUIDS[3]},{UUIDS[0]}", [(0, 3), (1, 0)]),
        (f"1,{UUIDS[0]}", [(0, 1), (1, 0)]),
        ("GPU-", []),
        ("GPU-ffff", []),
        (f"GPU-ffff,{UUIDS[0]}", []),
    ],
)
def test_visible_devices_are_numbered_as_cuda_numbers_them(cards, visible, expected):
    """Numbers, UUIDs and unique prefixes count in the order written, up to the first that names nothing."""
    for index in range(4):
        cards.add(index)
    assert seen(visible) == expected


def test_a_rank_samples_only_its_own_card(cards):
    """`indices` are this process's numbers, not the places on the bus."""
    for index in range(4):
        cards.add(index)
    samples = sampler("3,2,1", indices={1}).sample(0)
    assert [dict(s.attributes)["physical_index"] for s in samples if s.name == "hw.power"] == [2]


SLICE = "MIG-a1b2c3d4-0000-1111-2222-333344445555"
OTHER_SLICE = "MIG-b1b2c3d4-0000-1111-2222-333344445555"


def add_sliced_card(cards: Cards, **lines: object) -> None:
    """Add a card of 141 GiB with a slice of 18 GiB, of which 5 GiB are in use, and a smaller one."""
    cards.add(0, mig=7, utilization=None, memory__used=100 * GIB, **lines)
    for place, uuid, gpu_instance, total, used in ((0, SLICE, 9, 18, 5), (2, OTHER_SLICE, 11, 9, 1)):
        for key, text in {
            "uuid": uuid,
            "name": "NVIDIA H200 MIG 1g.18gb",
            "gpu_instance": gpu_instance,
            "compute_instance": 0,
            "memory.total": total * GIB,
            "memory.used": used * GIB,
        }.items():
            cards.lines[f"0.mig.{place}.{key}"] = str(text)
    cards.write()


@pytest.mark.parametrize("visible", [SLICE, "MIG-a1b2", f"MIG-{UUIDS[0]}/9/0"])
def test_a_slice_shows_its_own_memory_not_the_cards(cards, info, visible):
    """18 GiB in all and 5 in use, labelled with card and instance; utilisation is absent, and why is said."""
    add_sliced_card(cards)
    gpu = sampler(visible)
    samples = gpu.sample(0)
    assert value(samples, "hw.gpu.memory.limit") == 18 * GIB
    assert value(samples, "hw.gpu.memory.usage") == 5 * GIB
    assert values(samples, "hw.gpu.utilization") == []
    (memory,) = [s for s in samples if s.name == "hw.gpu.memory.usage"]
    assert dict(memory.attributes) == {
        "hw.id": SLICE,
        "hw.name": "NVIDIA H200 MIG 1g.18gb",
        "index": 0,
        "physical_index": 0,
        "hw.parent": UUIDS[0],
        "mig.gpu_instance": 9,
        "mig.compute_instance": 0,
    }
    (identity, card) = gpu.identify()["gpus"]
    assert identity["memory_total_bytes"] == 18 * GIB
    assert identity["mig"] == {"parent_uuid": UUIDS[0], "gpu_instance": 9, "compute_instance": 0}
    assert identity["unsupported"] == {"utilization": "Not Supported"}
    assert (card["uuid"], "index" in card, card["unsupported"]) == (UUIDS[0], False, {})
    assert [r.getMessage() for r in info.records] == [
        "GPU 0 (NVIDIA H200 MIG 1g.18gb, instance 9/0): no reading of utilization: Not Supported"
    ]
    assert_named_in_table(samples)


def test_power_and_temperature_of_a_sliced_card_are_the_cards(cards):
    """They carry the card's UUID and no number of this process, once however many slices are seen."""
    add_sliced_card(cards)
    samples = sampler().sample(0)
    (power,) = [s for s in samples if s.name == "hw.power"]
    assert (power.value, dict(power.attributes)) == (
        612.345,
        {"hw.id": UUIDS[0], "hw.name": "NVIDIA H200", "physical_index": 0, "hw.type": "gpu"},
    )
    assert_named_in_table(samples)


@pytest.mark.parametrize("visible", [None, "0", UUIDS[0]])
def test_each_slice_of_a_card_is_sampled_where_none_is_named(cards, visible):
    """Both slices have their memory, the whole card's is not shown."""
    add_sliced_card(cards)
    samples = sampler(visible).sample(0)
    memory = {dict(s.attributes)["hw.id"]: s.value for s in samples if s.name == "hw.gpu.memory.usage"}
    assert memory == {SLICE: 5 * GIB, OTHER_SLICE: 1 * GIB}


def test_a_slice_is_found_where_its_card_may_not_be_asked(cards, info):
    """Without permission for the card's list of slices the slice is asked for by name; the rest is absent."""
    add_sliced_card(cards)
    denied = {f"_0__{name}__rc": 4 for name in ("mig", "power", "temperature", "clock", "throttle", "energy")}
    cards.set(**denied, **{f"_0__{name}__rc": 4 for name in ("ecc__corrected", "ecc__uncorrected")})
    cards.set(_0__pcie__received__rc=4, _0__pcie__sent__rc=4)
    gpu = sampler(SLICE)
    samples = gpu.sample(0)
    assert value(samples, "hw.gpu.memory.usage") == 5 * GIB
    assert {s.name for s in samples} == {
        *("hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.gpu.memory.utilization", "hw.status")
    }
    assert gpu.identify()["gpus"][1]["unsupported"]["temperature"] == "Insufficient Permissions"


def test_slices_are_lost_with_their_card_in_one_warning(cards, info):
    """Card and both slices say failed from then on."""
    add_sliced_card(cards, utilization__rc=0)
    gpu = sampler()
    gpu.sample(0)
    info.clear()
    cards.set(_0__rc=15, _0__mig__0__rc=15, _0__mig__2__rc=15)
    samples = gpu.sample(0) and gpu.sample(0)
    assert values(samples, "hw.status", hw__state="failed") == [1, 1, 1]
    assert [r.levelname for r in info.records] == ["WARNING"]


def test_a_card_with_mig_on_and_no_slices_is_read_as_a_card(cards):
    """Nothing has been cut yet."""
    cards.add(0, mig=7)
    assert seen(None) == [(0, 0)]


def test_identify_names_driver_and_cards(cards):
    """What goes into the environment record is JSON, complete before any sampling."""
    cards.add(0)
    cards.add(1, name="NVIDIA L40S")
    gpu = sampler("1")
    identity = gpu.identify()
    assert json.loads(json.dumps(identity)) == {
        "driver_version": "580.95.05",
        "cuda_driver_version": "13.0",
        "nvml_version": "13.580.95",
        "gpus": [
            {
                "index": 0,
                "physical_index": 1,
                "name": "NVIDIA L40S",
                "uuid": UUIDS[1],
                "memory_total_bytes": 141 * GIB,
                "unsupported": {},
            }
        ],
    }
    assert "index_note" in sampler(None).identify()
    ordered = GpuSampler(environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert "index_note" not in ordered.identify()


def test_identify_and_sample_may_run_at_once(cards):
    """Two threads share one start of NVML."""
    cards.add(0)
    gpu = sampler()
    threads = [threading.Thread(target=gpu.identify), threading.Thread(target=gpu.sample, args=(0,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cards.calls.count("nvmlInitWithFlags") == 1


def test_nvml_shut_down_by_somebody_else_is_started_again(cards, info):
    """One round is lost; traffic goes on from where it was."""
    cards.add(0)
    clock = HandClock()
    gpu = sampler(clock=clock)
    gpu.sample(0)
    clock.advance(5)
    assert value(gpu.sample(0), "hw.gpu.io", network__io__direction="receive") == 10_000_000
    cards.set(_0__memory__used__rc=1)
    assert gpu.sample(0) == []
    cards.set(_0__memory__used__rc=0)
    clock.advance(5)
    assert value(gpu.sample(0), "hw.gpu.io", network__io__direction="receive") == 20_000_000
    assert cards.calls.count("nvmlInitWithFlags") == 2
    assert info.records == []


def test_close_lets_go_of_nvml_once(cards):
    """The counterpart of the start; a second call does nothing."""
    cards.add(0)
    gpu = sampler()
    gpu.sample(0)
    gpu.close()
    gpu.close()
    assert cards.calls.count("nvmlShutdown") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_parents_nvml_alone(cards):
    """Neither reading nor closing reaches the library from the child."""
    cards.add(0)
    gpu = sampler()
    gpu.sample(0)
    calls_before = cards.calls
    script_rc = 1
    with warnings.catch_warnings():
        # Newer Pythons warn that the test runner has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            nothing = gpu.sample(0) == [] and gpu.identify() == {}
            gpu.close()
            script_rc = 0 if nothing else 2
        finally:
            os._exit(script_rc)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert cards.calls == calls_before


def run_with_library(library: Path, cards_file: Path, script: str) -> str:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_FILE": str(cards_file)}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.strip()


def test_sampling_loads_the_system_library_and_never_cuda(fake_library, tmp_path):
    """NVML is found as the loader finds it; no CUDA library is mapped, torch and NumPy are not imported."""
    Cards(tmp_path / "cards.txt").add(0)
    printed = run_with_library(
        fake_library,
        tmp_path / "cards.txt",
        """
        import sys
        from otel_train.sources.gpu import GpuSampler
        assert "pynvml" not in sys.modules
        gpu = GpuSampler(environ={})
        power = [s.value for s in gpu.sample(0) if s.name == "hw.power"]
        gpu.identify()
        maps = open("/proc/self/maps").read()
        assert "libnvidia-ml" in maps
        print(power, "libcuda" in maps, "torch" in sys.modules, "numpy" in sys.modules)
        """,
    )
    assert printed == "[612.345] False False False"


@pytest.mark.slow
def test_torch_is_left_uninitialised_and_forks_work(fake_library, tmp_path):
    """After start and sampling CUDA is not initialised, and a worker forked then may still use it."""
    pytest.importorskip("torch")
    Cards(tmp_path / "cards.txt").add(0)
    printed = run_with_library(
        fake_library,
        tmp_path / "cards.txt",
        """
        import os, warnings
        warnings.simplefilter("ignore")
        import torch
        from otel_train.sources.gpu import GpuSampler
        gpu = GpuSampler(environ={})
        count = len(gpu.sample(0)) > 10
        pid = os.fork()
        if pid == 0:
            os._exit(3 if torch.cuda._is_in_bad_fork() or torch.cuda.is_initialized() else 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(count, torch.cuda.is_initialized(), code)
        """,
    )
    assert printed == "True False 0"
