"""The queries of what one run takes from its machines: cards, processors, memory, disks and network."""

from __future__ import annotations

from typing import Final

from grafana.source.fragments import THIS_RUN, current, rate
from grafana.source.names import counter, equal, metric
from grafana.source.queries.health import GPU, GPU_LEGEND
from grafana.source.query import Table, over_time
from otel_train.semconv import PROCESS

MAIN: Final = equal(PROCESS, "main")
CHILDREN: Final = equal(PROCESS, "children")
HOST: Final = "{{host_name}}"

QUERIES: Final[Table] = {
    "gpu_memory": over_time(
        f"max by ({GPU}) ({current(metric('hw.gpu.memory.usage', THIS_RUN))})", f"{GPU_LEGEND} in use"
    )
    + over_time(f"max by ({GPU}) ({current(metric('hw.gpu.memory.limit', THIS_RUN))})", f"{GPU_LEGEND} in all"),
    "gpu_power": over_time(
        f"max by ({GPU}) ({current(metric('hw.power', equal('hw.type', 'gpu'), THIS_RUN))})", GPU_LEGEND
    ),
    "gpu_clock": over_time(f"max by ({GPU}) ({current(metric('hw.gpu.clock', THIS_RUN))})", GPU_LEGEND),
    "gpu_io": over_time(
        f"sum by ({GPU}, network_io_direction) ({rate(counter('hw.gpu.io', THIS_RUN))})",
        f"{GPU_LEGEND} {{{{network_io_direction}}}}",
    ),
    "cpu": over_time(f"max by (host_name) ({current(metric('system.cpu.utilization', THIS_RUN))})", f"{HOST}: host")
    + over_time(
        f"avg by (host_name, dl_process) ({current(metric('process.cpu.utilization', THIS_RUN))})",
        f"{HOST}: {{{{dl_process}}}}",
    ),
    "memory": over_time(
        f"sum by (host_name, dl_process) ({current(metric('process.memory.usage', THIS_RUN))})",
        f"{HOST}: {{{{dl_process}}}}",
    )
    + over_time(
        f"max by (host_name, system_memory_state) ({current(metric('system.memory.usage', THIS_RUN))})",
        f"{HOST}: host {{{{system_memory_state}}}}",
    )
    + over_time(
        f"max by (host_name) ({current(metric('dl.container.memory.limit', THIS_RUN))})", f"{HOST}: container's limit"
    ),
    "disk": over_time(
        f"max by (host_name, system_device, disk_io_direction) ({rate(counter('system.disk.io', THIS_RUN))})",
        f"{HOST}: {{{{system_device}}}} {{{{disk_io_direction}}}}",
    )
    + over_time(
        f"sum by (host_name, disk_io_direction) ({rate(counter('process.disk.io', THIS_RUN))})",
        f"{HOST}: this run {{{{disk_io_direction}}}}",
    ),
    "network": over_time(
        f"max by (host_name, network_interface_name, network_io_direction) "
        f"({rate(counter('system.network.io', THIS_RUN))})",
        f"{HOST}: {{{{network_interface_name}}}} {{{{network_io_direction}}}}",
    ),
    "threads": over_time(f"sum by (host_name) ({current(metric('process.thread.count', THIS_RUN))})", HOST),
    "run_log": over_time(f"sum by (host_name) ({current(metric('otel_train.runlog.size', THIS_RUN))})", HOST),
}
