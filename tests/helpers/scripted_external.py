"""``magicrl generator`` with a scripted engine for vLLM: python -m helpers.scripted_external RUN REDIS

Everything else is real: two processes, a slot from Redis, logs, metrics, weights, graders.
"""

from __future__ import annotations

import sys
import zlib

import numpy as np

from actors.engines.scripted import Script, ScriptedEngine
from actors.fleet.external import join_run, supervise
from actors.generator.generator import Generator
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, ServeMetrics, assemble
from buffer.backend.embedded import connect
from buffer.config import RedisConfig
from buffer.prompts.dataset import read_dataset
from helpers.small_run import VOCABULARY, Digits, first_token
from ops.config.schema import MetricsConfig
from ops.run.generator_process import main


async def start(spec: GeneratorSpec, name: str, slot: int, serve_metrics: ServeMetrics | None) -> Generator:
    """As ``start_generator``; the answer is a response's first token."""
    client = connect(spec.buffer.redis, spec.redis_url)
    if serve_metrics is not None:
        serve_metrics("generator", slot)
    script = Script(text=first_token, seconds_per_token=0.001)
    table = np.zeros((VOCABULARY, VOCABULARY), np.float32)
    engine = ScriptedEngine(table, UNANNOUNCED, script, seed=zlib.crc32(name.encode()))
    return assemble(spec, name, slot, engine, Digits(), read_dataset(spec.data, spec.columns), client)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        main(start)
    else:
        spec = join_run(sys.argv[1], RedisConfig(url=sys.argv[2]))
        sys.exit(supervise(spec, "helpers.scripted_external", MetricsConfig().model_dump_json()))
