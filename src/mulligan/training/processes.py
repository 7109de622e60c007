"""The processes of a training run: one alone, or several that torchrun has started.

Each plays its share of an update's groups and trains on its share of the rows; trials, advantages and the loss's
denominator are those of all of them together, so that N processes step as one would. Each has the whole weights, since
it samples with them; the optimiser's float32 copies and moments are divided among them (FSDP2). The first process
alone writes the run folder, but for each one's part of the optimiser.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from mulligan.errors import MulliganError, RunFolderError, UsageError
from mulligan.training.config import Config

Item = TypeVar("Item")
PATIENCE = timedelta(hours=2)
"""A process may wait so long for another one, which plays longer trials. One that has died is noticed at once."""


class Processes:
    """One process alone."""

    rank, count = 0, 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This process's part of them: every `count`-th."""
        return items[self.rank :: self.count]

    def dealt(self, parts: Sequence[Sequence[Item]]) -> list[Item]:
        """What was dealt out by `share`, in its order."""
        items: list[Item] = [cast(Item, None)] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            items[rank :: self.count] = part
        return items

    def gathered(self, value: Item) -> list[Item]:
        """The value of each process."""
        return [value]

    def added(self, tensor: Tensor) -> None:
        """Add up a tensor over all processes, in place."""

    def meet(self) -> None:
        """Wait for the others."""
        self.gathered(None)

    def each(self, work: Callable[[], object], *, first_alone: bool = False) -> None:
        """Do something in each process, or in the first; what one raises is raised in all."""
        error: MulliganError | None = None
        try:
            if self.is_first or not first_alone:
                work()
        except MulliganError as raised:
            error = raised
        errors = self.gathered(None if error is None else str(error))
        if error is not None:
            raise error
        if text := next(filter(None, errors), None):
            raise RunFolderError(text)

    def device(self, device: str) -> str:
        return device

    def check(self, config: Config) -> None:
        """Raise for settings that one process alone can train."""

    def leave(self) -> None:
        """The run is over."""


class Several(Processes):
    """One of several processes; they meet in every method, each in the same order."""

    def __init__(self) -> None:
        """As the variables of torchrun say."""
        self.rank, self.count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        with _together():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
            self.talk = dist.new_group(backend="gloo", timeout=PATIENCE)

    def gathered(self, value: Item) -> list[Item]:
        values: list[Any] = [None] * self.count
        with _together():
            dist.all_gather_object(values, value, group=self.talk)
        return values

    def added(self, tensor: Tensor) -> None:
        with _together():
            dist.all_reduce(tensor)

    def check(self, config: Config) -> None:
        if config.algo.estimator == "ppo":
            raise UsageError("algo.estimator=ppo has a critic, which one process alone can train; leave out torchrun")
        if config.backend.kind != "local" or config.engine.kind == "vllm":
            raise UsageError("backend.kind and engine.kind must be this process's own; leave out torchrun")
        if config.run.tasks < self.count:
            raise UsageError(
                f"run.tasks must be >= {self.count}, the processes that play them (got {config.run.tasks})"
            )

    def device(self, device: str) -> str:
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device

    def leave(self) -> None:
        dist.destroy_process_group()


def joined() -> Processes:
    """The processes that torchrun has started with this one; this one alone, where it was not torchrun."""
    return Several() if "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1 else Processes()


@contextmanager
def _together() -> Iterator[None]:
    """Inside, a process that has died is one line."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise MulliganError(
            f"another process of this run has ended; its own last line says why; continue with --resume ({reason})"
        ) from error


class Shards(torch.nn.Module):
    """Float32 copies of weights, divided among the processes by FSDP2: what the optimiser steps."""

    def __init__(self, weights: Mapping[str, Tensor], processes: Processes) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__()
        self.names = list(weights)
        copies = (Parameter(weight.detach().float().clone()) for weight in weights.values())
        self.copies = torch.nn.ParameterList(copies)
        self.processes = processes
        device = next(iter(weights.values())).device.type
        with _together():
            self.mesh = init_device_mesh(device, (processes.count,))
            fully_shard(self, mesh=self.mesh, reshard_after_forward=False)
        self.parts = dict(zip(self.names, self.parameters(), strict=True))
        """This process's part of each weight, a DTensor cut along its first axis."""

    @contextmanager
    def whole(self) -> Iterator[dict[str, Tensor]]:
        """Inside, all weights as they are on all processes together."""
        module = cast(Any, self)
        with _together():
            module.unshard()
        try:
            yield {name: each.detach() for name, each in zip(self.names, self.parameters(), strict=True)}
        finally:
            module.reshard()

    @torch.no_grad()
    def take_gradients(self, weights: Mapping[str, Parameter]) -> None:
        """Add up the gradients of all processes, and keep this one's part; theirs are then gone."""
        for name, part in self.parts.items():
            weight = weights[name]
            gradient = torch.zeros(weight.shape, device=weight.device) if weight.grad is None else weight.grad.float()
            weight.grad = None
            self.processes.added(gradient)
            part.grad = self.part_of(gradient)

    def part_of(self, tensor: Tensor) -> Tensor:
        """This process's part of a tensor that all have."""
        from torch.distributed.tensor import Shard, distribute_tensor

        return distribute_tensor(tensor, self.mesh, [Shard(0)], src_data_rank=None)
