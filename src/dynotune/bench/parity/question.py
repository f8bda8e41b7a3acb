"""What a probe is asked, and what it answers: figures and tensors in a safetensors file, never a pickle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor

from dynotune.errors import DataError

SEED = 20_250
"""Of everything that a probe draws: an adapter's start, noise on a policy, made-up gradients."""

FACTS = "dynotune"
"""Under which the figures stand in the file's own metadata."""


@dataclass(frozen=True, slots=True)
class Question:
    """One step of one arm."""

    name: str
    """Of the answer's file."""

    precision: Literal["float32", "own"] = "float32"
    """`float32`: without TensorFloat-32 and autocast. `own`: as the arm computes."""

    plain: bool = False
    """One document at a time, stock transformers forward, no speed-up: what both arms are measured against."""

    split: Literal["least", "whole"] = "least"
    """Where the arm packs: micro-batches as small as the longest example allows, or one for all."""

    rows: tuple[int, ...] = ()
    """Examples by their number in the plan. Empty: the probe chooses them."""

    seed: int = SEED
    kind: Literal["step"] = "step"


@dataclass(frozen=True, slots=True)
class Course:
    """Some steps of training, in the arm's own precision."""

    name: str
    steps: int
    reordered: bool = False
    """The micro-batches of each step the other way round: the same sums in another order, whose rounding shows how far two
    right trajectories are apart."""

    kind: Literal["course"] = "course"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Training from another seed, and then the loss on rows that were held out."""

    name: str
    seed: int
    steps: int = 0
    share: float = 0.0
    """Of an epoch, in place of `steps`: so arms with other batches see the same number of examples."""

    kind: Literal["held out"] = "held out"


Asked = Question | Course | HeldOut


def asked_from(given: Mapping[str, Any]) -> Asked:
    """From JSON."""
    if given["kind"] == "course":
        return Course(**given)
    if given["kind"] == "held out":
        return HeldOut(**given)
    return Question(**{**given, "rows": tuple(given["rows"])})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step came to. Tensors by name: `loss/ROW` [label tokens, or 1 of a pair], `logps/ROW` and `labels/ROW` [2] of a
    pair, then `gradient/NAME`, `update/NAME` and `drawn/NAME` of parameters. Of other questions there are only facts."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def failed(self) -> str:
        """Why there is no answer, in the arm's own words; empty where there is one."""
        return str(self.facts.get("failed", ""))

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(self.facts["rows"])

    @property
    def precision(self) -> str:
        """In which weights are kept and products computed: `float32, computed in bfloat16`."""
        return str(self.facts["precision"])

    @property
    def is_exact(self) -> bool:
        """Whether it is float32 throughout."""
        return self.precision == "float32, computed in float32"

    def each(self, kind: str) -> dict[str, Tensor]:
        """The tensors of a kind, by what stands behind it, in one order for all answers."""
        start = f"{kind}/"
        return {name[len(start) :]: self.tensors[name] for name in sorted(self.tensors) if name.startswith(start)}

    def write(self, path: Path) -> None:
        from safetensors.torch import save_file

        save_file({k: v.contiguous() for k, v in self.tensors.items()}, path, {FACTS: json.dumps(self.facts)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `DataError` where the file is none of a probe."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                facts = (file.metadata() or {}).get(FACTS)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} cannot be read as the answer of a parity probe: {error}.") from error
        if facts is None:
            raise DataError(f"{path} is no answer of a parity probe: it has no figures.")
        return cls(json.loads(facts), tensors)
