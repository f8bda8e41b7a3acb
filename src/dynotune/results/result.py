"""What a bench leaves behind, as it stands in its JSON: everything that its table, its page and its verdicts are made of.

Times are in seconds, memory in bytes, shares between 0 and 1. An *arm* is one configuration. A *block* is a few steps of one
arm on documents that the other arm of its pair gets too. A ratio is that of tokens of documents a second, arm over baseline,
unless it says otherwise.
"""

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from dynotune.errors import DataError

FORMAT = 1
"""Number of the format. A file of another number is not read."""

LARGEST = 1 << 28
"""Bytes of a file that is read."""


OUT_OF_MEMORY = "out of memory"
"""With which the reason begins why an arm failed, where that is it."""


class Part(BaseModel):
    """Of a result. Unknown keys are refused: they would be of another version, and dropped in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Verdict(StrEnum):
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNRESOLVED = "UNRESOLVED"
    NOT_COMPARABLE = "NOT COMPARABLE"
    SUSPECT = "SUSPECT"


class MemoryVerdict(StrEnum):
    MORE = "MORE MEMORY"
    LESS = "LESS MEMORY"
    SAME = "SAME MEMORY"


class Tier(StrEnum):
    """Where the arms live."""

    SWITCH = "one process, switched"
    RESIDENT = "one process an arm, taking turns"
    FRESH = "a fresh process a block"


class Interval(Part):
    """Low, estimate, high: 95 %."""

    low: float
    estimate: float
    high: float


class Clocks(Part):
    """What a side process saw of the device while a block ran. None: it cannot be read here."""

    samples: int = 0
    sm_mhz: float | None = None
    """Mean."""

    power_watts: float | None = None
    celsius: float | None = None
    utilisation_mean: float | None = None
    utilisation_p95: float | None = None
    throttled: tuple[str, ...] = ()
    """Reasons, by their names; those that are always there, such as the power cap under full load, are among them."""

    other_processes: int = 0
    steal: float | None = None
    """Share of the processors' time that the host gave to others."""


class Block(Part):
    """Some steps of one arm, measured whole: waiting for data, optimizer and logging are in it."""

    arm: str
    pair: int
    """Pairs count from 0; those of A against A are numbered apart."""

    first_step: int
    steps: int
    """0, here and in the counts below: a command that is not ours did not report it."""

    examples: int
    documents: int
    real_tokens: int
    label_tokens: int
    processed_tokens: int
    seconds: float
    """Wall time, the device's work included."""

    wall_seconds: float | None = None
    """Of the whole process, where a block is one: what `seconds` leave of it is set-up."""

    step_seconds: tuple[float, ...] = ()
    """Of each step, by the device's events where there are some."""

    device_seconds: float | None = None
    """By the device's events: where it differs from `seconds`, the host decides."""

    flops: float | None = None
    """Of the model, strict; None where they are not known."""

    loss: float | None = None
    """The last that was logged in it: of one step, or the mean of `logging_steps` of them."""

    sequence_tokens: int = 0
    """What documents hold, one by one: more than the real tokens where several begin alike and that is computed once, and
    where their last tokens are not computed. 0 in results of before it was told."""

    recompiles: int = 0
    segments: int = 0
    """New segments of device memory. Not counted where each block begins in a process of its own, since there they are no
    event."""

    retries: int = 0
    """Of the allocator."""

    clocks: Clocks = Clocks()
    of_noise: bool = False
    """Of a pair of an arm against itself."""

    void: str | None = None
    """Why it does not count, as the end of a sentence; it was measured again."""

    @property
    def of_pairs(self) -> bool:
        """Whether an example is two documents."""
        return self.documents == 2 * self.examples > 0

    @property
    def tokens(self) -> int:
        """Of documents, each by itself: what speed is told of. An arm that computes a common beginning once, or no last
        tokens, does the same work with fewer real tokens, and is not slower for it."""
        return max(self.sequence_tokens, self.real_tokens)

    @property
    def rate(self) -> float:
        """Tokens of documents a second."""
        return self.tokens / self.seconds


class WarmUp(Part):
    """What came before an arm was level."""

    steps: int
    seconds: float
    first_step_seconds: float
    set_up_seconds: float
    """From the start of the process, or of the arm, to its first step: loading, checks, trying out, compiling ahead."""

    compile_seconds: float = 0.0
    trace_seconds: float = 0.0
    """What tracing a step took besides that step, reading included."""

    events: tuple[str, ...] = ()
    """What moved, in words: `2 compilations at step 1`."""

    stationary: bool = True


class Memory(Part):
    """Of a fresh process on the largest micro-batch that the plan could make, with the optimizer's states."""

    tokens: int
    allocated: int
    reserved: int | None = None
    """None: a command that is not ours reports one peak."""

    device: int | None = None
    """As the device's own counter gives it: with the context and what libraries take."""

    retries: int = 0
    typical_allocated: int | None = None
    """The same after a micro-batch of middling size."""


