"""One update of weights that a Tinker server has: from rows and advantages to `forward_backward` and `optim_step`.

The server knows PPO's clipped loss over tokens; what else the update is, goes into the advantages that it is sent:

    A' = A · w · share        w = min(exp(logp_old - logp_sampler), C)        share = 1 / sampled tokens of the step

w ≥ 0 may stand inside the minimum of PPO's loss. Tinker's servers add up the losses of all tokens. SkyRL's on JAX
divides each row's sum by the row's length and the step's sum by its number of rows: `share` then has both as factors.
Which of the two a server does is measured when a run begins (`_measured_reduction`).

Before the first step of an update the server computes logp_old (`forward`). Each `forward_backward` is awaited before
the step is asked for: where gradients were lost there is no step (`UpdateLost`), and the run goes on from its last
checkpoint with another model of the server (`renew`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from itertools import count
from typing import Any, Literal

import httpx
import torch
from torch import Tensor

from mulligan.algo.loss import (
    CLIP_HIGH,
    CLIP_LOW,
    LARGEST_LOG_RATIO,
    LARGEST_SAMPLER_WEIGHT,
    Tokens,
    policy_loss,
    summarise,
)
from mulligan.engine.tinker import PATIENCE, TinkerEngine, connect, first_line, retry_config
from mulligan.errors import MulliganError, RequestFailed, UsageError
from mulligan.training.config import Config
from mulligan.training.optimisers import BETA1, Schedule
from mulligan.training.processes import Processes
from mulligan.training.rows import Row, Span, dealt
from mulligan.training.step import GRAD_CLIP, UpdateData

Reduction = Literal["sum", "rows"]
"""Of the tokens' losses: added up, or averaged within each row and then over rows."""
LOOK_EVERY = 10.0
"""Seconds between two looks at whether a server that computes for long is still there."""
LONGEST = 3600.0
"""Seconds after which an answer no longer comes: the request was lost."""
EPS = 1e-8
"""AdamW's, as in torch."""


class UpdateLost(MulliganError):
    """The server lost a part of an update, so that only what was saved before counts."""

    def __init__(self, loss: str) -> None:
        """loss: what was lost, and why."""
        self.loss = loss
        super().__init__(
            f"{loss}; the weights are those of the last checkpoint: continue with --resume (in Python resume=True)"
        )


