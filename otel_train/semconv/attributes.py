"""Names the attributes of resources, points, records and spans, and their fixed values."""

from __future__ import annotations

from typing import Final

SCOPE_NAME: Final = "otel_train"

# Resource attributes -------------------------------------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
RUN_ID: Final = "run_id"
RUN_NAME: Final = "run_name"
RUN_ATTEMPT: Final = "run_attempt"
RANK: Final = "dl.rank"
LOCAL_RANK: Final = "dl.local_rank"
WORLD_SIZE: Final = "dl.world_size"
HOST_NAME: Final = "host.name"
PROCESS_PID: Final = "process.pid"

# Attributes of points, records and spans -----------------------------------------------------------------------------
SPLIT: Final = "split"
AXIS: Final = "axis"
PHASE: Final = "phase"
CLOCK: Final = "clock"
METRIC: Final = "metric"
# A layer of a model, or a block of layers; absent for the whole.
LAYER: Final = "layer"
# Which of several optimizers; absent where there is one.
OPTIMIZER: Final = "optimizer"
# Which of several watched models; absent where it was given no name.
MODEL: Final = "model"
# "shard" on values of the part of a model that one rank holds; absent where a rank holds all of it.
PART: Final = "part"
# A class of the labels.
CLASS: Final = "class"
# A data loader by the name that the user gave it, and a worker of one by its number.
LOADER: Final = "loader"
WORKER: Final = "worker"
STATE: Final = "state"
STEP: Final = "dl.step"
EPOCH: Final = "dl.epoch"
EVENT_NAME: Final = "event.name"
STAGE: Final = "dl.stage"
ALERT: Final = "alert"
# True on the event that says that a health condition is over.
CLEARED: Final = "cleared"
SIGNAL: Final = "signal"
OUTCOME: Final = "outcome"
TRUNCATED: Final = "dl.truncated"
ANNOUNCES: Final = "dl.announces"
# Whose consumption: main (the process that was started) or children (its data loader workers and the like).
PROCESS: Final = "dl.process"
# What every series of a GPU carries: UUID, model, this process's number of it, and its place on the PCI bus. Those of
# a MIG slice also name the card and the instances.
GPU_ATTRIBUTES: Final = (
    "hw.id",
    "hw.name",
    "index",
    "physical_index",
    "hw.parent",
    "mig.gpu_instance",
    "mig.compute_instance",
)

# Of a batch and of what became of its worker: the worker's number and process, how it ended; indices of the samples as
# the sampler gave them (the first of many), the one that failed where it is known, and for an iterable data set, which
# has no indices, the ordinal numbers of batch and sample in that worker, from 0.
DATA_WORKER: Final = "dl.data.worker"
DATA_WORKER_PID: Final = "dl.data.worker.pid"
DATA_WORKER_EXIT: Final = "dl.data.worker.exit"
DATA_SAMPLES: Final = "dl.data.samples"
DATA_SAMPLE: Final = "dl.data.sample"
DATA_SAMPLE_COUNT: Final = "dl.data.sample_count"
DATA_BATCH_ORDINAL: Final = "dl.data.batch_ordinal"
DATA_SAMPLE_ORDINAL: Final = "dl.data.sample_ordinal"

# Attributes of log records -------------------------------------------------------------------------------------------
LOGGER: Final = "log.logger"
LOG_IOSTREAM: Final = "log.iostream"
THREAD_NAME: Final = "thread.name"
CODE_FILE: Final = "code.file.path"
CODE_LINE: Final = "code.line.number"
CODE_FUNCTION: Final = "code.function.name"
CODE_STACK: Final = "code.stacktrace"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACK: Final = "exception.stacktrace"
ATTRIBUTES_LEFT_OUT: Final = "otel_train.attributes_left_out"
# What the sender had to cut for a store: names of attributes, those beyond the number it takes, and a body's bytes.
ATTRIBUTES_CUT: Final = "otel_train.attributes_cut"
ATTRIBUTES_REST: Final = "otel_train.attributes_rest"
BODY_CUT: Final = "otel_train.body_cut"
PROGRESS_REDRAWS: Final = "progress.redraws"
SUPPRESSED_COUNT: Final = "log.suppressed.count"
SUPPRESSED_TEMPLATE: Final = "log.suppressed.template"
SUPPRESSED_LEVEL: Final = "log.suppressed.level"
SUPPRESSED_FIRST: Final = "log.suppressed.first_time"
SUPPRESSED_LAST: Final = "log.suppressed.last_time"

SPLITS: Final = ("train", "val", "test")
# Every state is written each time, 1 for the present one and 0 for the others: a store keeps series side by side.
RUN_STATES: Final = ("running", "finished", "failed", "interrupted", "killed", "lost")
DEFAULT_AXIS: Final = "step"
