"""Lists the conditions of a training: does it learn, does it go on, did it end well."""

from __future__ import annotations

from typing import Final

from otel_train.watch.condition import Condition

TRAINING: Final = (
    Condition(
        name="plateau",
        title="Loss stands still",
        setting="plateau_steps",
        threshold=2000,
        also=("plateau_percent",),
        unit="steps",
        comparison=">=",
        metric="dl.steps_since_improvement",
        severity="warning",
        summary="The loss has not come down by 1 % within the last 2,000 steps.",
        meaning="The watched loss (validation's where it is logged, else training's, averaged over windows of a "
        "twentieth of plateau_steps) has not gone below its best value by plateau_percent, nor by more than its usual "
        "noise, for plateau_steps steps. Either training is done, or it is stuck.",
        look_at=(
            "Learning rate: has the schedule already brought it near zero, or is it still so high that the loss "
            "oscillates?",
            "Training and validation loss together: both flat means no learning; training still falling means overfit.",
            "Gradient norm: near zero means that nothing reaches the weights; constantly clipped means that the step "
            "is too large.",
            "The level itself: for classification, log(number of classes) is the loss of a guess.",
            "Data: are batches shuffled, are the labels those of the inputs, did the loader begin to repeat itself?",
        ),
        remedies=(
            "If the level is as good as you expected, stop early and keep the best checkpoint.",
            "Lower the learning rate by a factor of 3 to 10 from the best checkpoint; if the loss then falls, keep it.",
            "At the level of a guess: overfit one batch on purpose. If even that does not go to zero, the fault is in "
            "the model, the loss, or frozen parameters.",
            "For slow but real progress raise plateau_steps or lower plateau_percent: init(alerts={…}).",
        ),
    ),
    Condition(
        name="overfit",
        title="Training and validation drift apart",
        setting="overfit_gap",
        threshold=0.1,
        unit="share of the training loss at the beginning",
        comparison=">",
        metric="dl.overfit.gap",
        severity="warning",
        summary="Validation loss lies above training loss by more than a tenth of the loss at the beginning.",
        meaning="The gap is (validation loss - training loss over the same steps) / the training loss at the run's "
        "beginning. So much of what training gained does not carry over to data that the model has not seen.",
        look_at=(
            "Since when does validation loss rise? The best checkpoint is from before that (event model.best).",
            "Validation's metric that counts for you: loss may rise through overconfidence while accuracy still gains.",
            "Is validation data prepared as training data is (normalisation, tokenizer, resolution)? A constant gap "
            "from the first evaluation on points there.",
            "Number of epochs by size of data and model; how many parameters are trained.",
        ),
        remedies=(
            "Stop and take the checkpoint with the best validation loss.",
            "More or augmented data, weight decay, dropout, label smoothing, a smaller model or fewer trained layers.",
            "Shorter training: fewer epochs, or a schedule that ends earlier.",
            "If the gap is expected (heavy dropout or augmentation, another domain), raise overfit_gap.",
        ),
    ),
    Condition(
        name="nonfinite",
        title="Values are not finite",
        setting="nonfinite",
        threshold=1,
        unit="values",
        comparison=">=",
        metric="dl.nonfinite",
        severity="critical",
        summary="A logged metric, such as loss or gradient norm, was NaN or infinite.",
        meaning="A value that the training logged is no number any more. If it is the loss or the gradient, the "
        "weights are NaN after the next optimizer step and everything from there on is lost.",
        look_at=(
            "Which metric was first, and at which step (event health.nonfinite, table in the report)?",
            "Gradient norm, loss and learning rate in the hundred steps before: a climb, or out of nothing?",
            "Out of nothing: the batch of that step. Empty targets, all-masked sequences, log(0), division by zero.",
            "float16 with a loss scaler: single infinite gradients at the start are its normal search for a scale.",
        ),
        remedies=(
            "Stop; go back to the last checkpoint whose loss was finite. Weights with NaN do not recover.",
            "After a climb: lower learning rate, longer warm-up, clip gradients, bfloat16 in place of float16.",
            "Out of nothing: find the batch with torch.autograd.set_detect_anomaly(True) from that checkpoint; add an "
            "epsilon to log, sqrt and divisions; drop broken samples.",
            "Skip the optimizer step when the norm is not finite, so that one batch cannot end the run.",
        ),
    ),
    Condition(
        name="gradient_exploding",
        title="Gradient explodes",
        setting="gradient_max",
        threshold=10.0,
        unit="times its usual norm",
        comparison=">",
        metric="dl.grad.excess",
        severity="warning",
        summary="Three gradient norms in a row were over ten times their usual value, or not finite.",
        meaning="The usual value is the median of the last 100 finite norms. Steps of that size throw the weights "
        "out of the region where training worked; NaN often follows.",
        look_at=(
            "Loss at the same steps: does it jump too, and does it come back?",
            "Learning rate: end of warm-up, a restart of the schedule, a value changed at a resume?",
            "The batches: very long sequences, wrong scale, corrupt samples.",
            "Is the norm logged before or after clipping? After clipping it cannot explode.",
        ),
        remedies=(
            "Clip: torch.nn.utils.clip_grad_norm_(parameters, max_norm), with max_norm near the usual norm.",
            "Lower learning rate or longer warm-up; for mixed precision bfloat16.",
            "If the loss did not come back: resume from the checkpoint before, skipping these batches.",
        ),
    ),
    Condition(
        name="gradient_vanishing",
        title="Gradient vanishes",
        setting="gradient_min",
        threshold=1e-7,
        unit="norm",
        comparison="<",
        metric="dl.grad.recent_max",
        severity="warning",
        summary="All of the last 100 gradient norms were below 1e-7.",
        meaning="Practically nothing reaches the weights: the model stays as it is, whatever the learning rate.",
        look_at=(
            "Are parameters frozen (requires_grad=False), was the graph cut (detach, no_grad, .item() in the loss)?",
            "float16 without a loss scaler: small gradients round to zero.",
            "Loss exactly zero or constant: saturated activations, dead ReLUs, labels that are all alike.",
            "Does the logged norm belong to the parameters that the optimizer has?",
        ),
        remedies=(
            "Count the parameters whose .grad is None or zero after backward(); mend the cut.",
            "Scale the loss (GradScaler) or use bfloat16.",
            "Normalisation, residual connections, another initialisation or activation where layers saturate.",
            "If training has converged and that is what you see, stop.",
        ),
    ),
    Condition(
        name="stalled",
        title="Run makes no steps",
        setting="stalled_factor",
        threshold=10,
        also=("stalled_min_s",),
        unit="s",
        comparison=">",
        metric="dl.step.age",
        severity="critical",
        summary="No step has ended for ten times the usual step time, and for at least two minutes.",
        meaning="The process lives (it sends heartbeats), but training does not go on. Evaluation, checkpoints and "
        "stages other than training do not count. The threshold is max(stalled_factor x usual step time, "
        "stalled_min_s), in seconds.",
        look_at=(
            "Where it hangs: py-spy dump --pid <process.pid> on host.name shows the stack of every thread.",
            "Data wait of the last steps: a loader worker that died or waits for a file system.",
            "Several ranks: the one whose last step is oldest; the others wait for it in a collective (NCCL).",
            "GPU utilisation: 100 % without progress is a hanging collective, 0 % waits for the host.",
            "Host memory, disk and network at the time of the last step.",
        ),
        remedies=(
            "A hanging collective: end the job, restart from the last checkpoint; NCCL_DEBUG=INFO and "
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1 name the rank the next time.",
            "A hanging loader: a timeout (DataLoader(timeout=…)), fewer workers, data on a local disk.",
            "If pauses of that length are normal, give them a name (run.phase, run.stage) or raise stalled_min_s.",
        ),
    ),
    Condition(
        name="failed",
        title="Run failed",
        setting="failed",
        threshold=1,
        unit="state",
        comparison=">=",
        metric="dl.run.state",
        where=(("state", "failed"),),
        severity="critical",
        summary="The run ended with an error.",
        meaning="The training script raised an exception, left with an exit code other than 0, or said so itself.",
        look_at=(
            "`otel-train show RUN` and the event run.end: exit code, reason, exception with its traceback.",
            "The last warnings and errors before the end: `otel-train logs RUN --level warning`.",
            "Memory of host and GPU in the last minute: out of memory shows there first.",
        ),
        remedies=(
            "Mend the cause that the traceback names, then go on: init(resume=RUN) from the last checkpoint.",
            "Out of memory: smaller batch with gradient accumulation, activation checkpointing, fewer loader workers.",
        ),
    ),
    Condition(
        name="lost",
        title="Run is lost",
        setting="lost_s",
        threshold=120,
        unit="s",
        comparison=">",
        metric="dl.run.heartbeat",
        severity="critical",
        summary="A run that did not say that it ended has sent no heartbeat for two minutes.",
        meaning="Heartbeats come every 15 s. The process was killed (kill -9, out of memory, preemption), its node is "
        "down or frozen, or what it sends does not arrive. The rule compares the age of the newest heartbeat.",
        look_at=(
            "Is the process there (host.name, process.pid)? Does the scheduler say preempted, out of memory, time out?",
            "`otel-train show RUN` where its folder is: is the process gone, and why, where that can be known.",
            "dmesg and dl.container.oom_kills: the kernel's out-of-memory killer.",
            "Other runs on that node, and the pipeline's own health: if all went silent, the network did.",
        ),
        remedies=(
            "If it is dead: resume from the last checkpoint; `otel-train push RUN` sends what is still in its folder.",
            "If it lives: look at the Collector and the network; nothing is lost, the run log is sent later.",
        ),
    ),
    Condition(
        name="data_wait",
        title="Training waits for data",
        setting="data_wait_share",
        threshold=0.2,
        unit="share of the step time",
        comparison=">",
        metric="dl.data.wait.share",
        severity="warning",
        summary="More than 20 % of the step time of the last five minutes was waiting for the next batch.",
        meaning="The data loader does not keep up. The accelerator idles for that share of the time.",
        look_at=(
            "CPU: are the cores that the process may use busy (process.cpu.utilization, children)?",
            "Disk and network traffic: a shared file system that is slow, or read for the first time?",
            "Periodic peaks at the start of epochs: workers are started anew each time.",
            "Without device events the wait is the host's: time in which the GPU still works may be booked on it.",
        ),
        remedies=(
            "More loader workers (up to the CPUs that you may use), prefetch_factor, persistent_workers=True, "
            "pin_memory=True.",
            "Decode and augment ahead of time or on the GPU; larger files in place of many small ones; a local copy.",
            "Remove work from collate_fn and from the training thread between two steps.",
        ),
    ),
)