class RemoteLearner:
    """A training client, its sampling client, and what a run asks of a learner."""

    tokens = 0
    """Micro-batches are the server's."""
    critic = None
    processes = Processes()
    """One alone: the server divides what is large."""

    def __init__(self, config: Config, *, context: int, slots: int = 0) -> None:
        """A new model on the server; `context` and `slots` are the engine's. `begin` or `load` comes next."""
        self.config, self.schedule, self.device = config, Schedule(config.run.updates), torch.device("cpu")
        self.url, self.base = config.backend.url, config.model.name.removeprefix("hf:")
        self.service = connect(self.url)
        self.client = self._created()
        self.engine = TinkerEngine(None, slots=slots or config.engine.slots, context=context)
        self.reduction: Reduction = "sum"
        self.vocabulary = 0
        """Tokens that a model has, for probes; 0 before the run begins."""
        self.copies = count()
        """Numbers of copies: a server takes each name of a model once."""

    def begin(self, vocabulary: int) -> None:
        """Measure how the server adds up losses, with tokens below `vocabulary`, and leave the weights as they were."""
        self.vocabulary = vocabulary
        start = self.saved("start")["state"]
        self._clear_gradients()
        self.reduction = self._measured_reduction()
        self.load(start)

    def renew(self) -> None:
        """Take another model of the server in place of one that lost an update. `load` comes next."""
        with suppress(RequestFailed):
            self.engine.settle()
        self.engine.under_way.clear()
        self.close()
        self.service = connect(self.url)
        self.client = self._created()
        self._clear_gradients()

    def close(self) -> None:
        """Free the server's memory: it would keep the model for minutes, and some servers have room for few."""
        from tinker import types
        from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

        async def unload() -> None:
            with self.client.holder.aclient(ClientConnectionPoolType.TRAIN) as client:
                await client.models.unload(request=types.UnloadModelRequest(model_id=self.client.model_id))

        with suppress(Exception):
            self.client.holder.run_coroutine_threadsafe(unload()).result(timeout=LOOK_EVERY)

    def _created(self) -> Any:
        rank = self.config.backend.rank
        try:
            return self.service.create_lora_training_client(base_model=self.base, rank=rank, seed=self.config.run.seed)
        except Exception as error:
            trained = f"an adapter of rank {rank} on" if rank else "all weights of"
            raise UsageError(
                f"the Tinker server at {self.url} does not train {trained} {self.base} ({first_line(error)}); "
                "backend.rank is the adapter's rank, 0 trains all weights"
            ) from error

    def look_over(self, rows: Sequence[Row], steps: int, update: int) -> None:
        """Write the trainer's own log-probabilities before the update onto the spans; there is no critic."""
        self.engine.settle()
        data = [datum(row, [0.0] * _sampled(row)) for row in rows]
        for row, logps in zip(rows, self._passed("forward", data), strict=True):
            for span in row.spans:
                span.old = _within(span, logps)

    def update(self, data: UpdateData, *, update: int) -> dict[str, float]:
        """All optimiser steps of an update; then the sampler gets the weights. Returns the metrics of the last pass."""
        optim = self.config.optim
        rate = optim.lr * self.schedule.rate(update, optim)
        minibatches = dealt(data.rows, optim.minibatches, self.config.run.seed, update)
        metrics: dict[str, float] = {}
        for _ in range(optim.epochs):
            steps = [self._step(rows, data.advantages, rate) for rows in minibatches if rows]
            metrics = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        self.publish()
        return {**metrics, "skipped": 0.0, "lr": rate}

    def _step(self, rows: Sequence[Row], advantages: Tensor, rate: float) -> dict[str, float]:
        from tinker import types

        tokens = _tokens(rows, advantages)
        assert tokens.logp_sampler is not None
        weight = (tokens.logp_old - tokens.logp_sampler).clamp(max=LARGEST_LOG_RATIO).exp()
        sent = (tokens.advantage * weight.clamp(max=LARGEST_SAMPLER_WEIGHT) * tokens.share).tolist()
        data, begin = [], 0
        for row in rows:
            end = begin + _sampled(row)
            factor = 1.0 if self.reduction == "sum" else len(rows) * (len(row.ids) - 1)
            data.append(datum(row, [factor * each for each in sent[begin:end]]))
            begin = end
        clip = {"clip_low_threshold": 1.0 - CLIP_LOW, "clip_high_threshold": 1.0 + CLIP_HIGH}
        logps = self._passed("forward_backward", data, loss_fn="ppo", loss_fn_config=clip)
        new = [
            row_logps[span.start - 1 : span.start - 1 + len(span.ids)]
            for row, row_logps in zip(rows, logps, strict=True)
            for span in row.spans
        ]
        _, sums = policy_loss(tokens._replace(logp_new=torch.tensor([each for span in new for each in span])))
        metrics = summarise([sums])
        if not math.isfinite(metrics["loss"]):
            raise MulliganError(
                f"the loss that the Tinker server computed is not finite ({metrics['loss']}); continue with --resume "
                "(in Python resume=True), or begin another run with a lower learning rate"
            )
        adam = types.AdamParams(
            learning_rate=rate,
            beta1=BETA1,
            beta2=self.config.optim.beta2,
            eps=EPS,
            weight_decay=self.config.optim.weight_decay,
            grad_clip_norm=GRAD_CLIP,
        )
        return metrics | _gradient_norm(self._answer(self.client.optim_step(adam), "optim_step"))

    def _passed(self, call: str, data: list[Any], **options: Any) -> list[list[float]]:
        """The log-probabilities of each datum's targets, from a pass that may leave gradients."""
        options = {"loss_fn": "importance_sampling", **options}
        output = self._answer(getattr(self.client, call)(data, **options), call)
        logps = [each["logprobs"].data for each in output.loss_fn_outputs]
        lengths = [each.model_input.length for each in data]
        if [len(each) for each in logps] != lengths:
            raise self._lost(call, f"{sum(map(len, logps))} log-probabilities for {sum(lengths)} tokens")
        return logps

    def _answer(self, future: Any, call: str) -> Any:
        """What a call of the training client gives; raises where the server is away, or has lost the call."""
        began = seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=LOOK_EVERY)
            except (NotYet, TimeoutError) as error:
                now = time.monotonic()
                if future.future().done() or now - began > LONGEST:
                    raise self._lost(call, first_line(error)) from error
                if _is_there(self.url):
                    seen = now
                elif now - seen > PATIENCE:
                    raise self._lost(call, f"it is away since {now - seen:.0f} s") from error
            except Exception as error:
                raise self._lost(call, first_line(error)) from error

    def _lost(self, call: str, reason: str) -> UpdateLost:
        return UpdateLost(f"the Tinker server at {self.url} lost {call} ({reason})")

    def publish(self) -> None:
        """Have the sampler draw from the weights as they are now."""
        self.engine.settle()
        try:
            client = self.client.save_weights_and_get_sampling_client(retry_config=retry_config())
        except Exception as error:
            raise self._lost("save_weights_for_sampler", first_line(error)) from error
        self.engine.use(client)

    def saved(self, name: str) -> dict[str, str]:
        """Have the server save weights with the optimiser ("state"), and for sampling; returns what it calls them."""
        state = self._answer(self.client.save_state(name), "save_state")
        sampler = self._answer(self.client.save_weights_for_sampler(name), "save_weights_for_sampler")
        return {"state": str(state.path), "sampler": str(sampler.path)}

    def copy_from(self, other: RemoteLearner) -> None:
        """Take the weights and the optimiser of another model of the server."""
        self.load(other.saved(f"copied-{next(other.copies)}")["state"])

    def load(self, path: str) -> None:
        """Have the server load weights and optimiser that it has saved, and draw from them."""
        self._answer(self.client.load_state_with_optimizer(path), "load_state")
        self.publish()

    def _clear_gradients(self) -> None:
        """Use up what an earlier model may have left: SkyRL on JAX frees its place, and keeps the place's gradients."""
        self._probed(8)

    def _measured_reduction(self) -> Reduction:
        """Whether losses are added up: the gradient of one token then stays as it is in a longer row.

        A row of 8 tokens, then of 24, beside one of 16 without advantage; averaged within rows the second gradient is a
        third of the first. A server that tells no norm of gradients is taken at its protocol's word.
        """
        short, long = self._probed(8), self._probed(24)
        ratio = short / long if long else math.nan
        if abs(ratio - 1.0) < 0.05:
            return "sum"
        if abs(ratio - 3.0) < 0.15:
            return "rows"
        raise UsageError(
            f"the Tinker server at {self.url} averages gradients in a way that is not known: that of one token is "
            f"{ratio:.3g} times as large in a row of 8 as in one of 24 (1 for sums of tokens, 3 for means of rows)"
        )

    def _probed(self, length: int) -> float:
        """The norm of the gradients of a row of so many tokens, after a step of rate 0; 1 where no norm is told."""
        from tinker import types

        ids = [number % self.vocabulary for number in range(25)]
        rows = [_probe(ids[: length + 1], 1.0, self.vocabulary), _probe(ids[:17], 0.0, self.vocabulary)]
        self._passed("forward_backward", rows)
        output = self._answer(self.client.optim_step(types.AdamParams(learning_rate=0.0)), "optim_step")
        return _gradient_norm(output).get("grad_norm", 1.0)


