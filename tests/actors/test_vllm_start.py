"""How much memory an engine takes by default."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from actors.config import VllmConfig
from actors.engines.vllm_start import cache_bytes


def test_an_engine_on_a_cpu_leaves_memory_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10 * gib))
    assert cache_bytes(VllmConfig(), cpu=True) == 2.5 * gib
    assert cache_bytes(VllmConfig(kv_cache_gib=8), cpu=True) == 8 * gib
    assert cache_bytes(VllmConfig(), cpu=False) is None
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=500 * gib))
    assert cache_bytes(VllmConfig(), cpu=True) == 4 * gib
