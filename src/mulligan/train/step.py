"""One update of the weights: from rows and advantages to optimiser steps.

The number of optimiser steps is `epochs` × `minibatches`, whatever the trials were like. A step whose loss is not
finite is skipped; when memory runs out over its gradients, the micro-batch is halved and they are computed again
(`Budget`). The host reads nothing back from a GPU until the micro-batches of a step are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mulligan.algo.loss import LossOptions, Tokens, policy_loss, summarise, token_shares, value_loss
from mulligan.errors import DeviceLost, MulliganError, lacks_memory
from mulligan.models.attention import compile_layers, is_never_padded, use_plans
from mulligan.models.checkpointing import is_checkpointed
from mulligan.seeding import generator
from mulligan.train import masters, optimisers
from mulligan.train.config import Config
from mulligan.train.head import Head, Scores
from mulligan.train.pack import Budget, MicroBatch, pack, token_budget
from mulligan.train.rows import Row
from mulligan.train.schedule import Schedule

Result = TypeVar("Result")
SMALLEST_BUDGET = 64
"""Tokens of a micro-batch below which running out of memory is final."""
CLIP_LOW = CLIP_HIGH = 0.2
"""The ratio is clipped below 1 - CLIP_LOW and above 1 + CLIP_HIGH: PPO's values, and those of both papers."""
GRAD_CLIP = 1.0
"""Norm that gradients are clipped to, in the warm start too; as in LaMer's and MAGE's scripts."""
MAX_BAD_STEPS = 3
"""Steps in a row with a loss that is not finite, before the run stops: one bad batch may be chance."""
VALUE_WEIGHT, VALUE_LR = 0.5, 1e-3
"""Weight of the critic's loss and learning rate of its heads (ppo). The heads start from zero and are small, so that
their rate is far above that of the weights."""


@dataclass(frozen=True, slots=True)
class UpdateData:
    """What an update learns from."""

    rows: Sequence[Row]
    advantages: Tensor
    """[step]"""
    targets: Tensor | None = None
    """[step, head] of the critic."""


@dataclass(slots=True)
class _Minibatch:
    """Rows of one optimiser step, packed once for all passes over them."""

    rows: list[Row]
    budget: int = 0
    """Tokens of a micro-batch that it is packed for; 0: it is not packed."""
    packed: list[MicroBatch] = field(default_factory=list)
    shares: list[Tensor] = field(default_factory=list)
    """[K] each, of the whole step."""
    old: list[Tensor] = field(default_factory=list)
    """[K] each, log-probabilities of the first pass: before any step, where it is the update's first minibatch."""


@contextmanager
def _only_once() -> Iterator[None]:
    """For a step. Where memory runs out on the way, weights may have moved: only what was saved counts."""
    try:
        yield
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        said = str(error).strip().partition("\n")[0]
        raise DeviceLost(
            f"memory ran out in the optimiser's step ({said}), which smaller micro-batches do not help; go on with "
            "--resume when others leave more of it, take a smaller engine.slots, or train an adapter (model.lora_rank)"
        ) from None


