"""Finds the cards and MIG slices that this process can use, in the order in which CUDA numbers them.

CUDA itself is never asked: initialising it costs memory on the first card and breaks workers that are forked later.
CUDA_VISIBLE_DEVICES is read as CUDA reads it. Its numbers are taken in the order of the PCI bus, which is NVML's;
without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA puts the fastest card first where the models differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# The module pynvml, which has no types.
Nvml: TypeAlias = Any

_LEADING_NUMBER = re.compile(r"\s*[+-]?\d+")
# What drivers before 470 called a slice: MIG-GPU-<uuid of the card>/<GPU instance>/<compute instance>.
_OLD_SLICE = re.compile(r"MIG-(GPU-[0-9A-Fa-f-]+)/(\d+)/(\d+)")


@dataclass(slots=True)
class Device:
    """A card, or a slice of one. `index` is this process's number of it; None for a card that it sees in slices."""

    handle: Any
    uuid: str
    name: str
    index: int | None
    physical_index: int | None
    # Of slices only.
    parent: Device | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(slots=True)
class Devices:
    """What was found: `visible` in CUDA's order, `lost` as (physical index, reason), `refused` likewise."""

    visible: list[Device] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)

    @property
    def sliced_cards(self) -> list[Device]:
        """The cards that the visible slices belong to, each once."""
        cards: dict[str, Device] = {}
        for device in self.visible:
            if device.parent is not None:
                cards.setdefault(device.parent.uuid, device.parent)
        return list(cards.values())


def parse_visible_devices(text: str | None) -> list[int | str] | None:
    """Return the numbers and UUIDs that the variable names, up to the first that is neither; None means all.

    A negative number ends the list, and so does a word such as NoDevFiles. A number may be followed by anything. An
    entry that stands twice hides all devices.
    """
    if text is None:
        return None
    wanted: list[int | str] = []
    for entry in text.split(","):
        item = entry.strip()
        number = _LEADING_NUMBER.match(item)
        if item.upper().startswith(("GPU-", "MIG-")):
            value: int | str = item
        elif number and int(number.group()) >= 0:
            value = int(number.group())
        else:
            break
        if value in wanted:
            return []
        wanted.append(value)
    return wanted


def find_devices(nvml: Nvml, visible: str | None) -> Devices:
    """Return what the process sees, where `visible` is the value of CUDA_VISIBLE_DEVICES; NVML is initialised."""
    found = Devices()
    cards: dict[int, Device] = {}
    for physical_index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(physical_index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            name = _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError as error:
            lost = error.value in lost_codes(nvml)
            (found.lost if lost else found.refused).append((physical_index, str(error)))
            continue
        cards[physical_index] = Device(handle, uuid, name, None, physical_index)
    wanted = parse_visible_devices(visible)
    # A lost card ends neither everybody's list nor a written one: the cards behind it are there.
    gone = {physical_index for physical_index, _ in found.lost}
    for item in [*cards] if wanted is None else [item for item in wanted if item not in gone]:
        devices = _resolve(nvml, item, cards)
        if not devices:
            break
        seen = {device.uuid for device in found.visible}
        for device in (device for device in devices if device.uuid not in seen):
            device.index = len(found.visible)
            found.visible.append(device)
    return found


def lost_codes(nvml: Nvml) -> tuple[int, ...]:
    """Return NVML's codes for a card that will not answer again before a reset or restart."""
    return (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_GPU_NOT_FOUND)


def _resolve(nvml: Nvml, item: int | str, cards: dict[int, Device]) -> list[Device]:
    """Return the devices that one entry stands for; empty where CUDA would stop."""
    if isinstance(item, int):
        return _slices_or_card(nvml, cards[item]) if item in cards else []
    if item.upper().startswith("GPU-"):
        matching = [card for card in cards.values() if card.uuid.lower().startswith(item.lower())]
        # A prefix names a card only while it fits no other.
        return _slices_or_card(nvml, matching[0]) if len(matching) == 1 else []
    slices = [part for card in cards.values() for part in _slices(nvml, card)]
    named = [part for part in slices if _names_slice(item, part)]
    if len(named) == 1:
        return named
    return [] if named else _slice_by_uuid(nvml, item, cards)


def _slices_or_card(nvml: Nvml, card: Device) -> list[Device]:
    # CUDA takes one slice of a card at a time, but which one a process gets is decided when it starts using it.
    return list(_slices(nvml, card)) or [card]


def _slices(nvml: Nvml, card: Device) -> Iterator[Device]:
    """Yield the slices of a card; none where MIG is off, unknown or out of reach."""
    try:
        if nvml.nvmlDeviceGetMigMode(card.handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(card.handle)
    except nvml.NVMLError:
        return
    for number in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, number)
            yield _slice(nvml, handle, card)
        except nvml.NVMLError:
            continue  # that place is empty


def _slice(nvml: Nvml, handle: Any, card: Device) -> Device:
    device = Device(handle, _text(nvml.nvmlDeviceGetUUID(handle)), card.name, None, card.physical_index, card)
    for attribute, read in (
        ("name", nvml.nvmlDeviceGetName),
        ("gpu_instance", nvml.nvmlDeviceGetGpuInstanceId),
        ("compute_instance", nvml.nvmlDeviceGetComputeInstanceId),
    ):
        try:
            value = read(handle)
        except nvml.NVMLError:
            continue
        setattr(device, attribute, _text(value) if attribute == "name" else int(value))
    return device


def _names_slice(item: str, device: Device) -> bool:
    old = _OLD_SLICE.fullmatch(item)
    if old and device.parent:
        where = (device.parent.uuid.lower(), device.gpu_instance, device.compute_instance)
        return where == (old.group(1).lower(), int(old.group(2)), int(old.group(3)))
    return device.uuid.lower().startswith(item.lower())


def _slice_by_uuid(nvml: Nvml, uuid: str, cards: dict[int, Device]) -> list[Device]:
    """Ask for a slice by name: works where the card's list of slices may not be read."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        card_handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        card_uuid = _text(nvml.nvmlDeviceGetUUID(card_handle))
        known = [card for card in cards.values() if card.uuid == card_uuid]
        card = known[0] if known else Device(card_handle, card_uuid, "", None, None)
        return [_slice(nvml, handle, card)]
    except nvml.NVMLError:
        return []


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
