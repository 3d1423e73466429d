"""All checks in order: those of this machine and, with a configuration, those of what it names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from buffer.config import BufferConfig
from buffer.prompts.dataset import DatasetError, read_dataset
from buffer.prompts.files import is_hub
from ops.config.derived import columns_of
from ops.config.hub import with_model_folder
from ops.config.schema import Config, ConfigError, MetricsConfig, RayConfig
from ops.doctor import machine, services, software
from ops.doctor.finding import Check, Finding, fail, passed, run_check, warn
from ops.run.preflight import check_model, check_prompts
from rewards.config import RewardsConfig

OPTIMIZER_FACTOR = 8
"""Size of a checkpoint over that of bfloat16 weights: 14 bytes (float32 masters, two moments) over 2."""
SHARED_MEMORY = Path("/dev/shm")


def examine(config: Config | None, only: str | None = None) -> Iterator[Finding]:
    """Yield the findings of every check as it ends. only: the name of a single check."""
    buffer = config.buffer if config else BufferConfig()
    checks: dict[str, Check] = {
        "python": software.python,
        "vllm": software.engine,
        "torch companions": software.torch_companions,
        "ray": software.ray,
        "cpu": machine.cpu,
        "memory": machine.memory,
        "gpu": machine.gpus,
        "open files": machine.open_files,
        "clock": machine.clock,
        "redis": partial(services.redis, buffer.redis),
        "ray cluster": partial(services.ray, config.ray if config else RayConfig()),
        "sandbox": partial(services.sandbox, (config.rewards if config else RewardsConfig()).code),
        "metrics": partial(services.metrics, config.metrics if config else MetricsConfig()),
        "space": partial(space, config),
    }
    if config is not None:
        checks |= {"model": partial(model, config), "data": partial(data, config)}
        checks["trackers"] = partial(software.trackers, config.trackers)
        if config.ray.address is None:
            checks["gpus of the run"] = partial(
                machine.enough_gpus, config.actors, config.learner, config.evaluation.needs_engine
            )
    for name, check in checks.items():
        if only in (None, name):
            yield from run_check(name, check)


def model(config: Config) -> Iterator[Finding]:
    """Check that the model is complete, that its prompts render and that every stage fits its positions."""
    try:
        config = with_model_folder(config)
        positions, has_template = check_model(config), check_prompts(config)
    except ConfigError as error:
        yield fail("model", str(error), "correct the model's settings, or the stages' limits")
        return
    prompts = "a chat template" if has_template else "no chat template: messages are joined by blank lines"
    yield passed("model", f"{config.model.path}, {positions or 'unknown'} positions, {prompts}")


def data(config: Config) -> Iterator[Finding]:
    """Check that the problems can be read, and report rows that are left out."""
    files = {"data.train": config.data.train, "data.test": (config.data.test,) if config.data.test else ()}
    for benchmark, wanted in config.evaluation.benchmarks.items():
        files[f"evaluation.benchmarks.{benchmark}"] = (wanted.path,)
    for name, paths in files.items():
        missing = [str(path) for path in paths if not path.exists() and not is_hub(path)]
        if missing:
            yield fail(name, f"no file: {', '.join(missing)}", f"correct {name}")
        elif paths:
            yield _read(name, config, paths)


def _read(name: str, config: Config, paths: tuple[Path, ...]) -> Finding:
    try:
        rows = read_dataset(paths, columns_of(config))
        rows.refuse_set_aside(config.data.allow_skipped)
    except DatasetError as error:
        return fail(name, str(error), f"correct {name}, data.question or data.answer")
    if rows.skipped:
        return warn(name, rows.summary(), "rows that are set aside are not trained on: look at the first")
    return passed(name, rows.summary())


def space(config: Config | None) -> Iterator[Finding]:
    """Check the room for published weights in shared memory and for checkpoints in the run's folder."""
    weights = _weights_bytes(config.model.path) if config and config.model.path.is_dir() else 2**28
    root = SHARED_MEMORY if config is None else config.buffer.weights.root or SHARED_MEMORY
    keep = (config.buffer if config else BufferConfig()).weights.keep + 1
    fix = "a larger /dev/shm (docker run --shm-size), or buffer.weights.root on a disk"
    yield machine.space("published weights", root, keep * weights, f"{keep} versions", fix)
    folder = config.run.path if config else Path("runs")
    copies = config.learner.checkpoint.keep_last + 1 if config else 3
    need = copies * OPTIMIZER_FACTOR * weights
    fix = "free some, choose another run.folder, or lower learner.checkpoint.keep_last"
    yield machine.space("checkpoints", folder, need, f"{copies} checkpoints", fix)


def _weights_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
