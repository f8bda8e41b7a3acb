"""What was observed of a training run, whoever trained: the only thing that the analysis reads.

Dynotune's own loop and a script of somebody else fill in the same record. What one cannot know is None or empty, and the
analysis says then what it cannot tell. JSON both ways; `profile --record` keeps it, so that a profile can be read again
elsewhere. The files hold no paths, host names or values of variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from dynotune.measure.calibration import Ceilings
from dynotune.measure.evidence import Evidence, Source
from dynotune.measure.traces.attribution import Attribution
from dynotune.measure.traces.events import Events
from dynotune.measure.traces.step import add_up
from dynotune.profile.records.columns import events_of_json, events_to_json, where_of_json, where_to_json

FORMAT = 1
"""Number of the record's format."""

__all__ = [
    "Ceilings", "Environment", "Memory", "ModelFacts", "Record", "SpeedupState", "TimedStep", "Traced", "WarmUp",
    "WeightGroup", "of_plain",
]  # fmt: skip

LOG, EVALUATE, SAVE = "log", "evaluate", "save"
"""What can happen in a step beside training, in `TimedStep.happened`. Others are said by their own name."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step without a profiler: from the end of the step before to its own end, so that nothing between steps is lost."""

    number: int
    """Of the run, from 1."""

    seconds: float
    """By the device's clock where there is one (between two events behind the steps' last work), else the host's."""

    host_seconds: float | None = None
    """By the host's clock, between the same two places in the program."""

    data_wait: float | None = None
    """Seconds of it in which the host waited for a batch."""

    real_tokens: int | None = None
    processed_tokens: int | None = None
    """With padding."""

    label_tokens: int | None = None
    happened: tuple[str, ...] = ()
    compilations: int = 0
    """Graphs that torch.compile made in it."""

    model_flops: int | None = None
    """By the strict count, of all devices; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One step under the profiler. Nothing of its time is used but how it is shared out: a profiler slows the host."""

    number: int
    events: Annotated[Events, PlainValidator(events_of_json), PlainSerializer(events_to_json)]
    where: Annotated[Attribution, PlainValidator(where_of_json), PlainSerializer(where_to_json)]
    """As `measure.trace.Tracer` gives both."""

    micro_batches: int = 1
    watched: tuple[str, ...] = ()
    """Modules that had a range of their own."""

    lengths: tuple[int, ...] = ()
    """Tokens of each document (attention-isolated span) of this device's part of the step, where they are known."""

    real_tokens: int | None = None
    processed_tokens: int | None = None
    label_tokens: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """As `Evidence.facts`, plain values: `tokens` and `labels` by micro-batch, `vocabulary`, `compute`, `compile`, ..."""

    def evidence(self, device: str) -> Evidence:
        """The same step as what the absences and expectations of speed-ups read."""
        seen = tuple(add_up(self.events, self.where))
        return Evidence(
            step=self.number,
            device=device,
            has_device_events=any(one.source is Source.KERNEL for one in seen),
            seen=seen,
            micro_batches=self.micro_batches,
            watched=frozenset(self.watched),
            facts=self.facts,
        )


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Parameters that lie in one place in one precision."""

    device: str
    """`cuda:0`, `cpu`, `meta`, `disk`."""

    dtype: str
    """`bfloat16`."""

    trained: bool
    parameters: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model as it stood while the steps ran."""

    name: str = ""
    """Class: `Qwen2ForCausalLM`."""

    weights: tuple[WeightGroup, ...] = ()
    asked_precision: str = ""
    """That matrix products were asked to run in (`bfloat16` for `bf16: true`); empty where nobody asked."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    """Of keys and values; None in records from before it was kept, too."""

    head_dim: int | None = None
    vocabulary: int | None = None
    adapter_ranks: tuple[int, ...] = ()
    """Of LoRA, each once; empty without adapters."""

    head_places: tuple[str, ...] = ()
    """Modules, by name, that make logits."""

    attention: str = ""
    """`sdpa`, `eager`, `flash_attention_2`, `varlen` ..."""

    quantised: str = ""
    """`4-bit`; empty where it is not."""

    checkpointing: bool | None = None
    """Whether layers are computed a second time in the backward pass."""

    evaluation_mode: bool = False
    """Whether it trains in that, since nobody called `train()`."""

    device_map: Mapping[str, str] = field(default_factory=dict)
    """Modules to devices, where a model was split."""

    @property
    def parameters(self) -> int:
        return sum(one.parameters for one in self.weights)

    @property
    def trained(self) -> int:
        return sum(one.parameters for one in self.weights if one.trained)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the device while the timed steps ran; None on the CPU."""

    peak_allocated: int | None = None
    peak_reserved: int | None = None
    total: int | None = None
    retries: int | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where it ran."""

    device: str = "cpu"
    """`cuda` or `cpu`."""

    machine: Mapping[str, str] = field(default_factory=dict)
    """As `speedups.machine.Machine`: names and versions, by field."""

    world: int = 1
    """Devices that share the steps."""

    gpus: int | None = None
    """That PyTorch sees here, whether they were used or not."""

    cores: int | None = None
    threads: int | None = None
    """Of PyTorch in this process."""

    tf32: bool | None = None
    """Whether float32 products on a GPU may be TF32; None on the CPU, or where it is not known."""

    loader_workers: int | None = None
    """Processes or threads that make batches ahead; 0: the training thread makes them. None: not known."""

    pinned: bool | None = None
    """Whether batches come from pinned memory."""

    file_systems: Mapping[str, str] = field(default_factory=dict)
    """By what lies there (`data`, `token store`, `output`), the kind of file system: `ext4`, `nfs4`, `fuse.s3fs`."""

    variables: tuple[str, ...] = ()
    """Names, and only these with values, of variables that bear on speed (`OMP_NUM_THREADS=1`)."""


@dataclass(frozen=True, slots=True)
class SpeedupState:
    """What became of one of the registry."""

    name: str
    kind: str
    state: str
    """`installed`, `off` (the user said so) or `left out`."""

    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What came before the timed steps."""

    steps: int = 0
    seconds: float = 0.0
    events: tuple[str, ...] = ()
    """`2 compilations at step 1`."""

    note: str = ""
    """Why the run was not yet steady when it was timed; empty where it was."""

    compiled: tuple[int, ...] = ()
    """Steps of it in which torch.compile made graphs. Of somebody else's script the first step is none of them."""

    limits_met: int = 0
    """Functions that torch.compile has given up by the end of the timed steps, since they had been compiled too often."""

    limit: int | None = None
    """How often that is."""


