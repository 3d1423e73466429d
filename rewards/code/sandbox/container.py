"""The command line that isolates a program: an unused user, bubblewrap, and a system-call filter.

Privileges are dropped *before* bubblewrap starts: as root it can be escaped (remount, /proc/sys).
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import stat
import struct
import sys
from functools import cache
from pathlib import Path

from rewards.config import CodeConfig

FIRST_UID = 61000
"""First of the users that run programs, one per worker (61184 to 65519 are systemd's, for the same use)."""

INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3")
PACKAGES = ("numpy", "sortedcontainers")
"""Packages that programs of public data sets import."""
_MOUNTED_PACKAGES = "/packages"
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/sbin")
_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")


class SandboxUnavailable(RuntimeError):
    """Programs cannot be run safely here; the message names what is missing and what would help."""


@cache
def interpreter(wanted: str) -> str:
    """Return the interpreter for programs: one that their user can read.

    ``auto`` prefers this environment's version, for which its packages were built.
    """
    known = sorted((*INTERPRETERS, os.path.realpath(sys.executable)), key=_is_other_version)
    for path in known if wanted == "auto" else (wanted,):
        if os.access(path, os.X_OK) and _is_readable(Path(path).resolve()):
            return path
    raise SandboxUnavailable(
        f"rewards.code.python={wanted!r}: no interpreter that every user can read; install python3"
    )


def _is_readable(path: Path) -> bool:
    """Whether the programs' user can read a path; under root that is another user than this process's."""
    return os.geteuid() != 0 or all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _is_other_version(python: str) -> bool:
    return os.path.basename(os.path.realpath(python)) != f"python{sys.version_info[0]}.{sys.version_info[1]}"


@cache
def packages(python: str) -> tuple[Path, ...]:
    """Return the folders of PACKAGES in this environment that the interpreter can use."""
    if _is_other_version(python):
        return ()
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    found = [Path(path) for spec in specs if spec for path in spec.submodule_search_locations or ()]
    libraries = [folder.with_name(f"{folder.name}.libs") for folder in found]
    return tuple(path for path in (*found, *libraries) if path.exists() and _is_readable(path.resolve()))


def package_folders(python: str) -> list[str]:
    """Return the folders that have these packages, for an interpreter without isolation."""
    return sorted({str(path.parent) for path in packages(python)})


def command(config: CodeConfig, argv: list[str], filter_fd: int) -> list[str]:
    """Return the command that runs ``argv`` (interpreter first) inside the sandbox.

    filter_fd: a file with ``system_call_filter()``.

    Raises SandboxUnavailable, naming the missing program.
    """
    bwrap = _program("bwrap", "install the package bubblewrap")
    scratch = str(config.scratch_bytes)
    return [
        *_unprivileged(),
        bwrap,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--seccomp", str(filter_fd), "--hostname", "sandbox", "--clearenv"),
        *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8"),
        *("--setenv", "OPENBLAS_NUM_THREADS", "1"),
        *_readonly_system(argv[0]),
        *_readonly_packages(argv[0]),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", scratch, "--tmpfs", "/tmp", "--size", scratch, "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"),
        *argv,
        _MOUNTED_PACKAGES,
    ]


def _program(name: str, fix: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SandboxUnavailable(f"{name} not found: {fix}, or set rewards.code.unsafe=true")
    return path


def _unprivileged() -> list[str]:
    if os.geteuid() != 0:
        return []
    user = str(FIRST_UID + os.getpid() % 4000)
    setpriv = _program("setpriv", "install util-linux")
    return [setpriv, "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--"]


def _readonly_system(python: str) -> list[str]:
    args: list[str] = []
    for path in _SYSTEM:
        if os.path.islink(path):
            args += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            args += ["--ro-bind", path, path]
    for path in _FILES:
        args += ["--ro-bind-try", path, path]
    home = Path(python).resolve().parent.parent
    if not any(home.is_relative_to(path) for path in _SYSTEM):
        args += ["--ro-bind", str(home), str(home)]
    return args


def _readonly_packages(python: str) -> list[str]:
    return [
        word
        for path in packages(python)
        for word in ("--ro-bind", str(path), f"{_MOUNTED_PACKAGES}/{path.name}")
    ]


# System calls that programs do not need and escapes do: memory beyond the limits here, other processes'
# memory, mounts and namespaces, kernel interfaces with a history. (x86_64, aarch64) numbers.
_REFUSED = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "bpf": (321, 280),
    "perf_event_open": (298, 241), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "mount_setattr": (442, 442), "kexec_load": (246, 104), "init_module": (175, 105),
    "finit_module": (313, 273),
    "open_by_handle_at": (304, 265), "personality": (135, 92), "swapon": (167, 224), "reboot": (169, 142),
    "chroot": (161, 51), "quotactl": (179, 60), "acct": (163, 89), "syslog": (103, 116),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E, 41), "aarch64": (1, 0xC00000B7, 198)}
_FAMILIES = (1, 2, 10)
"""Allowed socket families: unix and the two internet ones, which reach nothing in an empty network namespace.
Others (vsock) ignore namespaces."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000


def system_call_filter() -> bytes:
    """Return a classic BPF program for seccomp that refuses the calls above (EPERM) and allows all others."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(f"no system-call filter for {machine}; known: {', '.join(_ARCHITECTURES)}")
    column, architecture, socket_call = _ARCHITECTURES[machine]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    program += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE)]  # the x32 numbers
    for numbers in _REFUSED.values():
        program += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _REFUSE)]
    program += [(_EQUAL, 1, 0, socket_call), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 16)]
    for family in _FAMILIES:
        program += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    program += [(_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("<HBBI", *line) for line in program)
