"""``magicrl generator`` with a scripted engine in place of vLLM: python scripted_generator.py RUN REDIS_URL

Called with the run's GeneratorSpec as JSON in SPEC, and its name and slot as arguments.
"""

from __future__ import annotations

import asyncio
import os
import sys
import zlib
from typing import Any

import numpy as np

from actors.engines.scripted import Script, ScriptedEngine
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, assemble
from buffer.backend.embedded import connect
from buffer.prompts.dataset import read_dataset

SCRIPT = Script(seconds_per_token=0.01, chunk_tokens=4, length=lambda random: int(random.integers(8, 40)))


class Digits:
    """Renders any messages as three tokens."""

    def render(self, messages: Any) -> Any:
        return np.arange(1, 4, dtype=np.int32)


async def main(spec: GeneratorSpec, name: str, slot: int) -> None:
    table = np.zeros((8, 8), dtype=np.float32)
    engine = ScriptedEngine(table, UNANNOUNCED, SCRIPT, seed=zlib.crc32(name.encode()))
    client = connect(spec.buffer.redis, spec.redis_url)
    generator = assemble(spec, name, slot, engine, Digits(), read_dataset(spec.data), client)
    try:
        await generator.run()
    finally:
        await generator.close()


if __name__ == "__main__":
    asyncio.run(main(GeneratorSpec.model_validate_json(os.environ["SPEC"]), sys.argv[1], int(sys.argv[2])))
