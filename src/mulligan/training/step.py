"""One update of the weights: from rows and advantages to optimiser steps.

An update has `epochs` × `minibatches` optimiser steps. A step whose loss is not finite is skipped. When memory runs
out over the gradients, micro-batches are halved and the gradients are computed again (`Budget`). The host reads nothing
back from a GPU until the micro-batches of a step are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._triton import has_triton

from mulligan.algo.loss import Tokens, policy_loss, summarise, value_loss
from mulligan.errors import DeviceLost, MulliganError, lacks_memory
from mulligan.models.attention import compile_layers, is_never_padded, use_plans
from mulligan.models.load import is_checkpointed
from mulligan.training import masters, optimisers
from mulligan.training.config import Config
from mulligan.training.head import Head, Scores
from mulligan.training.pack import Budget, MicroBatch, note, pack, token_budget
from mulligan.training.processes import Processes, Shards
from mulligan.training.rows import SETTLING_ALIKE, Row, dealt, settling_rows

Result = TypeVar("Result")
SMALLEST_BUDGET = 64
"""Micro-batches of so many tokens are not halved again: running out of memory is then an error."""
GRAD_CLIP = 1.0
"""Norm that gradients are clipped to, in the warm start too; as in LaMer's and MAGE's scripts."""
MAX_BAD_STEPS = 3
"""Steps in a row with a loss that is not finite, before the run stops: one bad batch may be chance."""
VALUE_WEIGHT, VALUE_LR = 0.5, 1e-3
"""Weight of the critic's loss and learning rate of its heads (ppo). The heads start from zero and are small, so that
their rate is far above that of the weights."""


@dataclass(frozen=True, slots=True)
class UpdateData:
    """The data of an update."""

    rows: Sequence[Row]
    advantages: Tensor
    """[step]"""
    targets: Tensor | None = None
    """[step, head] of the critic."""


class _Counts(NamedTuple):
    """What is in an optimiser step."""

    tokens: int
    spans: int


@dataclass(slots=True)
class _Minibatch:
    """Rows of one optimiser step, packed once for all passes over them."""

    rows: list[Row]
    budget: int = 0
    """Tokens of a micro-batch that it is packed for; 0 before it is packed."""
    packed: list[MicroBatch] = field(default_factory=list)
    old: list[Tensor] = field(default_factory=list)
    """Each micro-batch's [K] log-probabilities in the first pass: logp_old of the update's first minibatch."""


class Learner:
    """The model with its optimiser; knows tokens and advantages, and nothing of trials or estimators."""

    def __init__(
        self,
        model: Any,
        config: Config,
        heads: int = 0,
        *,
        processes: Processes | None = None,
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
        for layer in model.modules():  # the sampled and the trained policy must be the same
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        self.model, self.config, self.processes = model, config, processes or Processes()
        self.schedule = optimisers.Schedule(config.run.updates)
        """A checkpoint replaces it by the one that the run began with."""
        weight = next(model.parameters())
        self.device = weight.device
        if uses_own_logp is None:
            # Trials that began before the last update were drawn from other weights, whatever the numerics.
            other_numerics = weight.is_cuda or weight.dtype != torch.float32 or config.engine.kind == "vllm"
            uses_own_logp = other_numerics or config.run.staleness > 0
        self.uses_own_logp = uses_own_logp
        self.budget = Budget(
            config.optim.tokens
            or token_budget(model.config, self.device, checkpointing=config.model.gradient_checkpointing)
        )
        is_padded = not is_never_padded(self.device, model.dtype)
        self.shares_openings = not is_padded if shares_openings is None else shares_openings
        self.bad_in_a_row = 0
        compiled = (self.device.type == "cuda" and has_triton()) if compiles is None else compiles
        self.head = Head(model, compiled, backend)
        if compiled:
            compile_layers(model, backend)
        size = model.config.hidden_size
        self.critic = torch.nn.Linear(size, heads, device=self.device) if heads else None
        for parameter in self.critic.parameters() if self.critic is not None else ():
            torch.nn.init.zeros_(parameter)
        self.reference: dict[str, Tensor] = {}
        self.masters = masters.copies(model)
        self.shards: Shards | None = None
        """What is stepped instead of weights or masters, where several processes share the optimiser."""
        self.optimiser = optimisers.for_updates(self.weights(), self.critic, config, fused=self.device.type == "cuda")
        if compiled:
            self._compile()

    def _compile(self) -> None:
        """Compile on rows that are the same in every process.

        The compiler tunes its code to the first sizes that it sees. Were those the sizes of real rows, a resumed run
        would begin with other code than the run that was left alone, and round differently.
        """
        few, self.head.few = self.head.few, 0  # its slices are compiled too, however few the logits are
        temperatures = dict.fromkeys((1.0, self.config.trial.sampling.temperature))  # of the warm start, and of updates
        for count_alike in (0, SETTLING_ALIKE):
            for batch, temperature in product(self._packed(settling_rows(count_alike)), temperatures):
                self._settle(batch, temperature)
        self.head.few = few
        self._no_gradient()
        self.model.eval()

    def _settle(self, batch: MicroBatch, temperature: float) -> None:
        """Pass a micro-batch through all that is compiled: without gradients, and with them, by either loss."""
        self.model.eval()
        with torch.no_grad():
            self.head.score(batch, temperature)
        self.model.train(is_checkpointed(self.model))
        with masters.taking_gradients(self.model, self.masters):
            for has_bonus in (False, True):
                scores = self.head.score(batch, temperature)
                loss = scores.logp.sum() + scores.entropy.sum() if has_bonus else scores.logp.sum()
                loss.backward()  # type: ignore[no-untyped-call]

    @property
    def tokens(self) -> int:
        """The most tokens of a micro-batch."""
        return self.budget.tokens

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """The trained weights of the model by name, or their float32 copies."""
        return {
            name: self.masters.get(name, each) for name, each in self.model.named_parameters() if each.requires_grad
        }

    def divide(self) -> None:
        """From now on several processes share the optimiser, and step together; before, each does the same alone."""
        if self.processes.count == 1 or self.shards is not None:
            return
        self.shards = Shards(self.weights(), self.processes)
        self.masters = masters.without_values(self.masters)
        self.optimiser = optimisers.for_updates(self.shards.parts, None, self.config, fused=False)

    @contextmanager
    def whole_weights(self) -> Iterator[Mapping[str, Tensor]]:
        """Inside, the trained weights by name, in the precision in which they are stepped."""
        if self.shards is None:
            yield self.weights()
            return
        with self.shards.whole() as weights:
            yield weights

    def warm_optimisers(self) -> list[torch.optim.Optimizer]:
        """The optimisers of the warm start; updates begin with a fresh one."""
        fused = self.device.type == "cuda"
        return optimisers.for_warm_start(self.model, self.weights(), self.config, fused=fused)

    def reference_weights(self) -> dict[str, Tensor]:
        """A copy of the weights as they are now, as `reference` holds those that KL is measured to."""
        return {name: each.detach().clone() for name, each in self.model.named_parameters() if each.requires_grad}

    def look_over(self, rows: Sequence[Row], steps: int, update: int) -> Tensor | None:
        """Compute logp_old and logp_ref before the first step of an update, and write them onto the spans.

        The pass of the first step gives logp_old of its own rows. Returns the critic's values [step, head], if there is
        a critic.
        """
        self.budget.proceed()
        return self._fitting(lambda: self._look_over(rows, steps, update))

    @torch.no_grad()
    def _look_over(self, rows: Sequence[Row], steps: int, update: int) -> Tensor | None:
        self.model.eval()
        temperature, critic = self.config.trial.sampling.temperature, self.critic
        later = self._later_rows(rows, update) if self.uses_own_logp else []
        rows = self._own(rows)
        values = None if critic is None else torch.zeros(steps, critic.out_features, device=self.device)
        packed = self._packed(rows if critic is not None or self.config.algo.kl_weight else later)
        if later or critic is not None:
            logps = []
            for batch in packed:
                scores = self.head.score(batch, temperature)
                logps.append(scores.logp)
                if values is not None and critic is not None:
                    values[batch.step[batch.first]] = critic(scores.hidden[batch.first].float())
            if self.uses_own_logp:
                note(packed, "old", logps)
        if self.config.algo.kl_weight:
            with self._reference_weights():
                note(packed, "reference", [self.head.score(batch, temperature).logp for batch in packed])
        return values

    @contextmanager
    def _reference_weights(self) -> Iterator[None]:
        """Inside, the model has the reference weights."""
        assert self.reference, "the weights that KL is measured to are loaded before the first update"
        current, parameters = self.reference_weights(), dict(self.model.named_parameters())
        try:
            for name, weight in self.reference.items():
                parameters[name].copy_(weight)
            yield
        finally:
            for name, weight in current.items():
                parameters[name].copy_(weight)

    @torch.enable_grad()  # an environment may have turned gradients off
    def update(self, data: UpdateData, *, update: int) -> dict[str, float]:
        """All optimiser steps of one update; returns the metrics of the last pass.

        `sampler/mismatch` is the mean |logp_new - logp_sampler| before the first step: about 0 where sampler and
        trainer share the model.
        """
        optim, algo = self.config.optim, self.config.algo
        factor = self.schedule.rate(update, optim)
        for group, rate in zip(self.optimiser.param_groups, (optim.lr, VALUE_LR), strict=False):
            group["lr"] = rate * factor
        entropy_weight = self.schedule.entropy_weight(update, algo)
        minibatches = [_Minibatch(rows) for rows in self._minibatches(data.rows, update)]
        metrics: dict[str, float] = {}
        mismatches, skipped = [], 0.0
        for _ in range(optim.epochs):
            steps = [step for minibatch in minibatches if (step := self._step(minibatch, data, entropy_weight))]
            mismatches += [step.pop("mismatch") for step in steps]
            skipped += sum(step["skipped"] for step in steps)
            metrics = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        metrics["sampler/mismatch"] = metrics.get("sampler/mismatch", mismatches[0])
        return {**metrics, "skipped": skipped, "lr": self.optimiser.param_groups[0]["lr"]}

    def _minibatches(self, rows: Sequence[Row], update: int) -> list[list[Row]]:
        return [self._own(part) for part in dealt(rows, self.config.optim.minibatches, self.config.run.seed, update)]

    def _own(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that this process trains on: trials are dealt out among the processes."""
        rank, count = self.processes.rank, self.processes.count
        return [row for row in rows if row.spans[0].trial % count == rank]

    def _later_rows(self, rows: Sequence[Row], update: int) -> list[Row]:
        """The rows after the update's first step."""
        return [row for part in self._minibatches(rows, update)[1:] for row in part]

    def _step(self, minibatch: _Minibatch, data: UpdateData, entropy_weight: float) -> dict[str, float]:
        """One optimiser step: its gradients in micro-batches that fit, and then the step itself, once.

        Returns its metrics; none where there are more minibatches than trials, and this one has no rows.
        """
        counts = self._counts(minibatch.rows)
        if not counts.tokens:
            return {}
        sums, mismatch, value_part = self._fitting(lambda: self._gradients(minibatch, data, entropy_weight, counts))
        if self.shards is not None:
            self.shards.take_gradients(self._carriers())
            sums, mismatch = self._of_all(sums, mismatch)
        applied = self._apply(torch.stack([each["loss"] for each in sums]).sum(), [self.optimiser])
        metrics = summarise(sums)
        # Before the first step of an update both have the same weights: the rest is what their numerics differ by.
        metrics["mismatch"] = float(mismatch) / counts.tokens
        if self.critic is not None:
            metrics["value_loss"] = float(value_part)
        return {**metrics, **applied}

    def _counts(self, rows: Sequence[Row]) -> _Counts:
        """Of the rows of a minibatch, in all processes."""
        spans = [span for row in rows for span in row.spans]
        counts = self.processes.gathered((sum(len(span.ids) for span in spans), len(spans)))
        return _Counts(*(sum(each) for each in zip(*counts, strict=True)))

    def _carriers(self) -> dict[str, torch.nn.Parameter]:
        """Where the gradients of each weight are."""
        return {**dict(self.model.named_parameters()), **self.masters}

    def _of_all(self, sums: list[dict[str, Tensor]], mismatch: Tensor) -> tuple[list[dict[str, Tensor]], Tensor]:
        """The sums of all processes, of which some may have no rows."""
        sums_here = ([{name: float(value) for name, value in each.items()} for each in sums], float(mismatch))
        gathered = self.processes.gathered(sums_here)
        everyones = [each for parts, _ in gathered for each in parts]
        as_tensors = [{name: torch.tensor(value) for name, value in each.items()} for each in everyones]
        return as_tensors, torch.tensor(sum(value for _, value in gathered))

    def _fitting(self, work: Callable[[], Result]) -> Result:
        """`work`, repeated with smaller micro-batches for as long as memory runs out."""
        while True:
            try:
                return work()
            except RuntimeError as error:
                if not out_of_memory(error) or self.tokens <= SMALLEST_BUDGET:
                    raise
            # Out here the error is gone, and with it the tensors that its traceback held.
            self.budget.halve()
            self._no_gradient()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _no_gradient(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        for parameter in (*self.model.parameters(), *self.masters.values()):
            parameter.grad = None

    def _packed(self, rows: Sequence[Row]) -> list[MicroBatch]:
        return pack(rows, self.tokens, self.device, share=self.shares_openings)

    def _pack(self, minibatch: _Minibatch) -> None:
        """Pack a minibatch, again where micro-batches have become smaller."""
        if minibatch.budget == self.tokens:
            return
        if len(minibatch.old) == len(minibatch.packed):  # the first pass was finished
            note(minibatch.packed, "old", minibatch.old)
        minibatch.old = []
        minibatch.packed = self._packed(minibatch.rows)
        minibatch.budget = self.tokens

    def _logp_old(self, minibatch: _Minibatch, number: int, scores: Scores) -> Tensor | None:
        """The trainer's log-probabilities of a micro-batch before the update; None where the sampler's are used."""
        given = minibatch.packed[number].logp_old
        if given is not None or not self.uses_own_logp:
            return given
        if number == len(minibatch.old):
            minibatch.old.append(scores.logp.detach())
        return minibatch.old[number]

    def _gradients(
        self, minibatch: _Minibatch, data: UpdateData, entropy_weight: float, counts: _Counts
    ) -> tuple[list[dict[str, Tensor]], Tensor, Tensor]:
        """The gradients of a minibatch. Returns the sums of `policy_loss` for each micro-batch, Σ |logp_new -
        logp_sampler|, and the critic's loss. `counts` are those of all processes, which step together.
        """
        self.model.train(is_checkpointed(self.model))  # only checkpointing needs it
        self._no_gradient()
        if len(minibatch.old) < len(minibatch.packed):
            minibatch.old = []  # of a first pass that was not finished
        self._pack(minibatch)
        sums: list[dict[str, Tensor]] = []
        value_part = mismatch = torch.zeros((), device=self.device)
        with masters.taking_gradients(self.model, self.masters):
            for number, batch in enumerate(minibatch.packed):
                scores = self.head.score(batch, self.config.trial.sampling.temperature)
                logp_old = self._logp_old(minibatch, number, scores)
                # Of another player's tokens the ratio is 1: they were not drawn from any policy of the model.
                is_own, logp_now = ~batch.logp_sampler.isnan(), scores.logp.detach()
                logp_sampler = torch.where(is_own, batch.logp_sampler, logp_now)
                logp_old = None if logp_old is None else torch.where(is_own, logp_old, logp_now)
                tokens = Tokens(
                    logp_new=scores.logp,
                    logp_old=logp_sampler if logp_old is None else logp_old,
                    advantage=data.advantages[batch.step],
                    share=1.0 / counts.tokens,  # all tokens count alike, as in LaMer's and MAGE's scripts
                    logp_ref=batch.logp_ref,
                    logp_sampler=None if logp_old is None else logp_sampler,
                    entropy=self._entropy(batch, scores, entropy_weight),
                )
                loss, loss_sums = policy_loss(tokens, self.config.algo.kl_weight, entropy_weight)
                if self.critic is not None and data.targets is not None:
                    values, targets = self.critic(scores.hidden[batch.first].float()), data.targets
                    critic_loss = value_loss(values, targets[batch.step[batch.first]], 1.0 / counts.spans)
                    value_part = value_part + critic_loss.detach()
                    loss = loss + VALUE_WEIGHT * critic_loss
                mismatch = mismatch + (logp_now - logp_sampler).abs().sum()
                sums.append(loss_sums)
                loss.backward()  # type: ignore[no-untyped-call]
        return sums, mismatch, value_part

    def _entropy(self, batch: MicroBatch, scores: Scores, entropy_weight: float) -> Tensor:
        """The entropy of each token, with a gradient where it gets the bonus."""
        if not entropy_weight:
            return scores.entropy.detach()
        if self.config.algo.reflection_entropy:
            return scores.entropy
        return torch.where(batch.reflects, scores.entropy.detach(), scores.entropy)

    def _apply(self, loss: Tensor, optimisers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
        """Clip and step, unless loss or gradient is not finite; too many such steps in a row end the run.

        Out of memory in here is fatal: some weights may already have changed, so that the run restarts from its
        checkpoint.
        """
        parameters = [p for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]]
        try:
            clipped = torch.nn.utils.clip_grad_norm_(parameters, GRAD_CLIP)
            clipped = clipped.full_tensor().to(loss.device) if isinstance(clipped, DTensor) else clipped
            loss_value, norm = torch.stack([loss.float(), clipped.float()]).tolist()
            if math.isfinite(loss_value) and math.isfinite(norm):
                for optimiser in optimisers:
                    optimiser.step()
                if self.shards is not None:
                    with self.shards.whole() as weights:
                        masters.follow(self.model, weights)
                else:
                    for parameter in parameters:  # fused steps count no write, by which engines notice new weights
                        torch.autograd.graph.increment_version(parameter)
                    masters.follow(self.model, self.masters)
                self.bad_in_a_row = 0
                return {"grad_norm": norm, "skipped": 0.0}
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise DeviceLost(
                f"memory ran out in the optimiser's step ({reason}), where smaller micro-batches do not help; continue "
                "with --resume (in Python resume=True) when other processes leave more memory, take a smaller "
                "engine.slots, or train an adapter (model.lora_rank)"
            ) from None
        self.bad_in_a_row += 1
        if self.bad_in_a_row >= MAX_BAD_STEPS:
            raise MulliganError(
                f"the loss was not finite in {self.bad_in_a_row} steps in a row (loss {loss_value}, gradient norm "
                f"{norm}); a lower learning rate is the usual way out"
            )
        return {"grad_norm": 0.0, "skipped": 1.0}

    @torch.enable_grad()
    def supervised(self, rows: Sequence[Row], lr: float, optimisers: Sequence[torch.optim.Optimizer]) -> float:
        """One step of maximum likelihood on the spans of `rows` (the warm start); returns the loss per token."""
        self.budget.proceed()
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = lr
        total = self._fitting(lambda: self._supervised_gradients(rows))
        self._apply(total, optimisers)
        return float(total)

    def _supervised_gradients(self, rows: Sequence[Row]) -> Tensor:
        """Returns the loss per token."""
        self.model.train(is_checkpointed(self.model))  # only checkpointing needs it
        self._no_gradient()
        packed = self._packed(rows)
        count = sum(len(batch.target) for batch in packed)
        total = torch.zeros((), device=self.device)
        with masters.taking_gradients(self.model, self.masters):
            for batch in packed:
                loss = -self.head.score(batch, 1.0).logp.sum() / count
                loss.backward()  # type: ignore[no-untyped-call]
                total = total + loss.detach()
        return total


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or lacks_memory(str(error))
