"""What a response looks like."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.graders.traits import FORMAT_FAILURES, REFLECTION, likeness, reflections, traits


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("Wait, that is wrong. Let me double-check.", 4),
        ("等等,不对,重新检查一下。", 3),
        ("The waiter waited for the weight.", 0),
        ("WAIT. Hmm, hmmm.", 3),
        ("", 0),
    ],
)
def test_second_looks_are_counted(text: str, hits: int) -> None:
    found = traits(text)
    assert sum(found.reflections.values()) == hits
    assert found.reflects is (hits > 0)


def test_repetition_distinguishes_a_loop_from_prose() -> None:
    words = random.Random(0).choices([f"word{k}" for k in range(5000)], k=2000)
    assert traits(" ".join(words)).repetition < 0.75 < 0.95 < traits("I will try again. " * 500).repetition
    assert traits("short").repetition == 0.0


def test_language_mix() -> None:
    assert traits("plain English with x and y").language_mix == 0.0
    assert traits("abcd 是五").language_mix == pytest.approx(1 / 3)
    assert traits("привет abcdef").language_mix == pytest.approx(0.5)
    assert traits("12 + 3").language_mix == 0.0


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("<think>a</think> \\boxed{1}", set()),
        ("a </think> \\boxed{1}", set()),
        ("\\boxed{1}", {"no_think"}),
        ("<think> \\boxed{1}", {"open_think"}),
        ("<think>a</think> 1", {"no_box"}),
        ("<think>a</think> \\boxed{1} \\boxed{2}", {"many_boxes"}),
    ],
)
def test_format_failures(text: str, failures: set[str]) -> None:
    assert traits(text).format_failures == failures
    assert failures <= set(FORMAT_FAILURES)


def test_likeness_of_a_group() -> None:
    rng = random.Random(1)
    texts = [" ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=400)) for _ in range(4)]
    assert likeness([texts[0]] * 4) == 1.0
    assert likeness(texts) < 0.05
    shared = [f"{' '.join(texts[0].split()[:200])} {text}" for text in texts[1:]]
    assert 0.1 < likeness(shared) < 0.35  # a third of each is shared: Jaccard 0.2
    assert likeness(texts[:1]) == likeness([]) == 0.0


@given(st.text(max_size=2000), st.lists(st.text(max_size=200), max_size=4))
def test_any_text_has_traits(text: str, group: list[str]) -> None:
    found = traits(text)
    assert 0.0 <= found.repetition <= 1.0
    assert 0.0 <= found.language_mix <= 1.0
    assert 0.0 <= likeness(group) <= 1.0


def test_no_pattern_escapes_the_first_look() -> None:
    said = {
        "en": "wait hmm. Hold on, alternatively on second thought actually let me re-check, double-checking: "
        "re-verify. Going back, I made a mistake; that's wrong. Another way.",
        "zh": "等等 等一下 稍等 重新检查 再想想 仔细检查 或者说 换一种 不对 有误",
    }
    for language, text in said.items():
        found = reflections(text)
        assert set(found) == set(REFLECTION[language])
        for pattern in found:
            hit = re.search(pattern, text, re.I)
            assert hit is not None
            assert reflections(hit.group()), pattern


SAID = (
    "WAIT wait waits hmmm hold on alternatively actually second thought let me verify re-check double-check "
    "check reverify re-examined evaluate going back I we made a an mistake error that's that is not right "
    "wrong another way approach 等等 等一下 重新检查 再想想 换一种 不对"
)


@given(st.lists(st.sampled_from(SAID.split())))
def test_hints_lose_no_hit(words: list[str]) -> None:
    text = " ".join(words)
    plain = {p: len(re.findall(p, text, re.I)) for patterns in REFLECTION.values() for p in patterns}
    assert reflections(text) == {pattern: hits for pattern, hits in plain.items() if hits}