class Learner:
    """The model with its optimiser; knows tokens and advantages, and nothing of trials or estimators."""

    def __init__(
        self,
        model: Any,
        config: Config,
        heads: int = 0,
        *,
        compiles: bool | None = None,
        backend: str | Callable[..., Any] = "inductor",
        shares_openings: bool | None = None,
        uses_own_logp: bool | None = None,
    ) -> None:
        """None: as suits the device.

        compiles         have torch.compile, with `backend`, fuse the layers for training
        shares_openings  compute once what all rows of a step begin with, such as the rules
        uses_own_logp    take the ratio to the trainer's own log-probabilities, not to the sampler's
        """
        use_plans(model)
        for layer in model.modules():  # what was sampled and what is trained must be one and the same policy
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        self.model, self.config, self.own_logp = model, config, uses_own_logp
        self.schedule = Schedule(config.run.updates)
        """A checkpoint replaces it by the one that the run began with."""
        self.device = next(model.parameters()).device
        self.budget = Budget(
            config.optim.tokens
            or token_budget(model.config, self.device, checkpointing=config.model.gradient_checkpointing)
        )
        is_padded = not is_never_padded(self.device, model.dtype)
        self.shares_openings = not is_padded if shares_openings is None else shares_openings
        self.bad_in_a_row = 0
        self.last_bad = ""
        compiled = _has_compiler(self.device) if compiles is None else compiles
        self.head = Head(model, compiled, backend)
        if compiled:
            compile_layers(model, backend)
        size = model.config.hidden_size
        self.critic = torch.nn.Linear(size, heads, device=self.device) if heads else None
        if self.critic is not None:
            torch.nn.init.zeros_(self.critic.weight)
            torch.nn.init.zeros_(self.critic.bias)
        self.reference: dict[str, Tensor] | None = None
        self.masters = masters.copies(model)
        self.optimiser = optimisers.for_updates(self.weights(), self.critic, config, fused=self.device.type == "cuda")

    @property
    def tokens(self) -> int:
        """What a micro-batch holds at most."""
        return self.budget.tokens

    def trainable(self) -> list[torch.nn.Parameter]:
        """What the optimiser steps: the weights, or their float32 copies."""
        return list(self.weights().values())

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """Everything that is trained in the model, by name, in full precision."""
        return {
            name: self.masters.get(name, parameter)
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }

    def follow_masters(self) -> None:
        """Bring the model's weights to where their float32 copies are."""
        masters.follow(self.model, self.masters)

    def warm_optimisers(self) -> list[torch.optim.Optimizer]:
        """Those of the warm start, which the updates do not go on with."""
        fused = self.device.type == "cuda"
        return optimisers.for_warm_start(self.model, self.weights(), self.config, fused=fused)

    def keep_reference(self) -> None:
        """Remember the weights as they are now: what KL is measured to."""
        self.reference = {
            name: parameter.detach().clone()
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }

    def score(self, batch: MicroBatch, temperature: float) -> Scores:
        """Log-probability and entropy of each sampled token under the sampling distribution."""
        return self.head.score(batch, temperature)

    def look_over(self, rows: Sequence[Row], steps: int, update: int) -> Tensor | None:
        """What must be known before the first step of an update: logp_old and logp_ref, noted on the spans.

        The first step finds logp_old of its own rows by itself. Returns the critic's values [step, head], where there
        is a critic.
        """
        self.budget.proceed()
        return self._fitting(lambda: self._look_over(rows, steps, update))

    @torch.no_grad()
    def _look_over(self, rows: Sequence[Row], steps: int, update: int) -> Tensor | None:
        self.model.eval()
        temperature = self.config.trial.sampling.temperature
        critic = self.critic
        later = self._later_rows(rows, update) if self._uses_own_logp() else []
        values = None if critic is None else torch.zeros(steps, critic.out_features, device=self.device)
        wanted = rows if critic is not None or self.config.algo.kl_weight else later
        packed = self._packed(wanted) if wanted else []
        if later or critic is not None:
            found = []
            for batch in packed:
                scores = self.score(batch, temperature)
                found.append(scores.logp)
                if values is not None and critic is not None:
                    values[batch.step[batch.first]] = critic(scores.hidden[batch.first].float())
            if self._uses_own_logp():
                _note(packed, "old", found)
        if self.config.algo.kl_weight:
            with self._reference_weights():
                _note(packed, "reference", [self.score(batch, temperature).logp for batch in packed])
        return values

    @contextmanager
    def _reference_weights(self) -> Iterator[None]:
        """For the time being, the weights that `keep_reference` remembered."""
        assert self.reference is not None, "keep_reference was not called"
        own = {name: parameter for name, parameter in self.model.named_parameters() if name in self.reference}
        now = {name: parameter.detach().clone() for name, parameter in own.items()}
        try:
            for name, parameter in own.items():
                parameter.copy_(self.reference[name])
            yield
        finally:
            for name, parameter in own.items():
                parameter.copy_(now[name])

    def update(self, data: UpdateData, *, update: int, on_bad: Callable[[Any], None]) -> dict[str, float]:
        """All optimiser steps of one update; returns the metrics of the last pass.

        `sampler/mismatch` is the mean |logp_new - logp_sampler| before the first step: about 0 where sampler and
        trainer share the model.
        """
        optim, algo = self.config.optim, self.config.algo
        self._set_rates(self.schedule.rate(update, optim))
        options = LossOptions(
            clip_low=CLIP_LOW,
            clip_high=CLIP_HIGH,
            kl_weight=algo.kl_weight,
            entropy_weight=self.schedule.entropy_weight(update, algo),
        )
        parts = [_Minibatch(rows) for rows in self._minibatches(data.rows, update)]
        metrics: dict[str, float] = {}
        mismatch: float | None = None
        skipped = 0
        for _ in range(optim.epochs):
            passes = []
            for part in parts:
                found = self._step(part, data, options)
                passes.append(found)
                apart = found.pop("apart", 0.0)
                mismatch = apart if mismatch is None else mismatch
                if found["skipped"]:
                    skipped += 1
                    on_bad({"rows": part.rows, "advantages": data.advantages, "metrics": found})
                    self._end_if_hopeless()
            told = [found for found in passes if len(found) == max(map(len, passes))]  # others had no rows
            metrics = {name: sum(found[name] for found in told) / len(told) for name in told[0]}
        metrics["sampler/mismatch"] = metrics.get("sampler/mismatch", mismatch or 0.0)
        return {**metrics, "skipped": float(skipped), "lr": self.optimiser.param_groups[0]["lr"]}

    def _set_rates(self, factor: float) -> None:
        self.optimiser.param_groups[0]["lr"] = self.config.optim.lr * factor
        if self.critic is not None:
            self.optimiser.param_groups[1]["lr"] = VALUE_LR * factor

    def _minibatches(self, rows: Sequence[Row], update: int) -> list[list[Row]]:
        """Rows of whole trials, dealt out into equally many parts for every update."""
        count = self.config.optim.minibatches
        if count == 1:
            return [list(rows)]
        trials = sorted({row.spans[0].trial for row in rows})
        generator(self.config.run.seed, "minibatches", update).shuffle(trials)
        part_of = {trial: place % count for place, trial in enumerate(trials)}
        return [[row for row in rows if part_of[row.spans[0].trial] == part] for part in range(count)]

    def _later_rows(self, rows: Sequence[Row], update: int) -> list[Row]:
        """Those that are not part of the update's first step."""
        return [row for part in self._minibatches(rows, update)[1:] for row in part]

    def _uses_own_logp(self) -> bool:
        if self.own_logp is not None:
            return self.own_logp
        weight = next(self.model.parameters())
        # Trials that began before the last update were drawn from other weights, whatever the numerics.
        return weight.is_cuda or weight.dtype != torch.float32 or self.config.run.staleness > 0

    def _step(self, part: _Minibatch, data: UpdateData, options: LossOptions) -> dict[str, float]:
        """One optimiser step: its gradients in micro-batches that fit, and then the step itself, once."""
        sums, apart, value_part = self._fitting(lambda: self._gradients(part, data, options))
        if not sums:
            return {"loss": 0.0, "grad_norm": 0.0, "skipped": 0.0}
        applied = self._apply(torch.stack([found["loss"] for found in sums]).sum(), [self.optimiser])
        metrics = summarise(sums)
        # Before the first step of an update both are the same policy: what is left is how far the numerics are apart.
        metrics["apart"] = float(apart) / sum(len(batch.target) for batch in part.packed)
        if self.critic is not None:
            metrics["value_loss"] = float(value_part)
        return {**metrics, **applied}

    def _fitting(self, work: Callable[[], Result]) -> Result:
        """`work`, with smaller micro-batches for as long as memory runs out: nothing that must be done only once."""
        while True:
            try:
                return work()
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _out_of_memory(error) or self.tokens <= SMALLEST_BUDGET:
                    raise
            # Only here, when the error is gone, are the tensors gone too that its traceback held.
            self.budget.halve()
            self._no_gradient()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _no_gradient(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        for parameter in self.model.parameters():
            parameter.grad = None

    def _packed(self, rows: Sequence[Row]) -> list[MicroBatch]:
        return pack(rows, self.tokens, self.device, share=self.shares_openings)

    def _pack(self, part: _Minibatch) -> None:
        """Pack a minibatch anew where micro-batches have become smaller."""
        if part.budget == self.tokens:
            return
        if len(part.old) == len(part.packed):
            _note(part.packed, "old", part.old)  # of a first pass that was finished
        part.old = []
        part.packed = self._packed(part.rows)
        part.shares = self._shares(part.packed) if part.packed else []
        part.budget = self.tokens

    def _logp_old(self, part: _Minibatch, place: int, scores: Scores) -> Tensor | None:
        """The trainer's own log-probabilities before the update for a micro-batch, where they are used."""
        batch = part.packed[place]
        if batch.logp_old is not None or not self._uses_own_logp():
            return batch.logp_old
        if place == len(part.old):
            part.old.append(scores.logp.detach())
        return part.old[place]

    def _gradients(
        self, part: _Minibatch, data: UpdateData, options: LossOptions
    ) -> tuple[list[dict[str, Tensor]], Tensor, Tensor]:
        """Of a whole minibatch. Returns what `policy_loss` says of each micro-batch, Σ |logp_new - logp_sampler|, and
        the critic's loss.
        """
        self.model.train(is_checkpointed(self.model))  # which alone needs it
        self._no_gradient()
        if len(part.old) < len(part.packed):
            part.old = []  # of a first pass that was not finished
        self._pack(part)
        sums: list[dict[str, Tensor]] = []
        spans = sum(len(batch.spans) for batch in part.packed)
        value_part = apart = torch.zeros((), device=self.device)
        with masters.taking_gradients(self.model, self.masters):
            for place, (batch, share) in enumerate(zip(part.packed, part.shares, strict=True)):
                scores = self.score(batch, self.config.trial.sampling.temperature)
                own = self._logp_old(part, place, scores)
                tokens = Tokens(
                    logp_new=scores.logp,
                    logp_old=batch.logp_sampler if own is None else own,
                    advantage=data.advantages[batch.step],
                    share=share,
                    logp_ref=batch.logp_ref,
                    logp_sampler=None if own is None else batch.logp_sampler,
                    entropy=self._entropy(batch, scores, options),
                )
                loss, found = policy_loss(tokens, options)
                if self.critic is not None and data.targets is not None:
                    critic = self._critic_loss(batch, scores, data.targets, spans)
                    value_part = value_part + critic.detach()
                    loss = loss + VALUE_WEIGHT * critic
                apart = apart + (scores.logp.detach() - batch.logp_sampler).abs().sum()
                sums.append(found)
                loss.backward()  # type: ignore[no-untyped-call]
        return sums, apart, value_part

    def _entropy(self, batch: MicroBatch, scores: Scores, options: LossOptions) -> Tensor:
        """Of each token, with a gradient where the bonus is meant."""
        if not options.entropy_weight:
            return scores.entropy.detach()
        if self.config.algo.reflection_entropy:
            return scores.entropy
        return torch.where(batch.reflects, scores.entropy.detach(), scores.entropy)

    def _shares(self, packed: list[MicroBatch]) -> list[Tensor]:
        """Each token's share of the whole step, cut into the micro-batches. Computed on the host, which knows all."""
        spans = [span for batch in packed for span in batch.spans]
        sizes = np.array([len(span.ids) for span in spans])
        step, trial = (
            torch.from_numpy(np.repeat(np.array([getattr(span, name) for span in spans]), sizes))
            for name in ("step", "trial")
        )
        # All tokens count alike, those of reflections too, as in LaMer's and MAGE's scripts.
        shares = token_shares(step, trial, torch.ones(len(step)))
        return list(torch.split(shares.to(self.device), [len(batch.target) for batch in packed]))

    def _critic_loss(self, batch: MicroBatch, scores: Scores, targets: Tensor, spans: int) -> Tensor:
        """A micro-batch's part of the mean over the `spans` of the minibatch."""
        assert self.critic is not None
        values = self.critic(scores.hidden[batch.first].float())
        share = torch.full((len(values),), 1.0 / spans, device=self.device)
        return value_loss(values, targets[batch.step[batch.first]], share)

    @_only_once()
    def _apply(self, loss: Tensor, optimisers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
        """Clip and step, unless loss or gradient is not finite."""
        parameters = [p for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]]
        clipped = torch.nn.utils.clip_grad_norm_(parameters, GRAD_CLIP)
        found, norm = torch.stack([loss.float(), clipped.float()]).tolist()
        if math.isfinite(found) and math.isfinite(norm):
            for optimiser in optimisers:
                optimiser.step()
            for parameter in parameters:  # which fused steps do not do themselves; engines look at it
                torch.autograd.graph.increment_version(parameter)
            self.follow_masters()
            self.bad_in_a_row = 0
            return {"grad_norm": norm, "skipped": 0.0}
        self.bad_in_a_row += 1
        self.last_bad = f"loss {found}, gradient norm {norm}"
        return {"grad_norm": 0.0, "skipped": 1.0}

    def _end_if_hopeless(self) -> None:
        """Called when a bad step's batch has been kept."""
        if self.bad_in_a_row >= MAX_BAD_STEPS:
            raise MulliganError(
                f"the loss was not finite in {self.bad_in_a_row} steps in a row ({self.last_bad}); "
                "a lower learning rate is the usual way out; batches of updates are kept under bad/ in the run folder"
            )

    def supervised(self, rows: Sequence[Row], lr: float, optimisers: Sequence[torch.optim.Optimizer]) -> float:
        """One step of maximum likelihood on the spans of `rows` (the warm start); returns the loss per token."""
        self.budget.proceed()
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = lr
        total = self._fitting(lambda: self._supervised_gradients(rows))
        self._apply(total, optimisers)
        self._end_if_hopeless()
        return float(total)

    def _supervised_gradients(self, rows: Sequence[Row]) -> Tensor:
        """Returns the loss per token."""
        self.model.train(is_checkpointed(self.model))  # which alone needs it
        self._no_gradient()
        packed = self._packed(rows)
        count = sum(len(batch.target) for batch in packed)
        total = torch.zeros((), device=self.device)
        with masters.taking_gradients(self.model, self.masters):
            for batch in packed:
                loss = -self.score(batch, 1.0).logp.sum() / count
                loss.backward()  # type: ignore[no-untyped-call]
                total = total + loss.detach()
        return total


def _has_compiler(device: torch.device) -> bool:
    """Whether layers can be compiled for a GPU."""
    from torch.utils._triton import has_triton

    return device.type == "cuda" and has_triton()


def _note(packed: Sequence[MicroBatch], name: str, logp: Sequence[Tensor]) -> None:
    """Write log-probabilities of micro-batches onto their spans."""
    if not packed:
        return
    whole = torch.cat(list(logp)).tolist()
    start = 0
    for batch in packed:
        for span in batch.spans:
            setattr(span, name, whole[start : start + len(span.ids)])
            start += len(span.ids)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or lacks_memory(str(error))
