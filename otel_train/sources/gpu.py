"""Samples the GPUs that this process can use, through NVML alone: CUDA is never initialised, torch never imported."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Collection, Mapping
from typing import Any

from otel_train.clock import SYSTEM, Clock
from otel_train.record.entries import Sample
from otel_train.sources.gpu_device import CardLostError, NvmlGoneError, WatchedDevice, status
from otel_train.sources.gpu_visible import Devices, Nvml, find_devices

_logger = logging.getLogger("otel_train")


class GpuSampler:
    """Reads each visible card or slice. A missing driver, an unsupported reading, a lost card: the rest goes on.

    `indices` are this process's numbers of the devices to sample, None for all: with many ranks on a host each one
    samples its own. NVML is loaded at the first call of `sample` or `identify`, which may take a second; these two
    may be called from two threads. A forked child that calls them gets nothing, since NVML belongs to the parent.
    """

    name = "gpu"

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        indices: Collection[int] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._indices = indices
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._nvml: Nvml = None
        self._unavailable = ""
        self._watched: dict[str, WatchedDevice] = {}
        self._devices = Devices()
        self._lost: dict[str, str] = {}

    def sample(self, now_ns: int) -> list[Sample]:
        """Return what the cards say now; PCIe traffic takes 40 ms a card."""
        if os.getpid() != self._pid:
            return []
        with self._lock:
            return self._read_all() if self._connect() else []

    def identify(self) -> dict[str, Any]:
        """Return driver and cards for the environment record, JSON-able, with the reason of each missing reading.

        Empty in a forked child; ``{"unavailable": reason}`` where there is no NVML. Reads everything once if nothing
        was read before.
        """
        if os.getpid() != self._pid:
            return {}
        with self._lock:
            if not self._connect():
                return {"unavailable": self._unavailable}
            if not any(watched.was_read for watched in self._watched.values()):
                self._read_all()
            identity = _identify_driver(self._nvml) if self._nvml else {}
            names = {watched.device.name for watched in self._watched.values() if watched.device.parent is None}
            if len(names) > 1 and self._environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
                identity["index_note"] = "models differ: CUDA may number them otherwise than by PCI bus"
            identity["gpus"] = [watched.identify(self._nvml) for watched in self._watched.values()]
            unreachable = {str(number): reason for number, reason in (*self._devices.lost, *self._devices.refused)}
            if unreachable:
                identity["unreachable"] = unreachable
            return identity

    def close(self) -> None:
        """Let go of NVML; waits for no call that hangs in the driver."""
        if os.getpid() != self._pid or not self._lock.acquire(timeout=0.1):
            return
        _shut_down(self._nvml)
        self._nvml = None
        self._lock.release()

    def _connect(self) -> bool:
        if self._nvml is not None or self._unavailable:
            return self._nvml is not None
        nvml: Nvml = None
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._devices = find_devices(nvml, self._environ.get("CUDA_VISIBLE_DEVICES"))
        except Exception as error:  # noqa: BLE001  whatever is wrong with the driver, training goes on
            self._unavailable = str(error) or type(error).__name__
            _shut_down(nvml)
            _logger.info("GPUs are not sampled: %s", self._unavailable)
            return False
        self._nvml = nvml
        self._watch()
        return True

    def _watch(self) -> None:
        before, self._watched = self._watched, {}
        visible = [d for d in self._devices.visible if self._indices is None or d.index in self._indices]
        for device in [*visible, *Devices(visible).sliced_cards]:
            known = before.get(device.uuid)
            if known is None:
                known = WatchedDevice(device, self._clock)
            known.device = device
            self._watched[device.uuid] = known
        for physical_index, reason in self._devices.lost:
            self._lose(f"index:{physical_index}", f"GPU {physical_index}", reason)
        for physical_index, reason in self._devices.refused:
            _logger.info("GPU %d is not sampled: %s", physical_index, reason)

    def _lose(self, card_id: str, subject: str, reason: str) -> None:
        if card_id not in self._lost:
            self._lost[card_id] = reason
            _logger.warning("%s is lost, its readings end here: %s", subject, reason)

    def _read_all(self) -> list[Sample]:
        samples: list[Sample] = []
        for watched in self._watched.values():
            if watched.card_id not in self._lost:
                try:
                    watched.read(self._nvml, samples)
                except CardLostError as error:
                    self._lose(watched.card_id, watched.subject, str(error))
                except NvmlGoneError:
                    # Somebody shut NVML down for the whole process: the next round starts it again.
                    self._nvml = None
                    return samples
            samples += status(watched.attributes, failed=watched.card_id in self._lost)
        for physical_index, _ in self._devices.lost:
            attributes = (("hw.id", f"index:{physical_index}"), ("physical_index", physical_index))
            samples += status(attributes, failed=True)
        return samples


def _shut_down(nvml: Nvml) -> None:
    try:
        if nvml is not None:
            nvml.nvmlShutdown()
    except Exception as error:  # noqa: BLE001  it may never have been up, and nobody can mend it here
        _logger.debug("NVML did not shut down: %s", error)


def _identify_driver(nvml: Nvml) -> dict[str, Any]:
    def cuda_version() -> str:
        number = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{number // 1000}.{number % 1000 // 10}"

    identity = {}
    for key, read in (
        ("driver_version", nvml.nvmlSystemGetDriverVersion),
        ("cuda_driver_version", cuda_version),
        ("nvml_version", nvml.nvmlSystemGetNVMLVersion),
    ):
        try:
            identity[key] = str(read())
        except nvml.NVMLError:
            continue
    return identity
