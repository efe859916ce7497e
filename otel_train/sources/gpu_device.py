"""Watches one card or slice: what its series carry, which readings it cannot give, and whether it still answers."""

from __future__ import annotations

from typing import Any

from otel_train.clock import Clock
from otel_train.record.entries import Sample, SeriesAttributes
from otel_train.sources.gpu_readings import (
    CARD_READINGS,
    SLICE_READINGS,
    SLICED_CARD_READINGS,
    PcieTraffic,
    Reading,
    memory_info,
    unsupported_codes,
)
from otel_train.sources.gpu_visible import Device, Nvml, lost_codes
from otel_train.sources.readings import MissingReadings


class CardLostError(Exception):
    """The card will not answer again."""


class NvmlGoneError(Exception):
    """NVML is not initialised any more."""


class WatchedDevice:
    """A device with what is known of it: which readings it cannot give, and its traffic so far."""

    def __init__(self, device: Device, clock: Clock) -> None:
        self.device = device
        self.was_read = False
        if device.parent is not None:
            where = f", instance {device.gpu_instance}/{device.compute_instance}"
            self._readings: tuple[Reading, ...] = SLICE_READINGS
        elif device.index is None:
            where = ""
            self._readings = SLICED_CARD_READINGS + PcieTraffic(clock).readings()
        else:
            where = ""
            self._readings = CARD_READINGS + PcieTraffic(clock).readings()
        self.subject = f"GPU {device.physical_index} ({device.name}{where})"
        self.missing = MissingReadings(self.subject)
        self._given_up: set[str] = set()

    @property
    def card_id(self) -> str:
        """The UUID of the card, also of its slices: they are lost together."""
        return self.device.parent.uuid if self.device.parent else self.device.uuid

    @property
    def attributes(self) -> SeriesAttributes:
        """What the device's series carry."""
        device = self.device
        optional = (
            ("index", device.index),
            ("physical_index", device.physical_index),
            ("hw.parent", device.parent.uuid if device.parent else None),
            ("mig.gpu_instance", device.gpu_instance),
            ("mig.compute_instance", device.compute_instance),
        )
        known = tuple((key, value) for key, value in optional if value is not None)
        return (("hw.id", device.uuid), ("hw.name", device.name), *known)

    def read(self, nvml: Nvml, samples: list[Sample]) -> None:
        """Append what can be read; raises where nothing more can be."""
        self.was_read = True
        for reading in self._readings:
            if reading.name in self._given_up:
                continue
            try:
                found = reading.read(nvml, self.device.handle)
            except nvml.NVMLError as error:
                if error.value in lost_codes(nvml):
                    raise CardLostError(str(error)) from error
                if error.value == nvml.NVML_ERROR_UNINITIALIZED:
                    raise NvmlGoneError from error
                if error.value in unsupported_codes(nvml):
                    self._given_up.add(reading.name)
                self.missing.note(reading.name, str(error))
            except Exception as error:  # noqa: BLE001  a driver's surprise loses this reading alone
                self.missing.note(reading.name, f"{type(error).__name__}: {error}")
            else:
                self.missing.reasons.pop(reading.name, None)
                samples += [Sample(s.name, s.value, self.attributes + s.attributes) for s in found]

    def identify(self, nvml: Nvml) -> dict[str, Any]:
        """Return what this device is."""
        device = self.device
        identity: dict[str, Any] = {
            "index": device.index,
            "physical_index": device.physical_index,
            "name": device.name,
            "uuid": device.uuid,
        }
        try:
            identity["memory_total_bytes"] = memory_info(nvml, device.handle)[1]
        except Exception:  # noqa: BLE001  the reason is among the readings'
            pass
        if device.parent is not None:
            identity["mig"] = {
                "parent_uuid": device.parent.uuid,
                "gpu_instance": device.gpu_instance,
                "compute_instance": device.compute_instance,
            }
        identity = {key: value for key, value in identity.items() if value is not None}
        identity["unsupported"] = dict(self.missing.reasons)
        return identity


def status(attributes: SeriesAttributes, *, failed: bool) -> list[Sample]:
    """Return all states, so that the old one does not stay at 1 beside the new one in a store."""
    kind = (*attributes, ("hw.type", "gpu"))
    return [
        Sample("hw.status", int(not failed), (*kind, ("hw.state", "ok"))),
        Sample("hw.status", int(failed), (*kind, ("hw.state", "failed"))),
    ]
