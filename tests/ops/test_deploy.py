"""The other deployment files: Ray's launcher by its schema, the image, and the unit by systemd."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from helpers.running import REPOSITORY

DEPLOY = REPOSITORY / "ops/deploy"


def test_ray_accepts_the_cluster() -> None:
    import ray

    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    cluster = yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())
    jsonschema.validate(cluster, schema)
    types = cluster["available_node_types"]
    assert cluster["head_node_type"] in types
    assert types["generator"]["resources"]["generator"]
    fixed = [t for name, t in types.items() if name != cluster["head_node_type"]]
    assert all(t["min_workers"] == t["max_workers"] for t in fixed), (
        "the autoscaler must have nothing to decide"
    )
    assert sum(t["max_workers"] for t in fixed) == cluster["max_workers"]


def test_the_image_is_built_from_the_declared_extras() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert set(re.findall(r"EXTRA=(\w+)", text)) <= set(project["project"]["optional-dependencies"])
    assert "make setup EXTRA=${EXTRA}" in text
    for line in re.findall(r"^COPY (.+) \S+$", text, flags=re.MULTILINE):
        assert all((REPOSITORY / name).exists() for name in line.split()), line
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert all(f"COPY {name} {name}" in text for name in packages)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "magicrl.service").read_text()
    path = tmp_path / "magicrl.service"
    path.write_text(re.sub("ExecStart=.*", "ExecStart=/bin/true", unit).replace("User=magicrl\n", ""))
    environment = os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    result = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60, env=environment
    )
    complaints = [line for line in result.stderr.splitlines() if "magicrl" in line]
    assert not complaints
