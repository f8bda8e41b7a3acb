"""The contract of a speed-up: one file declares it, and choosing, proof, table, schema and documentation walk the registry.

A declaration imports nothing heavy when it is imported: the configuration asks the registry for names. What a speed-up
needs of PyTorch it imports in its methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dynotune.speedups.expectation import Expectation

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from dynotune.config.whole import WholeConfig
    from dynotune.model.aside import Aside
    from dynotune.model.precision import Precision
    from dynotune.plan.plan import Plan
    from dynotune.speedups.site import Site

Setting = Literal["auto", "on", "off"]
"""`auto`: where it is applicable; if the proof fails it is taken out and said. `on`: proved, or the run stops. `off`."""


class Kind(StrEnum):
    """What it does to the result."""

    EXACT = "exact"
    """The same mathematics."""

    NUMERIC = "numeric"
    """Intermediates in lower precision than the plain path has."""

    BEHAVIOURAL = "behavioural"
    """Another result."""


class Scope(StrEnum):
    """What it changes, which says how two settings can be compared."""

    PLAN = "plan"
    """How a step is laid out."""

    MODEL = "model"
    """Modules of the model; reversible in the process."""

    STEP = "step"
    """What stands around forward and backward; reversible in the process."""

    PROCESS = "process"
    """The process: the two settings need one each."""


class Order(IntEnum):
    """When it is installed. Within one, in the order of the registry."""

    LAYOUT = 5
    """What kernels must be able to take."""

    KERNELS = 10
    LORA = 20
    CHECKPOINTING = 30
    EXECUTION = 40
    """Packed execution is tried out on the model with all of the above in it."""

    HEAD = 45
    COMPILE = 50
    SHARDING = 60
    GRAPHS = 70
    STEP = 80


@dataclass(frozen=True, slots=True)
class No:
    """Not here."""

    reason: str
    """Why, as the end of a sentence: `there is no kernel for the CPU`."""

    remedy: str = ""
    """What would make it possible, as an imperative; empty where nothing would."""

    expected: bool = False
    """Whether nobody is surprised (no GPU, no adapter, another of its slot runs): `auto` then does not mention it."""

    no_place: bool = False
    """The model has nothing that it could stand in for. That stops no run whose key asks for several speed-ups."""

    beside: str = ""
    """The speed-up beside which it cannot be, and without which it is to be tried again."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a speed-up may ask before anything is installed."""

    config: "WholeConfig"
    model: "PreTrainedModel"
    """Where `live` is False its skeleton on the meta device."""

    device: "torch.device"
    """The one that will compute; where `live` is False perhaps not one of this machine."""

    compute: "torch.dtype"
    """The precision of matrix products."""

    precision: "Precision"
    longest: int
    """Tokens of the longest document that will come."""

    live: bool = True
    """False: `dynotune plan` asks, and nothing can be tried on the model or the device."""

    plan: "Plan | None" = None
    """The run's steps, not laid out yet. None where nobody has planned."""

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def has_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")

    @property
    def parameters(self) -> int:
        """Of the whole model, with its adapters."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def work(self) -> str:
        """The kind of work, for what is remembered of it: `sft of LlamaForCausalLM under LORA`."""
        from dynotune.model.base import base_of

        adapters: Any = getattr(self.model, "peft_config", {})
        kinds = sorted({str(getattr(one.peft_type, "value", one.peft_type)) for one in adapters.values()})
        under = f" under {' and '.join(kinds)}" if kinds else ""
        return f"{self.config.method.command} of {type(base_of(self.model)).__name__}{under}"


@dataclass(frozen=True, slots=True)
class Ahead:
    """How a run will execute its steps, once that is decided."""

    engaged: Callable[[], AbstractContextManager[Any]]
    """What a forward pass and its backward run in."""

    longest: int
    """Tokens of the longest document that will come."""

    micro_batches: Mapping[int, int]
    """Token counts of micro-batches to how many of them the run has, or its first epoch. Those with 0 may come in others."""

    tokens_a_step: float
    """Processed tokens."""

    instead: Callable[[], AbstractContextManager[Any]]
    """Inside, what would run if the speed-up that is asked did not: what to compare with."""

    say: Callable[[str], None]
    """For what takes long: a sentence before it begins."""


@dataclass(slots=True)
class Installation:
    """A speed-up where it stands."""

    uninstall: Callable[[], None]
    """Takes it out; the model and the site are then as before. Twice is once."""

    places: tuple[str, ...] = ()
    """Modules, by name, where it stands in."""

    left_out: tuple[str, ...] = ()
    """Modules that it is for and where it is not, each with the reason (`model.norm: a hook watches it`). The proof counts
    them: it is then *partial* at best."""

    excepted: tuple[str, ...] = ()
    """Modules where nobody expects it, since they compute something else, likewise. The proof does not count them."""

    lines: tuple[str, ...] = ()
    """What is to be said at the start."""

    warm_up: Callable[[Ahead], Sequence[str]] | None = None
    """Does before the first step what a step would otherwise wait for; returns what is to be said."""

    report: Callable[[], Mapping[str, Any]] | None = None
    """What it has measured, for engagement.json."""

    notes: Callable[[], Sequence[str]] = lambda: ()
    """What is to be said when the run is over."""

    forwards: "Sequence[tuple[nn.Module, Any]]" = ()
    """Modules, and what stands in the place of each one's forward."""

    aside: "Aside | None" = None
    """Counts the calls that it left to the modules' own operations."""

    wide_in_backward: int = 0
    """Tensors as wide as a layer's widest that the backward pass holds at once on its account, beside those that it holds
    without it: for the estimate of memory (`dynotune.measure.memory.WORKING_COPIES_OF_KERNELS`)."""

    without: Callable[[], AbstractContextManager[Any]] | None = None
    """Inside, it is out of the way; unset: `forwards` are taken out. For `Installed.without`."""

    detail: Any = None
    """For `expect`: whatever `install` wants to remember."""


