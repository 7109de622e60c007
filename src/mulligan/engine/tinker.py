"""Samples from a server that speaks Tinker's protocol: the hosted service, SkyRL on GPUs of one's own, and others.

Each reply is one request with the whole sequence so far. Sequences only grow, so that a server which caches prefixes
computes those of earlier turns once. Replies are drawn from the newest weights that `use` was given.

A SkyRL server on JAX has one copy of an adapter for sampling and training, and loads what a sampling client asks for
into it. A request for older weights would undo an update. So `settle` waits for the replies under way, before weights
change, and what nobody waits for any more is not cancelled but awaited too.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

import httpx

from mulligan.engine.base import Pair, Sampled, Stream, Waiting
from mulligan.errors import RequestFailed, UsageError, extra_named
from mulligan.types import Sampling

PATIENCE = 300.0
"""Seconds without any answer after which a server is given up: it may restart, or compile for a new length."""
KEY_VARIABLE, NO_KEY = "TINKER_API_KEY", "tml-none"
"""The hosted service wants a key; the SDK wants one for every server, and others do not read it."""


def connect(url: str) -> Any:
    """A client of the server at `url`: tinker's `ServiceClient`."""
    with extra_named("a Tinker server", "tinker"):
        import tinker
    try:
        httpx.get(f"{url.rstrip('/')}/api/v1/healthz", timeout=30)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UsageError(
            f"no Tinker server answers at {url!r} ({first_line(error)}); start it, or give its URL"
        ) from None
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    logging.getLogger("tinker").setLevel(logging.CRITICAL)  # errors are raised, and told in one line
    return tinker.ServiceClient(base_url=url, api_key=os.environ.get(KEY_VARIABLE, NO_KEY))


def retry_config() -> Any:
    """How long the SDK asks again for a sample before it gives up."""
    from tinker.lib.retry_handler import RetryConfig

    return RetryConfig(progress_timeout=PATIENCE)


def sampling_client(service: Any, model: str) -> Any:
    """A client that samples from a model of the server as it is, or from weights it has saved (``tinker://…``)."""
    source = {"model_path" if model.startswith("tinker://") else "base_model": model}
    try:
        return service.create_sampling_client(**source, retry_config=retry_config())
    except Exception as error:
        raise UsageError(f"the Tinker server does not sample from {model!r}: {first_line(error)}") from error


class TinkerEngine:
    """Draws replies from a sampling client, `slots` at a time."""

    def __init__(self, client: Any, *, slots: int, context: int) -> None:
        self.client, self.slots, self.context = client, slots, context
        self.live = 0
        self.waiting = Waiting()
        self.drawing: dict[Stream, asyncio.Task[None]] = {}
        self.under_way: set[Future[Any]] = set()
        self.tokens = 0
        """Tokens that were drawn since the engine was made."""

    def use(self, client: Any) -> None:
        """Draw from another client from now on."""
        self.client = client

    def settle(self) -> None:
        """Wait until the server has answered every request; raise where it does not."""
        answered, left = wait(list(self.under_way), timeout=PATIENCE)
        self.under_way -= answered  # in place: those that are answered from now on leave it by themselves
        if left:
            raise RequestFailed(
                f"the Tinker server has not answered {len(left)} requests in {PATIENCE:g} s; see whether it still "
                "runs, and continue with --resume (in Python resume=True)"
            )

    async def open(self) -> Stream:
        return await self.waiting.open(self._seat)

    def _seat(self) -> Stream | None:
        if self.live == self.slots:
            return None
        self.live += 1
        return Stream(self, 0)

    def release(self, stream: Stream) -> None:
        self.forget(stream)
        self.live -= 1
        self.waiting.admit()

    def ask(self, stream: Stream) -> None:
        self.drawing[stream] = asyncio.get_running_loop().create_task(self._draw(stream))

    def forget(self, stream: Stream) -> None:
        if (task := self.drawing.pop(stream, None)) is not None:
            task.cancel()

    async def _draw(self, stream: Stream) -> None:
        """One reply; it joins the sequence, which goes to the server whole with the next request."""
        try:
            sampled = await self._sampled(stream)
        except Exception as error:
            self.drawing.pop(stream, None)
            stream.finish(RequestFailed(f"the Tinker server gave no reply: {first_line(error)}"))
            return
        self.drawing.pop(stream, None)
        self.tokens += len(sampled.ids)
        stream.pending += sampled.ids
        stream.finish(sampled)

    async def _sampled(self, stream: Stream) -> Sampled:
        from tinker import types

        sampling = types.SamplingParams(
            max_tokens=stream.room,
            temperature=stream.sampling.temperature,
            top_p=stream.sampling.top_p,
            seed=stream.rng.getrandbits(31),
            stop=sorted(stream.stop),
        )
        prompt = types.ModelInput.from_ints(stream.pending)
        future = self.client.sample(prompt=prompt, num_samples=1, sampling_params=sampling)
        self.under_way.add(future)
        future.add_done_callback(self.under_way.discard)
        response = await asyncio.shield(asyncio.wrap_future(future))
        return checked(response.sequences, stream)

    def reply_chances(self, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
        """How likely each reply is after its prompt, from the server's log-probabilities at temperature 1."""
        from tinker import types

        if sampling.temperature != 1 or sampling.top_p != 1:
            raise UsageError(
                "a Tinker server tells how likely a reply is at temperature 1 and top_p 1 alone "
                f"(got {sampling.temperature:g} and {sampling.top_p:g}); give --temperature 1"
            )
        asked = {
            pair: self.client.compute_logprobs(types.ModelInput.from_ints([*pair.prompt, *pair.reply]))
            for pair in dict.fromkeys(pairs)
        }
        try:
            # The first token of a prompt has no log-probability, and some servers leave it out.
            return {pair: math.exp(sum(future.result()[-len(pair.reply) :])) for pair, future in asked.items()}
        except Exception as error:
            raise RequestFailed(f"the Tinker server gave no log-probabilities: {first_line(error)}") from error


def checked(sequences: Sequence[Any], stream: Stream) -> Sampled:
    """The reply that a server sent; raises where a part of it is missing."""
    if len(sequences) != 1:
        raise ValueError(f"{len(sequences)} replies to a request for one")
    ids, logprobs = sequences[0].tokens, sequences[0].logprobs
    if not ids or logprobs is None or len(logprobs) != len(ids):
        count = "no" if logprobs is None else len(logprobs)
        raise ValueError(f"a reply of {len(ids)} tokens came with {count} log-probabilities")
    is_ended = ids[-1] in stream.stop
    if not is_ended and len(ids) < stream.room:
        raise ValueError(f"a reply was cut off after {len(ids)} of {stream.room} tokens")
    return Sampled(tuple(ids), tuple(logprobs), "stop" if is_ended else "length")


def first_line(error: BaseException) -> str:
    """An error of the SDK in one line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
