"""Looks into training on the user's word: model, data path, samples and amounts; the part of `Run` that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from otel_train.errors import ConfigError
from otel_train.run.adapting import Adapting

if TYPE_CHECKING:
    from otel_train.record.amounts import AmountLog
    from otel_train.record.points import PointLog
    from otel_train.run.guard import Guard, Warner
    from otel_train.run.run import Run
    from otel_train.run.session import Session
    from otel_train.run.watched_models import WatchedModels
    from otel_train.watch.flops import Flops
    from otel_train.watch.loader import Loaders
    from otel_train.watch.model_watch import Watch
    from otel_train.watch.samples import SampleChecks


class LookingInside(Adapting):
    """The part of `Run` that looks into training. What is costly to import is imported when it is asked for."""

    session: Session
    points: PointLog
    guard: Guard
    warn: Warner
    finished: bool
    loaders: Loaders
    amounts: AmountLog
    flop_count: Flops
    _samples: SampleChecks | None = None
    _watched: WatchedModels | None = None

    # Model -----------------------------------------------------------------------------------------------------------

    def watch(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        name: str | None = None,
        every: int = 100,
        window: int = 1,
        scaler: Any = None,
        activations: bool = True,
        distributions: bool = True,
        updates: bool = True,
    ) -> Watch:
        """Look into a model of torch's while it trains: its gradients, weights, updates and activations.

        The first optimizer step (the second where torch.compile is in use) and then every `every`-th is sampled; the
        others cost a few microseconds. Nothing waits for a device. `optimizer` is one, several in a sequence
        or mapping, or None: then it is found at its first step with parameters of this model, and without any a step
        is what lies between two changes of the weights. With gradient accumulation only the optimizer's step counts.
        `scaler` is found by itself too, at its first step.

        Recorded at the run's step, by `layer` and, without that attribute, for the whole:

        - `dl.grad.norm`: before clipping and without the loss scale. `dl.grad.norm.clipped`: what the optimizer got.
          Clipping is seen where `torch.nn.utils` does it; `clip_grad_value_` not where it was imported by name.
        - `dl.weight.norm`, and `dl.update.ratio`, which needs a copy of the weights during the sampled step
          (`updates=False` spares it).
        - `dl.weight.distribution`, `dl.grad.distribution` (without them `distributions=False`).
        - `dl.grad.nonfinite`, by the layer where it began; `dl.optimizer.skipped`, `.tried` and `dl.amp.scale`.
        - `dl.activation.mean`, `.std` and, of ReLU, ReLU6 and the like, `.dead`: the share of units (channels of a
          convolution, else features) whose output was zero for every sample of the window. That is the forward passes
          in training of the last `window` optimizer steps, the sampled one included, all micro-batches. A leaky ReLU
          has no dead units. Functions (`torch.relu`) and compiled code are not seen; a model without activation
          modules gives mean and deviation of what its layers give out.

        A layer is a module that owns parameters; shared parameters count once. Of more than 64 layers whole blocks are
        recorded, and run.json and a notice say which. Frozen layers have a weight norm only. Of a model that is the
        same on all ranks the first one tells. Of one in shards (FSDP2) each rank tells of its own, with part="shard":
        the root of the sum of squares is the whole norm.

        Watching a model again replaces the former watch; several models need a `name` each. ConfigError for arguments
        that are wrong.
        """
        return self._models().watch(
            model,
            optimizer,
            name=name,
            every=every,
            window=window,
            scaler=scaler,
            activations=activations,
            distributions=distributions,
            updates=updates,
        )

    def unwatch(self, model: Any = None) -> None:
        """Look no more into a model or data loader; without one, into none. No hook stays behind."""
        if self._watched is not None:
            self._watched.unwatch(model)
        with self.guard("unwatch"):
            self.loaders.unwatch(model)

    def _models(self) -> WatchedModels:
        if self._watched is None:
            from otel_train.run.watched_models import WatchedModels

            self._watched = WatchedModels(cast("Run", self))
        return self._watched

    # Data path -------------------------------------------------------------------------------------------------------

    def watch_data(self, loader: Iterable[Any], *, name: str | None = None) -> Any:
        """Time each batch of a data loader: fetching, augmenting and collating in its worker, waiting in the queue.

        A DataLoader of torch, also one that Accelerate has prepared, is returned itself, and gives whoever iterates it
        the batches that it would give anyway; it is watched until `unwatch`, or the end of the run. Any other iterable
        comes back as one like it, of which only the time of each fetch is known. `run.steps` watches the DataLoader
        that it is given by itself. `name` tells several loaders of a run apart; "val" or "test" says the split of one
        that goes through no `run.steps`.
        """
        with self.guard("watch_data"):
            return self.loaders.watch(loader, name)
        return loader

    # Samples ---------------------------------------------------------------------------------------------------------

    def check_samples(
        self,
        batch: Any,
        *,
        every: int = 500,
        labels: Any = None,
        classes: int | Sequence[Any] | Mapping[Any, Any] | None = None,
        split: str = "train",
        keep: int = 4,
        kind: str | None = None,
        value_range: tuple[float, float] | None = None,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        """Check the quality of a batch as the model gets it, at the first and then every `every`-th call of a split.

        The other calls cost less than a microsecond. A batch is a tensor or array (samples, …), a pair of inputs and
        labels, a mapping with them (`pixel_values`, `input_ids`, `labels` …), a list of texts, images or arrays, or a
        table (data frame, mapping of columns, list of rows). What it holds is found out; `kind` says it: "image",
        "array", "text", "tokens" or "table". Nothing waits for a device. At most 16,384 samples and 2**24 values of
        a batch are looked at.

        Recorded as `dl.samples.…` with the split, at the run's step:

        - `mean`, `std`: of all finite values; of texts and token ids, of their lengths; of tables none.
        - `saturated`: share of all values (of texts, of the lengths) at or beyond the ends of `value_range`; without it
          of 0 and 255 for 8-bit values, else of the least and greatest value in the first five checks.
        - `constant`: share of samples whose values are all the same; of texts, those that are empty or repeat one
          character; of tables, the share of columns.
        - `nonfinite`: share of samples with NaN, an infinity or a missing value.
        - `duplicate`: share of samples that equal another of the batch bit by bit.
        - `drift`: Jensen-Shannon divergence, to base 2, of the values from those of the first five checks: 0 for the
          same, 1 for nothing in common, from the second check on. Over 21 bins, whose edges are the ends and
          the deciles of the first batch and nine that part its range evenly; at most 262,144 values, evenly spread, are
          counted. Of tables, the greatest of the columns. See Lin, IEEE Transactions on Information Theory 37 (1991).
        - `class.share` by class, at most 100, the rest as "other"; `class.drift` as above, less what chance gives.

        `labels` are one class a sample (or, samples by classes, shares of each); `classes` their names or number. At
        each check `keep` samples (at most 32, those with faults first) go to `artifacts/samples/<split>/step-…` as
        pictures, texts, rows or numbers; the first check and the newest nine are kept, within 64 MB. `decode` turns the
        ids of a kept sample into text, on the writer's thread.

        ConfigError for arguments that are wrong. What can't be checked in a batch is said once, and never raised.
        """
        checks = self._samples
        if checks is not None:
            # Written out, for the calls that only count.
            place = checks.places.get(split)
            if place is not None and place.every == every and place.left > 1:
                place.left -= 1
                return
        from otel_train.run.looking_samples import check_samples, new_checks

        if checks is None:
            checks = self._samples = new_checks(self)
        check_samples(
            self,
            checks,
            batch,
            labels,
            split,
            every=every,
            keep=keep,
            kind=kind,
            value_range=value_range,
            classes=classes,
            decode=decode,
        )

    # Amounts ---------------------------------------------------------------------------------------------------------

    def count(self, *, samples: Any = None, tokens: Any = None) -> None:
        """Say how many samples and tokens this micro-batch has on this rank: `run.count(tokens=int(lengths.sum()))`.

        Whole numbers, or tensors of one element, which are read later where they are on a device. What is said here
        goes before what `run.steps` sees by the batch's shape; several calls in one step add up, and within an
        evaluation nothing is counted. In a loop by hand each call ends a micro-batch. ConfigError for what is no
        amount.
        """
        try:
            self.amounts.count(samples, tokens)
        except ConfigError:
            raise
        except Exception as fault:
            with self.guard("count"):
                raise fault

    def flops(self, *, per_sample: Any = None, per_token: Any = None, per_step: Any = None, peak: Any = None) -> None:
        """Say how many FLOPs forward and backward pass take, so that `dl.mfu` is known: some six a parameter and token.

        Exactly one of: for each sample, each token, or each micro-batch of this rank (`per_step`). `peak` is the
        card's in FLOP/s, or the format whose dense peak is looked up by its name: "bf16" (the default), "fp16",
        "tf32". Of a card that is not in the table, and on the CPU, the share is not known, unless `peak` is a number.
        ConfigError for what is no number above 0.
        """
        self.flop_count.give(per_sample=per_sample, per_token=per_token, per_step=per_step, peak=peak)

    def count_flops(self, *, samples: Any = None, tokens: Any = None, peak: Any = None) -> AbstractContextManager[None]:
        """Count the FLOPs of what runs within, forward and backward pass of one micro-batch, as those of all.

        `with run.count_flops(): loss = model(x).sum(); loss.backward()`, once: it slows what is within. They are kept
        for each token, else for each sample of this batch: as `run.steps` sees it, or as given; else for each
        micro-batch. It sees torch's own operations, also in attention, but none of compiled models and of kernels of
        others. `peak` as in `flops`.
        """
        return self.flop_count.counting(
            samples=samples, tokens=tokens, peak=peak, size=self.points.present_size, warn=self.warn
        )