class Speedup(ABC):
    """One optimisation. A subclass in a file of its own, decorated with `dynotune.speedups.registry.register`."""

    name: ClassVar[str]
    """Its key under `speedups:`, in snake_case."""

    summary: ClassVar[str]
    """One sentence: what it does, for the table and the documentation."""

    proof: ClassVar[str] = ""
    """What its proof looks for, in a sentence, for the documentation."""

    kind: ClassVar[Kind] = Kind.EXACT
    scope: ClassVar[Scope] = Scope.MODEL
    order: ClassVar[Order] = Order.KERNELS
    default: ClassVar[Literal["auto", "off"]] = "auto"
    """`auto` for exact ones only."""

    requires: ClassVar[tuple[str, ...]] = ()
    """Speed-ups without which it cannot be."""

    conflicts: ClassVar[tuple[str, ...]] = ()
    """Speed-ups that cannot be beside it. Of two that are both `auto` the one with the lower `rank` is taken."""

    gives_way: ClassVar[bool] = False
    """Where memory is short, it is taken out for a policy of activation memory that it cannot be beside, if `auto`. While
    such a policy is counted and tried out it is out of the way, for which its installation needs `forwards` or `without`."""

    in_skeletons: ClassVar[bool] = False
    """Whether `install` can put it into a skeleton, too, whose linears and kernels keep what those of a run keep: there the
    estimate of memory counts it as in a model that is loaded. One that cannot keeps as much as is kept without it."""

    slot: ClassVar[str | None] = None
    """Of speed-ups with the same slot one is installed: the first by `rank` that can be."""

    worth_beside: ClassVar[str | None] = None
    """The slot without which `worth` may refuse it: an attribution measures it beside the one that stands there."""

    shown_by_steps_before: ClassVar[bool] = False
    """Whether the proof lies in the steps before the traced one. Where there were none, *unknown* stops no run."""

    touches: ClassVar[tuple[str, ...]] = ()
    """Classes of a step's time that it can shorten, as `measure.kernel_classes.Work` names them: what a profile takes for
    the most that it could gain."""

    package: ClassVar[str | None] = None
    """The optional package that it needs, by its name in `dynotune.accelerators`."""

    follows: ClassVar[str] = ""
    """A key of what is learned (`optim`) that it is a part of, where it is no switch: it is in force exactly where `asked`
    says so by that key, `speedups:` cannot set it, and a plain path has it too. Empty: it is a switch."""

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        """What another key of the configuration asks of it (`use_liger_kernel: true`), and that key as written; None where
        none does. `speedups:` wins over it."""
        return None

    def why_no_switch(self, config: "WholeConfig") -> str:
        """As the end of a sentence, with the key that it follows as written; empty where it is a switch."""
        if not self.follows:
            return ""
        written = (self.asked(config) or ("", self.follows))[1]
        return f"it is no switch, since it changes what is learned: it follows `{written}`"

    def rank(self, context: Context) -> int:
        """Place among those of its slot, lowest first: by measurement, which the declaration names."""
        return 0

    def worth(self, context: Context, slots: Collection[str]) -> No | None:
        """Why one that is `auto` would cost more than it gains beside what else is taken, by the slots that have one; None
        where it would not. Asked when speed-ups are chosen, and of what stands once kernels have been tried."""
        return None

    @abstractmethod
    def applicable(self, context: Context) -> No | None:
        """None where it can be tried. Cheap, and without running anything."""

    @abstractmethod
    def install(self, site: "Site") -> Installation | No:
        """Put it in, trying out what it needs; No where that shows that it cannot be. Leaves nothing behind then."""

    @abstractmethod
    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        """What a traced step must show."""
