"""The process of a generator outside the fleet: logs and serves metrics as the run's own processes do.

python -m ops.run.generator_process NAME SLOT METRICS      METRICS: a MetricsConfig as JSON
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial

from actors.fleet.external import generate, given_spec
from actors.generator.spec import StartGenerator, start_generator
from buffer.backend.embedded import connect
from buffer.log_context import bind_log_context
from ops.config.schema import MetricsConfig
from ops.telemetry import logs
from ops.telemetry.metrics.server import MetricsEndpoint


def main(start: StartGenerator = start_generator) -> None:
    """Generate until the run ends or SIGTERM arrives; its metric series end with it."""
    name, slot, metrics = sys.argv[1:]
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    spec = given_spec()
    logs.setup("generator")
    bind_log_context(run=spec.run, slot=int(slot))
    access = MetricsConfig.model_validate_json(metrics).model_dump(exclude={"port"})
    endpoint = MetricsEndpoint(spec.run, partial(connect, spec.buffer.redis, spec.redis_url), **access)
    with ExitStack() as stack:

        def serve(role: str, slot: int) -> None:
            stack.callback(endpoint.serve(role, slot).close)

        generate(spec, name, int(slot), serve, start)


if __name__ == "__main__":
    main()
