"""The run folder: everything a run leaves behind, each file written whole or not at all."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.errors import ConfigError

LEAVINGS = ("metrics.jsonl", "checkpoints", "model", "adapter")


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: Path, held: tuple[str, ...] = ()) -> None:
        """`held`: what an earlier run left here that `clear` will remove."""
        self.path, self.held = path, held
        self.metrics, self.checkpoints = path / "metrics.jsonl", path / "checkpoints"

    @classmethod
    def open(cls, output_dir: str | None, overwrite: bool, resume: bool, kind: str = "sft") -> "RunFolder":
        """Make the folder, or refuse one that holds another run which would be lost."""
        path = Path(output_dir) if output_dir else Path("runs") / time.strftime(f"{kind}-%Y%m%d-%H%M%S")
        held = [name for name in LEAVINGS if (path / name).exists()]
        if held and not resume and not overwrite:
            raise ConfigError(
                f"`output_dir: {path}` already holds a run ({', '.join(held)}). Go on with it"
                " (`resume_from_checkpoint: true`), replace it (`overwrite_output_dir: true`), or name another folder."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"`output_dir: {path}` cannot be written: {error.strerror}. Name another folder."
            ) from error
        return cls(path, () if resume else tuple(held))

    def clear(self) -> None:
        """Remove the run that is being replaced, so that nothing of it can be taken for the new one's.

        Called when the new run is about to take its first step: one that fails before costs the old one nothing.
        """
        import shutil

        for name in (*self.held, "samples.jsonl", "loss.svg", "README.md") if self.held else ():
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replace a file in one motion: a reader sees the old one or the new one."""
        target = self.path / name
        half = target.with_name(f".{target.name}.{os.getpid()}")
        half.write_text(text, encoding="utf-8")
        half.replace(target)

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add one line to a .jsonl file."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def forget_after(self, step: int) -> None:
        """On resume, move metrics of steps that will be done again to `metrics.repeated.jsonl`."""
        if not self.metrics.exists():
            return
        rows = [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines() if line]
        later = [row for row in rows if row["step"] > step]
        if later:
            for row in later:
                self.append("metrics.repeated.jsonl", row)
            kept = [row for row in rows if row["step"] <= step]
            self.write_text("metrics.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))