def datum(row: Row, advantages: Sequence[float]) -> Any:
    """A row as the server takes it. advantages: of its sampled tokens; all others have none."""
    count = len(row.ids) - 1
    logps, sent, given = [0.0] * count, [0.0] * count, iter(advantages)
    for span in row.spans:
        old = span.old if span.old is not None else span.logprobs
        for position, logp in enumerate(old or [0.0] * len(span.ids), span.start - 1):
            logps[position], sent[position] = logp, next(given)
    return _datum(row.ids, logps, sent)


def _datum(ids: Sequence[int], logps: list[float], advantages: list[float]) -> Any:
    from tinker import types

    def tensor(values: list[Any], dtype: Literal["int64", "float32"]) -> Any:
        return types.TensorData(data=values, dtype=dtype, shape=[len(values)])

    return types.Datum(
        model_input=types.ModelInput.from_ints(list(ids[:-1])),
        loss_fn_inputs={
            "target_tokens": tensor(list(ids[1:]), "int64"),
            "logprobs": tensor(logps, "float32"),
            "advantages": tensor(advantages, "float32"),
        },
    )


def _probe(ids: list[int], advantage: float, vocabulary: int) -> Any:
    """A row whose third token has an advantage; its ratio is about 1 in a model that knows nothing."""
    count = len(ids) - 1
    return _datum(ids, [-math.log(vocabulary)] * count, [advantage * (position == 2) for position in range(count)])


def _within(span: Span, logps: list[float]) -> list[float]:
    """Of a row's targets those of a span; the first target is the row's second token."""
    return logps[span.start - 1 : span.start - 1 + len(span.ids)]


def _sampled(row: Row) -> int:
    return sum(len(span.ids) for span in row.spans)


def _tokens(rows: Sequence[Row], advantages: Tensor) -> Tokens:
    """The sampled tokens of a step, before it."""
    spans = [span for row in rows for span in row.spans]
    old = torch.tensor([logp for span in spans for logp in span.old or ()])
    sampler = torch.tensor([logp for span in spans for logp in span.logprobs or span.old or ()])
    steps = [span.step for span in spans for _ in span.ids]
    return Tokens(old, old, advantages[steps], 1.0 / len(old), logp_sampler=sampler)


def _gradient_norm(output: Any) -> dict[str, float]:
    """``grad_norm``, where the server tells it."""
    metrics: Mapping[str, float] = output.metrics or {}
    norms = [float(value) for name, value in metrics.items() if name.rpartition("/")[2] == "grad_norm"]
    return {"grad_norm": norms[0]} if norms else {}


def _is_there(url: str) -> bool:
    try:
        httpx.get(f"{url.rstrip('/')}/api/v1/healthz", timeout=LOOK_EVERY)
    except httpx.HTTPError:
        return False
    return True
