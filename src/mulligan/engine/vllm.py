"""vLLM as the engine: a process of its own samples, from a paged cache, what a `Stream` asks for.

vLLM gets the model's configuration and then the weights themselves, which are sent again whenever they have changed
(`mulligan.engine.vllm_weights`); a LoRA adapter is sent alone, under a new name each time. Every turn sends its whole
sequence: what vLLM has read before it finds in its prefix cache, which is emptied when the weights change.

Its numerics are not the trainer's, so that updates weigh tokens by how much the two differ (`mulligan.algo.loss`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor

from mulligan.engine.base import Pair, Sampled, Stream, cache_heads
from mulligan.engine.weigh import reply_chances
from mulligan.errors import DeviceLost, MemoryFull, MulliganError, UsageError, extra_named
from mulligan.models.memory import free_memory
from mulligan.types import Sampling

BACKEND = "mulligan"
"""The name of our backend of vLLM's weight transfer."""
CHUNK = 2**28
"""Bytes of weights that are sent at once, or one tensor where that is larger."""
SHARE_OF_MEMORY = 0.35
"""Of what is free, for keys and values; vLLM holds the weights a second time."""
SHARE_TO_USE = 0.9
"""Of a GPU's free memory: vLLM starts only where so much is there, whatever its cache takes of it."""
BLOCK = 32
"""Tokens of a block of the cache on a CPU: prefixes are found again in whole blocks, and vLLM's own choice is 128."""
RANKS = (8, 16, 32, 64, 128, 256, 512)
"""Ranks that vLLM has room for."""
ADAPTERS = 2
"""The newest, and the one before it, with which replies that are under way end."""

ENDED = "vLLM's process has ended; continue with --resume (in Python resume=True)"

Result = TypeVar("Result")


