"""A generator with a scripted engine in place of vLLM: python -m helpers.scripted_generator NAME SLOT

The run's GeneratorSpec is JSON in the variable SPEC.
"""

from __future__ import annotations

import asyncio
import os
import sys
import zlib

import numpy as np

from actors.engines.scripted import Script, ScriptedEngine
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, assemble
from buffer.backend.embedded import connect
from buffer.prompts.dataset import read_dataset
from helpers.small_run import VOCABULARY, Digits

SCRIPT = Script(seconds_per_token=0.01, chunk_tokens=4, length=lambda random: int(random.integers(8, 40)))


async def main(spec: GeneratorSpec, name: str, slot: int) -> None:
    table = np.zeros((VOCABULARY, VOCABULARY), dtype=np.float32)
    engine = ScriptedEngine(table, UNANNOUNCED, SCRIPT, seed=zlib.crc32(name.encode()))
    client = connect(spec.buffer.redis, spec.redis_url)
    generator = assemble(spec, name, slot, engine, Digits(), read_dataset(spec.data), client)
    try:
        await generator.run()
    finally:
        await generator.close()


if __name__ == "__main__":
    asyncio.run(main(GeneratorSpec.model_validate_json(os.environ["SPEC"]), sys.argv[1], int(sys.argv[2])))