class Engaged(Part):
    """Whether one speed-up was seen in a traced step of this bench."""

    name: str
    state: str
    """As the engagement table has it: engaged, partial, not engaged, unknown, out."""

    seen: int | None = None
    expected: int | None = None
    evidence: str = ""


class Check(Part):
    """One quantity of the parity gate."""

    gate: Literal["P1", "P2", "P3", "P4"]
    quantity: str
    """`loss of each token`, `gradient`, `one update`, `label tokens` ..."""

    observed: float
    bound: float
    ok: bool
    detail: str = ""


class Parity(Part):
    """Whether an arm makes the updates of its baseline."""

    arm: str
    against: str
    kind: Literal["exact", "numeric", "behavioural", "unchanged"]
    state: Literal["same", "within precision", "behavioural", "differs", "not checked"]
    checks: tuple[Check, ...] = ()
    first_difference: str = ""
    """Where it differs: the first quantity, with its value and bound."""

    why_not_checked: str = ""
    held_out: dict[str, tuple[float, ...]] = {}
    """Of behavioural arms: loss on held-out data by arm, a value a seed."""


class Arm(Part):
    """One configuration and everything that was measured of it."""

    name: str
    settings: dict[str, Any]
    """Keys in which it differs from the first arm, with their values. Empty for the first."""

    config: dict[str, Any] = {}
    """The whole configuration, without secrets."""

    devices: int | None = None
    """That it trained on; None: as many as the result says."""

    failed: str | None = None
    """Why it could not be measured: `out of memory at 32,768 tokens`. Its figures are then absent."""

    examples_a_step: int | None = None
    steps_an_epoch: int | None = None
    blocks: tuple[Block, ...] = ()
    """In the order in which they ran, void ones and those of noise too."""

    warm_up: WarmUp | None = None
    switch_seconds: tuple[float, ...] = ()
    """Where arms share a process: what each change back to this one took."""

    memory: Memory | None = None
    engaged: tuple[Engaged, ...] = ()
    gpu_seconds: float = 0.0
    """Wall time that the arm held a device, times devices; warm-up and checks included."""

    mfu: float | None = None
    final_loss: float | None = None
    """The last that it was seen to have."""

    final_loss_of: str = ""
    """Of what: `its last block, of weights that all arms train in turn`, of which it says nothing of who
    learns better. Empty in results of before it was told, which have none of shared weights."""

    said: tuple[str, ...] = ()
    """What its run said of how it executes."""

    @property
    def failure(self) -> str:
        """In a table's cell: `out of memory`, which is a result like any other, or `failed`; empty where it did not."""
        if self.failed is None:
            return ""
        return OUT_OF_MEMORY if self.failed.startswith(OUT_OF_MEMORY) else "failed"

    @property
    def counted(self) -> tuple[Block, ...]:
        """The blocks that count."""
        return tuple(block for block in self.blocks if block.void is None and not block.of_noise)

    @property
    def fill(self) -> float | None:
        processed = sum(block.processed_tokens for block in self.counted)
        return sum(block.real_tokens for block in self.counted) / processed if processed else None

    @property
    def shares(self) -> bool:
        """Whether it computes once what both answers of a pair begin with."""
        return any(block.tokens > block.real_tokens > 0 and block.of_pairs for block in self.counted)

    def per_second(
        self, name: Literal["tokens", "label_tokens", "processed_tokens", "documents", "examples"]
    ) -> float | None:
        """A rate over all blocks that count."""
        seconds = sum(block.seconds for block in self.counted)
        count = sum(getattr(block, name) for block in self.counted)
        return count / seconds if seconds and count else None

    @property
    def real_tokens_a_step(self) -> float | None:
        """That a step computes, over all blocks that count."""
        steps = sum(block.steps for block in self.counted)
        return sum(block.real_tokens for block in self.counted) / steps if steps else None

    @property
    def seconds_a_step(self) -> float | None:
        steps = sum(block.steps for block in self.counted)
        return sum(block.seconds for block in self.counted) / steps if steps else None