class VllmEngine:
    """Draws up to `slots` replies at a time; vLLM queues the others. Places in it are never short."""

    def __init__(self, model: Any, *, slots: int = 256, context: int | None = None, reserved: int = 0) -> None:
        """reserved: bytes of a GPU's memory that training will take."""
        self.model, self.slots = model, slots
        limit = int(model.config.max_position_embeddings)
        self.context = min(context or limit, limit)
        _quiet()
        with extra_named("engine.kind=vllm", "vllm"):
            import vllm  # noqa: F401
        if (reason := why_not(model)) is not None:
            raise UsageError(f"vLLM cannot sample from this model: {reason}; leave engine.kind at auto")
        self.weights = list(model.parameters())
        self.version = -1
        """Of the weights that vLLM has, or will have when `sending` is done."""
        self.sending: Future[None] | None = None
        self.is_asleep = False
        self.adapter: Any = None
        self.replies: dict[Stream, asyncio.Task[None]] = {}
        self.numbers = count()
        self.tokens = 0
        """Tokens that the model took in since the engine was made."""
        self.cached_tokens = 0
        """Tokens of prompts that were in the prefix cache."""
        self.folder = Path(tempfile.mkdtemp(prefix="mulligan-vllm-"))
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever, name="vllm", daemon=True)
        thread.start()
        try:
            arguments = self._arguments(slots, reserved)
            self.llm = self._call(_started(arguments)).result()
        except BaseException as error:
            _stop(None, self.loop, thread, self.folder)
            if isinstance(error, MulliganError) or not isinstance(error, Exception):
                raise
            line = str(error).strip().partition("\n")[0]
            raise UsageError(f"vLLM did not start: {line}; VLLM_LOGGING_LEVEL=INFO shows why") from error
        self.close = weakref.finalize(self, _stop, self.llm, self.loop, thread, self.folder)
        """End vLLM's processes; also done when nobody holds the engine, or this process ends."""

    def _arguments(self, slots: int, reserved: int) -> dict[str, Any]:
        """How vLLM is started: with a model that has this one's shape, and no weights yet."""
        base, weight = _base(self.model), next(self.model.parameters())
        on_gpu = weight.device.type == "cuda"
        config = base.config.__class__.from_dict({**base.config.to_dict(), "architectures": [type(base).__name__]})
        config.save_pretrained(self.folder)
        arguments = {
            "model": str(self.folder),
            "skip_tokenizer_init": True,
            "load_format": "dummy",
            "dtype": str(weight.dtype).removeprefix("torch."),
            "max_model_len": self.context,
            "max_num_seqs": slots,
            "enable_prefix_caching": True,
            "kv_cache_memory_bytes": self._cache_bytes(slots, reserved),
            "logprobs_mode": "processed_logprobs",  # of the distribution that is drawn from
            "generation_config": "vllm",
            "disable_log_stats": True,
            "enforce_eager": not on_gpu,  # compiling takes minutes on a CPU
            "worker_extension_cls": "mulligan.engine.vllm_weights.Registered",
        }
        if on_gpu:
            free, total = torch.cuda.mem_get_info(weight.device)
            arguments |= {"enable_sleep_mode": True, "gpu_memory_utilization": round(SHARE_TO_USE * free / total, 3)}
        else:
            arguments["block_size"] = BLOCK
        if hasattr(self.model, "peft_config"):
            rank = max(config.r for config in self.model.peft_config.values())
            fitting = [each for each in RANKS if each >= rank]
            if not fitting:
                raise UsageError(f"vLLM takes adapters of rank {RANKS[-1]} at most (got {rank})")
            arguments |= {"enable_lora": True, "max_lora_rank": fitting[0], "max_loras": ADAPTERS}
        return arguments

    def _cache_bytes(self, slots: int, reserved: int) -> int:
        weight = next(self.model.parameters())
        heads, size = cache_heads(self.model.config)
        token = int(2 * self.model.config.num_hidden_layers * heads * size * weight.dtype.itemsize)
        blocks = -(-self.context // BLOCK) * BLOCK
        room = int(min(SHARE_OF_MEMORY * (free := free_memory(weight.device)), free - reserved))
        if room < token * blocks:
            raise MemoryFull(
                f"no sequence of {self.context:,} tokens fits vLLM's cache: it takes {token * blocks / 2**30:.1f} GiB, "
                f"and {max(0, room) / 2**30:.1f} GiB are left for it; lower engine.context"
            )
        return min(room, token * blocks * (slots + 1))

    def _call(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run on vLLM's own event loop: that of whoever asks may come and go."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    async def open(self) -> Stream:
        return Stream(self, 0)

    def release(self, stream: Stream) -> None:
        self.forget(stream)

    def ask(self, stream: Stream) -> None:
        if not self.close.alive or self.llm.errored:
            raise DeviceLost(ENDED)
        self._send_weights()
        self.replies[stream] = asyncio.get_running_loop().create_task(self._reply(stream))

    def forget(self, stream: Stream) -> None:
        if (reply := self.replies.pop(stream, None)) is not None:
            reply.cancel()

    def reply_chances(self, pairs: Sequence[Pair], sampling: Sampling) -> dict[Pair, float]:
        return reply_chances(self.model, pairs, sampling)

    async def _reply(self, stream: Stream) -> None:
        """Have the stream's reply drawn; the stream has its prompt by now."""
        from vllm.sampling_params import RequestOutputKind

        from vllm import SamplingParams

        sampling = stream.sampling
        params = SamplingParams(
            temperature=max(0.0, sampling.temperature),
            top_p=sampling.top_p,
            max_tokens=stream.room,
            seed=stream.rng.getrandbits(62),
            stop_token_ids=sorted(stream.stop),
            ignore_eos=True,  # it is among the stop tokens where it ends a reply
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        outcome: Sampled | Exception
        try:
            output = await asyncio.wrap_future(self._call(self._drawn(list(stream.pending), params)))
            outcome = self._sampled(output)
            stream.pending += outcome.ids
        except Exception as error:
            ended = type(error).__name__ == "EngineDeadError"
            outcome = DeviceLost(ENDED) if ended else error
        self.replies.pop(stream, None)
        stream.finish(outcome)

    async def _drawn(self, ids: list[int], params: Any) -> Any:
        """vLLM's answer to a prompt, by the newest weights."""
        if self.sending is not None:
            await asyncio.shield(asyncio.wrap_future(self.sending))
        name = str(next(self.numbers))
        answers = self.llm.generate({"prompt_token_ids": ids}, params, name, lora_request=self.adapter)
        return [answer async for answer in answers][-1]

    def _sampled(self, answer: Any) -> Sampled:
        drawn = answer.outputs[0]
        if drawn.finish_reason not in ("stop", "length"):
            raise DeviceLost(f"vLLM gave up a reply ({drawn.finish_reason})")
        ids = tuple(drawn.token_ids)
        self.cached_tokens += answer.num_cached_tokens or 0
        self.tokens += len(answer.prompt_token_ids) - (answer.num_cached_tokens or 0) + len(ids)
        chosen = zip(drawn.logprobs, ids, strict=True)
        return Sampled(ids, tuple(each[token].logprob for each, token in chosen), drawn.finish_reason)

    def sleep(self) -> None:
        """Give a GPU's memory to the learner until the next reply is asked for; none may be under way."""
        if self.version >= 0 and not self.is_asleep:
            self._call(self.llm.sleep()).result()
            self.is_asleep = True

    def _send_weights(self) -> None:
        """Copy the weights here, while nobody trains them, and send them where vLLM has older ones."""
        version = sum(weight._version for weight in self.weights)  # counts whatever was written into a weight
        if version == self.version and not self.is_asleep:
            return
        chunks, adapter = list[bytes](), None
        if version != self.version:
            is_adapted = hasattr(self.model, "peft_config")
            chunks = [] if is_adapted and self.version >= 0 else list(_chunks(self.model))
            adapter = self._written_adapter(version) if is_adapted else None
        self.sending = self._call(self._sent(chunks, adapter, version, wake=self.is_asleep))
        self.version, self.is_asleep = version, False

    def _written_adapter(self, version: int) -> Path:
        """The adapter as a folder, which is the only form that vLLM takes one in."""
        for old in sorted(self.folder.glob("adapter-*"), key=lambda path: path.stat().st_mtime)[: 1 - ADAPTERS]:
            shutil.rmtree(old)
        path = self.folder / f"adapter-{version}"
        self.model.save_pretrained(str(path), save_embedding_layers=False)
        return path

    async def _sent(self, chunks: list[bytes], adapter: Path | None, version: int, *, wake: bool) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
        from vllm.lora.request import LoRARequest

        if wake:
            await self.llm.wake_up()
        if chunks:
            # Replies under way are read again by the new weights, and go on: `clear_cache` takes all of the cache.
            await self.llm.pause_generation(mode="keep", clear_cache=True)
            await self.llm.start_weight_update()
            for chunk in chunks:
                await self.llm.update_weights(WeightTransferUpdateRequest({"tensors": chunk}))
            await self.llm.finish_weight_update(str(version))
            await self.llm.resume_generation()
        if adapter is not None:
            self.adapter = LoRARequest(adapter.name, next(self.numbers) + 1, str(adapter))
            await self.llm.add_lora(self.adapter)


def why_not(model: Any) -> str | None:
    """Why vLLM as it is installed cannot run a model; None where it can."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    from vllm import ModelRegistry

    device, family = next(model.parameters()).device, type(_base(model)).__name__
    if device.type != current_platform.device_type:
        return f"it is on {device}, and the vLLM that is installed is for {current_platform.device_type}"
    if device.index:
        return f"it is on {device}, and vLLM takes the first GPU that it sees (CUDA_VISIBLE_DEVICES)"
    if family not in ModelRegistry.get_supported_archs():
        return f"{family} is not one of its architectures"
    sizes, (_, size) = CPUAttentionBackend.get_supported_head_sizes(), cache_heads(model.config)
    if device.type == "cpu" and size not in sizes:
        return f"its heads have {size} numbers, and on a CPU vLLM takes {', '.join(map(str, sizes))}"
    return None


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _chunks(model: Any) -> Iterator[bytes]:
    """The weights but for adapters, as safetensors files of at most `CHUNK` bytes where no tensor is larger."""
    chunk: dict[str, Tensor] = {}
    size = 0
    for name, weight in _base(model).named_parameters():
        if ".lora_" in name:
            continue
        if chunk and size + weight.nbytes > CHUNK:
            yield save(chunk)
            chunk, size = {}, 0
        chunk[name.replace(".base_layer.", ".")] = weight.detach().contiguous().cpu()
        size += weight.nbytes
    if chunk:
        yield save(chunk)


def _quiet() -> None:
    """vLLM says hundreds of lines of itself, and reports its use to its makers, where nobody says otherwise."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")


async def _started(arguments: dict[str, Any]) -> Any:
    from vllm.config import WeightTransferConfig
    from vllm.v1.engine.async_llm import AsyncLLM

    from vllm import AsyncEngineArgs

    transfer = WeightTransferConfig(backend=BACKEND)
    return AsyncLLM.from_engine_args(AsyncEngineArgs(weight_transfer_config=transfer, **arguments))


def _stop(llm: Any, loop: asyncio.AbstractEventLoop, thread: threading.Thread, folder: Path) -> None:
    if llm is not None:
        asyncio.run_coroutine_threadsafe(_cancelled(), loop).result()  # they would log that the process is gone
        llm.shutdown()
        llm.shutdown = lambda: None  # its destructor calls it again, perhaps when half of the interpreter is gone
        asyncio.run_coroutine_threadsafe(_cancelled(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    shutil.rmtree(folder, ignore_errors=True)


async def _cancelled() -> None:
    """Cancel whatever else runs on this loop, and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
