"""Where a run is kept, on which device it runs, and what makes it repeatable."""

import unicodedata
from typing import Any, Literal

from pydantic import Field, field_validator

from dynotune.config.keys.topic import Topic
from dynotune.config.reading.duration import FORMS, seconds_of

_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (they reverse the direction of text), halves of characters, line ends."""


class RunConfig(Topic):
    output_dir: str | None = None
    """The run folder. Default: `runs/sft-<date>-<time>` in the current folder."""

    overwrite_output_dir: bool = False
    """Let a new run replace the run that `output_dir` already holds. Without it such a folder is refused."""

    run_name: str | None = None
    """The run's name in trackers. Default: the last part of `output_dir`."""

    seed: int = Field(default=42, ge=0, lt=2**32)
    """Seed of weights that are initialised, of dropout, and of the order of examples unless `data_seed` is given."""

    full_determinism: bool = False
    """Make PyTorch use deterministic kernels or fail. Slower on GPUs."""

    use_cpu: bool = False
    """Run on the CPU although a GPU is there."""

    gpus: int | None = Field(default=None, ge=1, le=1024)
    """Train on so many GPUs of this machine, one process each, with data parallel; with `use_cpu: true` in so many processes
    on the CPU. Default: one, or as many as torchrun started."""

    ddp_timeout: int = Field(default=1800, ge=1)
    """Seconds without progress after which a process of several is taken to hang: the job then ends and names it."""

    tf32: bool | None = None
    """Allow TensorFloat-32 in fp32 matrix products on GPUs (numeric). Default: PyTorch's own setting."""

    device_peak_tflops: float | None = Field(default=None, gt=0)
    """The dense bf16 peak of one device in TFLOP/s, for MFU: from its data sheet, without sparsity, with fp32 accumulation.
    Every output says that it was given by you. Default: a table of devices by exact name; no MFU on others."""

    disable_tqdm: bool | None = None
    """Switch the progress display off. Default: shown on a terminal only."""

    resume_from_checkpoint: str | bool | None = None
    """`true`: go on from the newest checkpoint in `output_dir`; a path: from that checkpoint."""

    max_time: float | str | None = None
    """Wall-clock limit of this process: seconds, `5h`, `90m`, or Slurm's `1-02:00:00`. Before it is over, a checkpoint is
    saved and the run leaves, to be gone on with (exit code 75). A resumed run has the whole time again."""

    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables set before anything is loaded. Their values are never written down. Variables that choose
    which code runs (`PATH`, `LD_*`, `PYTHON*`, ...) are refused: set them in the shell."""

    on_nonfinite_step: Literal["stop", "skip"] = "stop"
    """A step whose loss or gradient is not finite never reaches the weights. Then `stop` ends the run, with the step before
    saved and the step's examples and likely culprit named; `skip` reports them and goes on."""

    max_nonfinite_steps: int = Field(default=10, ge=1)
    """With `on_nonfinite_step: skip`: the run ends at one such step more than this, resumed parts counted."""

    max_consecutive_nonfinite_steps: int = Field(default=3, ge=1)
    """The same for such steps one after another."""

    @field_validator("max_time", mode="before")
    @classmethod
    def _is_a_length_of_time(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"`{value}` is not a length of time. Write {FORMS}.")
        if isinstance(value, int | float | str):
            seconds_of(str(value))
        return value

    @property
    def max_seconds(self) -> float | None:
        """`max_time` in seconds."""
        return None if self.max_time is None else seconds_of(str(self.max_time))

    @field_validator("run_name", mode="after")
    @classmethod
    def _is_one_line(cls, name: str | None) -> str | None:
        # It stands in the model card, in trackers and on the terminal, where control characters do things.
        if any(unicodedata.category(character) in _CONTROLS for character in name or ""):
            raise ValueError("it holds line breaks or control characters. Write a name on one line.")
        return name