class Comparison(Part):
    """One arm against another: a change alone, added last, the step of a ladder, or all together."""

    arm: str
    against: str
    label: str
    """The change, in words: `packed_execution`, `all`, `b.yaml`."""

    role: Literal["whole", "alone", "last", "interaction", "step"]
    ratio: Interval | None = None
    """None where nothing could be compared, or may be."""

    log_ratios: tuple[float, ...] = ()
    """Of each pair: ln(rate of the arm / rate of the other)."""

    median: float | None = None
    sign_flip_p: float | None = None
    verdict: Verdict
    why: str = ""
    """Of NOT COMPARABLE and SUSPECT: the reason, as the end of a sentence. Of UNRESOLVED: what it needs."""

    needs_more_pairs: int | None = None
    needs_more_seconds: float | None = None
    """GPU seconds that these would take, by what blocks of the two arms took so far, with changes between them."""

    memory: MemoryVerdict | None = None
    memory_ratio: float | None = None
    ceiling: float | None = None
    """The largest ratio that the share of the step which it touches allows; None: not known, or without end."""

    share: float | None = None
    """That share, at most, of the baseline's traced step."""

    no_ceiling: str = ""
    """Why it is not known, as the end of a sentence."""

    gated_by: str = ""
    """Where the gate was not asked of these two arms, of which it was that stand for them: `c against base, all against
    base`. Empty where it was asked of these two, or of none."""

    pays_back_after_steps: float | None = None
    """Until the extra compilation is made up for."""


class Noise(Part):
    """Of an arm against itself, in the same schedule."""

    log_ratios: tuple[float, ...]
    floor: float
    """Half the width within which two identical arms differ, as a share."""

    note: str = ""


class Sample(Part):
    """What was measured of the plan, and so what the result may speak of."""

    examples: int
    real_tokens: int
    examples_of_plan: int
    real_tokens_of_plan: int
    lengths: dict[str, tuple[int, int]]
    """Tokens of an example at the quantiles `5 %`, `50 %`, `95 %`, `max`: of the sample, of the plan."""

    sentence: str


class Expectation(Part):
    """Of `--expect`."""

    text: str
    observed: str
    met: bool | None
    """None where it could not be judged; that is not met either."""


class Withdrawn(Part):
    """A result that turned out wrong stays, with its correction beside it."""

    date: str
    why: str
    corrected_by: str = ""
    """Name of the result that stands in its place."""


class Result(Part):
    """One bench."""

    format: int = FORMAT
    definitions: int
    """`dynotune.measure.words.DEFINITIONS`."""

    name: str
    """Of its files: date and a few words."""

    label: str = ""
    """Words of whoever ran it, which are in its name; empty where none were given."""

    date: str
    kind: Literal["ab", "ladder", "attribute", "sweep", "revisions", "foreign"]
    command: str
    commit: str | None = None
    operating_point: str
    """In a line: model, method, hardware, data, examples a step, precision, seed."""

    machine: dict[str, Any]
    """`device` and the other fields of `dynotune.speedups.machine.Machine`, by which a history is kept; besides, versions of
    packages. No host, user or path."""

    devices: int = 1
    """That the first arm used, and every other that says nothing else: rates are said for one of them, ratios of all."""

    work: str = ""
    """`dynotune.speedups.contract.Context.work`, by which a run finds effects that were measured in its kind."""

    model: dict[str, Any] = {}
    tier: Tier
    why_tier: str = ""
    seed: int
    steps_a_block: int
    """0: a block is a whole process, of as many steps as it takes."""

    schedule: tuple[str, ...] = ()
    """Names of the arms in the order in which their blocks ran."""

    sample: Sample | None = None
    noise: Noise | None = None
    noise_caveat: str = ""
    """`noise floor from one pair: the budget ended the bench first`, or `no noise floor: ...`: fewer pairs of an arm against
    itself count than a bench has. Without a floor nothing is called FASTER or SLOWER."""

    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...] = ()
    parity: tuple[Parity, ...] = ()
    differences: tuple[str, ...] = ()
    """What the arms do differently, in sentences."""

    notes: tuple[str, ...] = ()
    """What the reader must know besides: `b decides on the host`, `not stationary`."""

    expectations: tuple[Expectation, ...] = ()
    sentence: str
    """The closing one."""

    gpu_seconds: float = 0.0
    budget_seconds: float | None = None
    withdrawn: Withdrawn | None = None
    cut_off: bool = False
    """Whether the bench did not come to its end: these are the rounds before that."""

    unfinished: str = ""
    """Why the budget ended it before anything could be compared, as the end of a sentence; empty where it did not."""

    @property
    def rungs(self) -> tuple[Arm, ...]:
        """Of a ladder: the base, and each change on top of those before it. Empty where none was asked for."""
        steps = [one for one in self.comparisons if one.role == "step"]
        return tuple(self.arm(name) for name in (*(one.against for one in steps[:1]), *(one.arm for one in steps)))

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def devices_of(self, arm: Arm) -> int:
        return arm.devices or self.devices

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `DataError` where the file is no result that this version reads."""
        try:
            if path.stat().st_size > LARGEST:
                raise DataError(f"{path} has {path.stat().st_size:,} bytes, which no result of a bench has.")
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise DataError(
                f"{path} is no result of `dynotune bench` of this format: {where}: {first['msg']}."
            ) from error
