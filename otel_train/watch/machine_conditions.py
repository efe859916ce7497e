"""Lists the conditions of the machine that a training runs on: cards, disk and memory."""

from __future__ import annotations

from typing import Final

from otel_train.watch.condition import Condition

MACHINE: Final = (
    Condition(
        name="gpu_idle",
        title="GPU idles",
        setting="gpu_utilization",
        threshold=0.6,
        also=("gpu_idle_s",),
        unit="share of time",
        comparison="<",
        metric="dl.gpu.busy.share",
        severity="warning",
        summary="A GPU of a running training was busy less than 60 % of the last ten minutes.",
        meaning="A GPU is paid for and not used: something else holds training up. The share is the mean of "
        "hw.gpu.utilization over gpu_idle_s seconds of a run that makes steps.",
        look_at=(
            "Data wait: the usual cause (condition data_wait).",
            "Step time by phase: much outside of forward and backward? Evaluation or checkpoints that take long?",
            "Only one of several GPUs: imbalance, or a rank that waits for another (table of ranks).",
            "Is the card used at all: CUDA_VISIBLE_DEVICES, model and batch on the device?",
        ),
        remedies=(
            "Mend the loader first; then larger batches, torch.compile, fewer .item() and print calls in the loop.",
            "Save checkpoints and evaluate less often, or aside.",
            "A small model cannot fill a large GPU: share it, or lower gpu_utilization for this run.",
        ),
    ),
    Condition(
        name="gpu_hot",
        title="GPU is hot",
        setting="gpu_temperature",
        threshold=85,
        unit="Cel",
        comparison=">",
        metric="hw.temperature",
        where=(("hw.type", "gpu"),),
        for_s=60,
        severity="warning",
        summary="A GPU has been over 85 degrees Celsius for a minute.",
        meaning="Near its limit a card lowers its clock: steps become slower, and the hardware ages.",
        look_at=(
            "hw.gpu.throttled and hw.gpu.clock: is it slowed down already?",
            "Its neighbours and other nodes: one card, one box, or the whole room?",
            "Power draw against its limit.",
        ),
        remedies=(
            "Tell who runs the machine: fans, filters, airflow, room temperature.",
            "Until then lower the power limit (nvidia-smi -pl), which costs little speed.",
            "Cards that are specified for more: raise gpu_temperature.",
        ),
    ),
    Condition(
        name="gpu_throttled",
        title="GPU is slowed down",
        setting="gpu_throttled",
        threshold=1,
        unit="state",
        comparison=">=",
        metric="hw.gpu.throttled",
        for_s=60,
        severity="warning",
        summary="The driver has held a GPU's clock down for a minute, because of heat or power supply.",
        meaning="One of hw_slowdown, hw_thermal_slowdown, sw_thermal_slowdown and hw_power_brake_slowdown holds. "
        "Idleness, set clocks, and the power cap that every busy card meets, do not count.",
        look_at=(
            "Which reason, and temperature and power at that time.",
            "Step time: how much slower? With several ranks all wait for the slowest card.",
        ),
        remedies=(
            "Thermal: as for a hot GPU. Power brake: power supply or rack limit, tell who runs the machine.",
            "Leave the node out of the job until it is mended.",
        ),
    ),
    Condition(
        name="gpu_ecc",
        title="GPU memory errors",
        setting="gpu_ecc",
        threshold=1,
        unit="errors",
        comparison=">=",
        metric="hw.errors",
        where=(("error.type", "uncorrected"), ("hw.type", "gpu")),
        severity="critical",
        summary="A GPU counted uncorrected memory errors while the run went on.",
        meaning="Data in the card's memory was damaged and could not be mended. Results since then cannot be "
        "trusted; the driver often ends the process (Xid 48, 63, 64, 94, 95).",
        look_at=(
            "dmesg for NVRM: Xid lines; nvidia-smi -q -d ECC,ROW_REMAPPER on that host.",
            "Loss and gradients since the time of the errors: jumps or NaN?",
        ),
        remedies=(
            "Resume from a checkpoint before the errors, on another card.",
            "Have the GPU reset (rows are remapped then); with errors again have it replaced.",
        ),
    ),
    Condition(
        name="disk_full",
        title="Disk is nearly full",
        setting="disk_share",
        threshold=0.95,
        unit="share of the disk",
        comparison=">",
        metric="system.filesystem.utilization",
        for_s=60,
        severity="warning",
        summary="The file system of the run folder is more than 95 % full.",
        meaning="When it is full, checkpoints fail, which ends most trainings, and the run log goes to memory.",
        look_at=(
            "What grows: du -xh --max-depth=2 on that file system; usually checkpoints.",
            "otel_train.runlog.size: what this run's log takes.",
            "Quota and inodes: full may also mean these.",
        ),
        remedies=(
            "Delete old checkpoints; keep the best and the last.",
            "`otel-train prune` deletes old runs by age and size; `otel-train push` sends them before.",
            "Write checkpoints to another file system.",
        ),
    ),
    Condition(
        name="memory_full",
        title="Host memory is nearly full",
        setting="memory_share",
        threshold=0.95,
        unit="share of the memory",
        comparison=">",
        metric="dl.memory.share",
        for_s=60,
        severity="warning",
        summary="More than 95 % of the memory of the host, or of the container's limit, is in use.",
        meaning="At 100 % the kernel kills a process: a loader worker, or the training itself, without a traceback. "
        "The greater share counts, of the host or of the control group; cached file pages are left out of both.",
        look_at=(
            "process.memory.usage of main and children: a steady climb is a leak, a level is the size of the job.",
            "A climb in loader workers: Python objects in the data set are copied page by page; use arrays.",
            "A climb in the main process: losses kept with their graph, lists of outputs, growing caches.",
            "Other jobs on the host.",
        ),
        remedies=(
            "Fewer loader workers or a smaller prefetch_factor; memory-mapped data.",
            "Keep numbers (loss.item()), not tensors with graphs.",
            "Ask for more memory; save a checkpoint now.",
        ),
    ),
)
