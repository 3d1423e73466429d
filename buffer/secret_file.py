"""Files with a password or a token in their first line."""

from __future__ import annotations

from pathlib import Path


def read_secret(path: Path) -> str:
    """Return the first line. Raises ValueError, which names the file, if it cannot be read or is empty."""
    try:
        secret = path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if not secret:
        raise ValueError(f"{path}: its first line is empty")
    return secret
