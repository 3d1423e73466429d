"""The process behind one tracker: reads JSON lines from standard input until it ends.

python -m ops.telemetry.tracker_process tensorboard '{"run": "r", "folder": "runs/r"}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Backend(Protocol):
    """One tracking library."""

    def config(self, settings: Mapping[str, Any]) -> None:
        """Write the run's configuration, flat."""
        ...

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Write the numbers of one step."""
        ...

    def close(self) -> None:
        """Flush, and end the run's record."""
        ...


class TensorBoard:
    """Event files in the run's folder, without torch or TensorFlow."""

    def __init__(self, run: str, folder: str, **_: Any) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(Path(folder) / "tensorboard"))
        self._begun = False

    def config(self, settings: Mapping[str, Any]) -> None:
        """Write nothing: TensorBoard shows numbers; the configuration is in config.yaml beside them."""

    def step(self, step: int, values: Mapping[str, float]) -> None:
        if not self._begun:
            # This step and later ones replace those that an earlier life of the run wrote.
            start = self._event.SessionLog(status=self._event.SessionLog.START)
            self._write(step, session_log=start)
            self._begun = True
        items = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._write(step, summary=self._summary.Summary(value=items))

    def close(self) -> None:
        self._writer.close()

    def _write(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=step, **content))


class Wandb:
    """Weights & Biases; a run continues under its own name."""

    def __init__(self, run: str, folder: str, project: str, entity: str | None, mode: Any) -> None:
        import wandb

        self._run = wandb.init(
            id=run, name=run, project=project, entity=entity, mode=mode, dir=folder, resume="allow"
        )

    def config(self, settings: Mapping[str, Any]) -> None:
        self._run.config.update(dict(settings), allow_val_change=True)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Mlflow:
    """MLflow; a resume continues its run by the id kept in the run's folder."""

    def __init__(self, run: str, folder: str, uri: str | None, experiment: str) -> None:
        import mlflow

        self._mlflow = mlflow
        memory = Path(folder) / "mlflow_run_id"
        if uri is None and not os.environ.get("MLFLOW_TRACKING_URI"):
            raise ValueError("set trackers.mlflow.uri, or MLFLOW_TRACKING_URI in the environment")
        if uri is not None:
            mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(experiment)
        known = memory.read_text(encoding="utf-8") if memory.exists() else None
        memory.write_text(mlflow.start_run(known, run_name=run).info.run_id, encoding="utf-8")

    def config(self, settings: Mapping[str, Any]) -> None:
        # Parameters of a run cannot change, tags can: a resume may change settings.
        self._mlflow.set_tags({name.replace("/", "."): str(value)[:500] for name, value in settings.items()})

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


BACKENDS = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": Mlflow}


def main(kind: str, settings: str) -> None:
    """Pass the messages on standard input to one backend until they end."""
    backend: Backend = BACKENDS[kind](**json.loads(settings))
    for line in sys.stdin:
        message = json.loads(line)
        if "config" in message:
            backend.config(message["config"])
        else:
            backend.step(message["step"], message["values"])
    backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
