"""PolicyModel: a Hugging Face causal LM whose output head computes the loss instead of the logits."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import deepspeed
import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from learner.checkpoint.folder_tensors import ParameterReader
from learner.compute.attention import bounds_arguments
from learner.compute.collate import ModelInput
from learner.compute.logprobs import HeadLoss, head_logprobs, head_loss
from learner.model_files import weight_files
from learner.recipe.magic import Tokens, correction_weight, token_terms
from learner.recipe.plan import Objective

_UNSUPPORTED = ("final_logit_softcapping", "attn_logit_softcapping", "logit_scale", "logits_scaling")


class ModelUnusable(Exception):
    """The model does not load, or computes what the loss does not support; the message names the fix."""


class PolicyModel(nn.Module):
    """The policy: backbone and head of a causal LM, called with a micro-batch.

    The head remains a module of its own, so that ZeRO-3 gathers its weight (tied or not) while it runs.
    """

    backbone: nn.Module
    head: nn.Module

    def __init__(self, model: nn.Module, chunk: int) -> None:
        super().__init__()
        self.model = model
        self.chunk = chunk
        head: nn.Module = model.get_output_embeddings()  # type: ignore[operator]
        head.forward = types.MethodType(_head_forward, head)
        # Both are parts of ``model``: registered again, every checkpoint would contain them twice.
        object.__setattr__(self, "backbone", model.base_model)
        object.__setattr__(self, "head", head)

    def forward(self, batch: ModelInput, objective: Objective, scale: float | None) -> HeadLoss:
        """Return loss times ``scale``, log-probabilities and entropies [N]; without a loss if it is None."""
        bounds = {} if batch.bounds is None else bounds_arguments(batch.bounds, batch.longest)
        output = self.backbone(
            input_ids=batch.input_ids,
            position_ids=batch.positions,
            attention_mask=None,  # with a mask or a cache, sdpa attends across the sequences of a row
            use_cache=False,
            **bounds,
        )
        hidden = output.last_hidden_state.flatten(0, 1).index_select(0, batch.select)
        result: HeadLoss = self.head(hidden, batch.tokens, objective, scale, self.chunk)
        return result


def _head_forward(
    self: Any, hidden: Tensor, tokens: Tokens, objective: Objective, scale: float | None, chunk: int
) -> HeadLoss:
    settings: dict[str, Any] = {"temperature": objective.temperature, "chunk": chunk}
    if scale is None:
        logprobs, entropy = head_logprobs(hidden, self.weight, tokens.targets, **settings)
        return HeadLoss(logprobs.new_zeros(()), logprobs, entropy)
    if objective.correction == "sequence" and tokens.weight is None:
        old = tokens.old
        if old is None:
            old, _ = head_logprobs(hidden, self.weight, tokens.targets, **settings)
        tokens = replace(tokens, weight=correction_weight(old, tokens, objective))
    return head_loss(hidden, self.weight, tokens.targets, _token_loss(tokens, objective, scale), **settings)


def _token_loss(
    tokens: Tokens, objective: Objective, scale: float
) -> Callable[[Tensor, Tensor, slice], Tensor]:
    def loss(logprobs: Tensor, entropy: Tensor, at: slice) -> Tensor:
        return token_terms(logprobs, entropy, tokens[at], objective).total(objective) * scale

    return loss


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype,
    attention: str,
    checkpointing: bool,
    partitioned: dict[str, Any] | None = None,
) -> nn.Module:
    """Load a Hugging Face folder; raises ModelUnusable.

    partitioned: DeepSpeed settings with which no rank ever has the whole model (ZeRO-3); collective.
    """
    settings = {"dtype": dtype, "attn_implementation": attention}
    try:
        config = _without_dropout(AutoConfig.from_pretrained(folder))
        if partitioned is None:
            model = AutoModelForCausalLM.from_pretrained(folder, config=config, **settings)
        else:
            # Init ignores its dtype argument; overriding dtypes would make rotary frequencies bfloat16.
            device_only = [deepspeed.zero.DeepSpeedTensorOverride.device]
            with deepspeed.zero.Init(config_dict_or_path=partitioned, tensor_overrides=device_only):
                model = AutoModelForCausalLM.from_config(config, **settings)
            _load_partitioned(model, folder)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ModelUnusable(f"model folder {folder} does not load: {str(error).splitlines()[0]}") from error
    _check_head(model, folder)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    trained: nn.Module = model.train()
    return trained


def _check_head(model: Any, folder: Path) -> None:
    """Raise ModelUnusable unless the model's output is a plain softmax without bias."""
    for name in _UNSUPPORTED:
        if getattr(model.config, name, None) not in (None, 1.0):
            raise ModelUnusable(f"model {folder}: {name} is set; the loss is for plain softmax heads only")
    head = model.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        raise ModelUnusable(f"model {folder}: needs an output head without bias")


def _without_dropout(config: Any) -> Any:
    """Set dropout to 0, as the sampler has none and log-probabilities must be reproducible."""
    for name, value in vars(config).items():
        if name.endswith(("dropout", "pdrop", "dropout_prob")) and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def _load_partitioned(model: nn.Module, folder: Path) -> None:
    """Read the tensors one by one into a partitioned model: rank 0 reads, each rank keeps its part."""
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(path, "pt")) for path in weight_files(folder)]
        where = {name: file for file in files for name in file.keys()}  # noqa: SIM118 (no mapping)
        reader = ParameterReader(model, where, lambda name: where[name].get_tensor(name))
        for name, parameter in model.named_parameters():
            if name not in reader:
                raise ModelUnusable(f"model folder {folder}: no safetensors file holds {name}")
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                if torch.distributed.get_rank() == 0:
                    parameter.data.copy_(reader.read(name))


PROBE_OBJECTIVE = Objective(
    temperature=1.0,
    alpha=0.0,
    clip_low=0.2,
    clip_high=0.2,
    kl=0.0,
    correction="none",
    correction_low=0.5,
    correction_high=2.0,
)


def packing_probe(first: int) -> ModelInput:
    """Return a row of two sequences of four tokens that selects the second, which is always the same.

    first: the token that the first sequence consists of. If the second's log-probabilities depend on it, the
    model attends across sequences.
    """
    length, tokens = 4, 8
    ids = torch.tensor([[first] * length + [0] * length])
    zeros = torch.zeros(length)
    index = torch.zeros(length, dtype=torch.int64)
    return ModelInput(
        input_ids=ids,
        positions=torch.arange(tokens)[None] % length,
        select=torch.arange(length, tokens),
        tokens=Tokens(index, zeros, zeros, index, torch.zeros(length, dtype=torch.bool)),
        bounds=torch.arange(0, tokens + 1, length, dtype=torch.int32),
        longest=length,
    )
