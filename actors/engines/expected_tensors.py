"""The tensors that a version of a model's weights consists of."""

from __future__ import annotations

from pathlib import Path

Shapes = dict[str, tuple[int, ...]]


def expected_tensors(folder: Path) -> Shapes:
    """Return the names, as folders have them, and shapes of a model's parameters, from its config.json.

    The folder's own files may also store a tied head, buffers of old versions, or a second format.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.core_model_loading import revert_weight_conversion

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return {
        name: tuple(tensor.shape)
        for parameter, weight in model.named_parameters()
        for name, tensor in revert_weight_conversion(model, {parameter: weight}).items()
    }