@dataclass(frozen=True, slots=True)
class Record:
    """One profiled run."""

    trainer: Literal["dynotune", "trl", "transformers", "torch"]
    """Whose loop. Remedies are said in its settings."""

    timed: tuple[TimedStep, ...]
    traced: tuple[Traced, ...]
    """May be empty: what a trace would tell is not told then."""

    environment: Environment = field(default_factory=Environment)
    model: ModelFacts = field(default_factory=ModelFacts)
    memory: Memory = field(default_factory=Memory)
    ceilings: Ceilings = field(default_factory=Ceilings)
    warm_up: WarmUp = field(default_factory=WarmUp)
    method: str = "sft"
    optimizer: str = ""
    """Class and, where it matters, how: `AdamW (for-loop)`, `AdamW (foreach)`, `AdamW (fused)`."""

    speedups: tuple[SpeedupState, ...] = ()
    """Of Dynotune's own runs."""

    measuring: str = ""
    """How a change is measured: a command with `{change}` in it (`dynotune bench --config x.yaml --set {change}`), or of a
    script beside an edited copy (`dynotune bench -- python a.py :: python a_edited.py`). Empty where none is known."""

    arguments: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Of somebody else's Trainer, those that bear on speed."""

    own_seconds: Mapping[int, float] = field(default_factory=dict)
    """By rank, what a step takes it without communication and the wait for others (`profile.ranks`); empty: not known."""

    notes: tuple[str, ...] = ()
    """What could not be observed, and why."""

    format: int = FORMAT
    when: str = ""
    """ISO 8601."""


Part = TypeVar("Part")


def of_plain(part: type[Part], told: Mapping[str, Any]) -> Part:
    """A record, or one of its parts, from plain values. Raises pydantic's `ValidationError`."""
    return TypeAdapter(part).validate_python(told)
