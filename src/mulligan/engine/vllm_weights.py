"""vLLM's side of new weights: a backend of its weight transfer that reads them from the call itself.

vLLM's own backends, NCCL and CUDA IPC, need a GPU. Here the tensors travel as bytes through the pipe between the
processes, on any device, and nothing is written to a disk. Only vLLM's workers import this module (`Registered`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from mulligan.engine.vllm import BACKEND


@dataclass
class Chunk(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some of the model's tensors, by the names that they have in transformers."""

    tensors: bytes
    """As a safetensors file."""


class BytesEngine(WeightTransferEngine):  # type: ignore[misc]
    """Loads chunks into the worker's model, which fuses and packs them as if they came from a checkpoint."""

    init_info_cls = WeightTransferInitInfo
    update_info_cls = Chunk

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        if device.type == "cpu":  # otherwise the first reply waits for a compiler, which the machine may not even have
            torch.compiler.set_stance("force_eager")

    def init_transfer_engine(self, init_info: Any) -> None:
        """Nothing has to be agreed on."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: Chunk) -> None:
        tensors = load(update_info.tensors)
        self.model.load_weights([(name, tensor.to(self.device)) for name, tensor in tensors.items()])

    def shutdown(self) -> None:
        """Nothing is held."""


class Registered:
    """Adds nothing to a worker: vLLM imports this module in order to find it, and so knows the backend."""


WeightTransferEngineFactory.register_engine(BACKEND, BytesEngine)
