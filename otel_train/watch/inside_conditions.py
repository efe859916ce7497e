"""Lists the conditions of what a training looks like inside: units, loss scale, samples, ranks, growing memory."""

from __future__ import annotations

from typing import Final

from otel_train.watch.condition import Condition

INSIDE: Final = (
    Condition(
        name="dead_units",
        title="Units of a layer are dead",
        setting="dead_share",
        threshold=0.5,
        unit="share of the units",
        comparison=">",
        metric="dl.activation.dead.lasting",
        severity="warning",
        summary="More than half of the units of a layer gave nothing but zero in three samplings in a row.",
        meaning="A unit of a ReLU-like layer is dead in a sampling when its output was zero for every sample. It has "
        "no gradient then, so it does not come back by itself: the layer is smaller than it looks.",
        look_at=(
            "Dead units by layer, and since when: at once (initialisation), or after a jump of the loss or a high "
            "learning rate?",
            "Update ratio and gradient norm of that layer just before: an update that was far too large kills units.",
            "Biases of the layer before: all strongly negative?",
            "A layer that is meant to be sparse (a mixture of experts, a top-k gate) is no fault.",
        ),
        remedies=(
            "Lower learning rate or a longer warm-up; clip gradients.",
            "He initialisation for ReLU; biases of zero or slightly above.",
            "LeakyReLU, GELU or SiLU in place of ReLU; normalisation before the activation.",
            "Resume from a checkpoint before the units died: with the old weights they stay dead.",
            "Where sparsity is wanted raise dead_share.",
        ),
    ),
    Condition(
        name="amp_skipping",
        title="The loss scaler skips most steps",
        setting="amp_skipped_share",
        threshold=0.5,
        unit="share of the optimizer's steps",
        comparison=">",
        metric="dl.amp.skipped.share",
        severity="warning",
        summary="More than half of the last 100 optimizer steps were skipped for gradients that were not finite.",
        meaning="GradScaler leaves out each step whose gradients overflow, and halves its scale. A few at the start, "
        "and one now and then, are its search for the scale. When most steps are skipped the model hardly learns.",
        look_at=(
            "The scale: falling towards 1 or below means that the gradients overflow at any scale.",
            "Gradient norm by layer at the skipped steps: which layer is the first that is not finite?",
            "Loss: NaN already in the forward pass (float16 ends at 65,504)?",
        ),
        remedies=(
            "bfloat16 in place of float16: it needs no scaler.",
            "Keep softmax, norms and the loss in float32; lower learning rate; clip after unscale_.",
            "A loss that is NaN by itself: find the operation with torch.autograd.set_detect_anomaly(True).",
        ),
    ),
    Condition(
        name="samples_bad",
        title="Samples are broken",
        setting="samples_bad_share",
        threshold=0.0001,
        unit="share of the samples",
        comparison=">=",
        metric="dl.samples.bad",
        severity="warning",
        summary="A checked batch of pictures or arrays held samples that were not finite, or of one value throughout.",
        meaning="The spot check of a batch found samples with NaN or infinities, or constant ones, such as black "
        "pictures. They teach nothing, and one NaN may end the run. Tables and texts are not judged: there missing "
        "cells and empty texts may be right.",
        look_at=(
            "The samples that were kept of that batch (section Samples of the report, event samples.checked).",
            "Augmentation: does it divide by a deviation of zero, crop outside of the picture, clip all to one value?",
            "The files behind these samples: cut off, empty, of another format?",
        ),
        remedies=(
            "Drop or mend such samples in preprocessing, and count them (run.log_dataset(dropped=…)).",
            "Guard the augmentation: an epsilon in divisions, a second try where a crop is empty.",
            "Where constant samples are right for your data raise samples_bad_share.",
        ),
    ),
    Condition(
        name="samples_drift",
        title="Samples drift",
        setting="samples_drift",
        threshold=0.1,
        unit="divergence",
        comparison=">",
        metric="dl.samples.drift",
        severity="warning",
        summary="Batches no longer look like those of the run's beginning.",
        meaning="The drift is the Jensen-Shannon divergence, 0 to 1, between the values of the checked batch and those "
        "of the first five checks. Unchanged data stays below 0.02; normal distributions half a deviation apart have "
        "0.04, one apart 0.16. What the model is trained on now is something else than what it began with.",
        look_at=(
            "Mean and deviation of the samples: which one moved, at once or slowly?",
            "Shares of the classes: is the data sorted and not shuffled, or did a source run dry?",
            "A change of the data set, of a resume, or of an augmentation schedule at that step.",
        ),
        remedies=(
            "Shuffle across sources; check the sampler and its seed by epoch (set_epoch).",
            "Mend the normalisation, or the part of the data that differs.",
            "A curriculum or schedule that does this on purpose: raise samples_drift.",
        ),
    ),
    Condition(
        name="memory_growth",
        title="Memory grows without end",
        setting="memory_full_in_s",
        threshold=3600,
        unit="s",
        comparison="<",
        metric="dl.memory.time_to_full",
        for_s=60,
        severity="warning",
        summary="At its present growth the run fills the memory of its host, or of its container, within an hour.",
        meaning="The time is what is free, of the host or of the control group, whichever is less, by the slope of the "
        "memory of the process and its children. A leak ends by the kernel's out-of-memory killer, without traceback.",
        look_at=(
            "Main process or loader workers: which of process.memory.usage climbs?",
            "Does it climb with each step, with each epoch or with each evaluation?",
            "Start-up, a cache that fills, a data set that is read for the first time: such growth ends by itself.",
        ),
        remedies=(
            "Main process: keep numbers (loss.item()), not tensors with graphs; empty lists of outputs each epoch.",
            "Workers: arrays in place of lists of Python objects in the data set; fewer workers; new ones each epoch.",
            "tracemalloc, or memray attached to the process, names the line that allocates.",
            "Save a checkpoint now; ask for more memory only when the growth is known to end.",
        ),
    ),
    Condition(
        name="straggler",
        title="A rank is slower than the others",
        setting="straggler",
        threshold=1.5,
        unit="times what is usual among the ranks",
        comparison=">",
        metric="dl.rank.straggler",
        for_s=60,
        severity="warning",
        summary="A rank's own work makes its steps one and a half times as long as they would be among equals.",
        meaning="In synchronous training all ranks wait for the slowest in each step. The score is step time / (step "
        "time - own work + the lower quartile of all ranks' own work), over five minutes; own work is the time of a "
        "step without the wait for the others, so that those who wait are not taken for slow.",
        look_at=(
            "Its GPU: clock held down, temperature, another process on the same card?",
            "Its host: CPU, memory, disk and network beside those of the other hosts.",
            "Its wait for data: a slow disk or fewer loader workers on that host?",
            "Longer sequences or larger shards on this rank: then it is the division of the data.",
        ),
        remedies=(
            "Leave the node out until it is mended; a hot or throttled card is its most frequent cause.",
            "Divide the data evenly: bucket by length, drop the last partial batch.",
            "More loader workers on that host, or a local copy of the data.",
        ),
    ),
    Condition(
        name="hung",
        title="A rank hangs",
        setting="hung_factor",
        threshold=10,
        also=("hung_min_s",),
        unit="s",
        comparison=">",
        metric="dl.step.age",
        severity="critical",
        summary="A rank has made no step for ten times the usual step time, and for at least half a minute.",
        meaning="The stacks of all its threads are in its log (event health.hung): they say where it stands. The "
        "threshold is max(hung_factor x usual step time, hung_min_s), in seconds; the condition stalled follows when "
        "no rank goes on for longer.",
        look_at=(
            "The stacks of each rank that hangs: those in a collective (all_reduce, barrier) wait for the one that is "
            "elsewhere.",
            "The rank with the lowest step: it is the one that the others wait for.",
            "PyTorch's flight recorder, where the event names a dump: the collective that not all have joined.",
        ),
        remedies=(
            "Mend what the culprit's stack shows: a loader, a lock, a file system, a branch that only some ranks take.",
            "End the job and resume from the last checkpoint where a collective hangs: it does not come back.",
            "If pauses of that length are normal, give them a name (run.phase, run.stage) or raise hung_min_s.",
        ),
    ),
    Condition(
        name="rank_lost",
        title="A rank is lost",
        setting="rank_lost_s",
        threshold=120,
        unit="s",
        comparison=">",
        metric="dl.run.heartbeat",
        severity="critical",
        summary="A rank has sent no heartbeat for two minutes while others of its run go on.",
        meaning="Heartbeats come every 15 s. The process was killed (kill -9, out of memory), its node is down, or "
        "what it sends does not arrive, while at least one other rank of the same attempt is alive.",
        look_at=(
            "The event rank.lost, which another rank or the launcher's next attempt writes: host, process, last step.",
            "Is the process there (host.name, process.pid)? dmesg and dl.container.oom_kills on that host.",
            "All ranks of one host: then it is the host or its network.",
        ),
        remedies=(
            "Restart from the last checkpoint; torchrun with --max-restarts does it by itself, as a new attempt.",
            "If it lives: look at the Collector and the network of that host; nothing is lost, it is sent later.",
        ),
    ),
)
