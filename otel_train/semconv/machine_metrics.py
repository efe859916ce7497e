"""Names what is measured of the machine, as the semantic conventions for system, process and hardware do."""

from __future__ import annotations

from typing import Final

from otel_train.semconv.attributes import GPU_ATTRIBUTES, PROCESS
from otel_train.semconv.metric import Metric

MACHINE_METRICS: Final = (
    # The machine: semantic conventions for system, process and hardware metrics.
    Metric("system.cpu.utilization", "1", "gauge", "Share of time that all logical CPUs were busy, 0 to 1."),
    Metric("system.cpu.logical.count", "{cpu}", "updowncounter", "Logical CPUs of the host."),
    Metric("system.memory.usage", "By", "updowncounter", "Memory of the host by state.", ("system.memory.state",)),
    Metric("system.memory.utilization", "1", "gauge", "Share of the host's memory in use, 0 to 1."),
    Metric(
        "system.disk.io",
        "By",
        "counter",
        "Bytes read from and written to disks.",
        ("system.device", "disk.io.direction"),
    ),
    Metric(
        "system.network.io",
        "By",
        "counter",
        "Bytes received and sent by network interfaces.",
        ("network.interface.name", "network.io.direction"),
    ),
    Metric("system.filesystem.utilization", "1", "gauge", "Share of the run folder's file system in use, 0 to 1."),
    Metric("container.memory.usage", "By", "updowncounter", "Memory of the control group, where it has a limit."),
    Metric("dl.container.memory.limit", "By", "updowncounter", "Memory that the control group may use."),
    Metric(
        "dl.container.memory.reclaimable",
        "By",
        "updowncounter",
        "Of the control group's memory, cached files that the kernel gives back when memory is short.",
    ),
    Metric("dl.container.cpu.limit", "{cpu}", "updowncounter", "CPUs that the control group may keep busy."),
    Metric(
        "dl.container.oom_kills",
        "{process}",
        "counter",
        "Processes of the control group that the kernel killed for lack of memory.",
    ),
    Metric(
        "process.cpu.time",
        "s",
        "counter",
        "CPU time of this process (dl.process=main) and of its children (dl.process=children).",
        (PROCESS, "cpu.mode"),
    ),
    Metric(
        "process.cpu.utilization",
        "1",
        "gauge",
        "CPU time by wall time and by the CPUs that the process may use, 0 to 1; main and children add up.",
        (PROCESS,),
    ),
    Metric(
        "process.memory.usage",
        "By",
        "updowncounter",
        "Resident memory of this process and of its children; pages they share count in both.",
        (PROCESS,),
    ),
    Metric("process.thread.count", "{thread}", "updowncounter", "Threads of this process, without its children's."),
    Metric(
        "process.disk.io",
        "By",
        "counter",
        "Bytes that this process and its children read from and wrote to disks.",
        ("disk.io.direction",),
    ),
    Metric(
        "hw.gpu.utilization",
        "1",
        "gauge",
        "Share of time that a kernel was running, 0 to 1.",
        (*GPU_ATTRIBUTES, "hw.gpu.task"),
    ),
    Metric("hw.gpu.memory.utilization", "1", "gauge", "Share of the GPU's memory in use, 0 to 1.", GPU_ATTRIBUTES),
    Metric("hw.gpu.memory.usage", "By", "updowncounter", "Memory in use on the GPU, or on its slice.", GPU_ATTRIBUTES),
    Metric("hw.gpu.memory.limit", "By", "updowncounter", "Memory of the GPU, or of its slice.", GPU_ATTRIBUTES),
    Metric(
        "hw.gpu.io",
        "By",
        "counter",
        "Bytes over PCIe as the GPU sees it, estimated from NVML's throughput over 20 ms at each reading.",
        (*GPU_ATTRIBUTES, "network.io.direction"),
    ),
    Metric("hw.gpu.clock", "Hz", "gauge", "Clock of the streaming multiprocessors.", GPU_ATTRIBUTES),
    Metric(
        "hw.gpu.throttled",
        "",
        "gauge",
        "1 where the clock is held down for this reason, else 0; one of the reasons is gpu_idle.",
        (*GPU_ATTRIBUTES, "reason"),
    ),
    Metric("hw.power", "W", "gauge", "Power draw.", (*GPU_ATTRIBUTES, "hw.type")),
    Metric("hw.energy", "J", "counter", "Energy since the driver was loaded.", (*GPU_ATTRIBUTES, "hw.type")),
    Metric("hw.temperature", "Cel", "gauge", "Temperature of the chip.", (*GPU_ATTRIBUTES, "hw.type")),
    Metric(
        "hw.errors",
        "{error}",
        "counter",
        "ECC errors since the driver was loaded, corrected and uncorrected.",
        (*GPU_ATTRIBUTES, "hw.type", "error.type"),
    ),
    Metric(
        "hw.status",
        "1",
        "updowncounter",
        "1 for the card's present state (ok, failed), 0 for the other.",
        (*GPU_ATTRIBUTES, "hw.type", "hw.state"),
    ),
)
