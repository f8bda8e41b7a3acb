"""What is known of a stretch of a run, and what a sign says."""

from dataclasses import dataclass

LEAST_STEPS = 10
"""Steps of a stretch below which nothing is said of shares."""

LEAST_SECONDS = 1.0
"""Lost below which nothing is said of waiting."""

LEAST_SAMPLES = 5
"""Of the machine, below which nothing is said of it."""


@dataclass(slots=True)  # not frozen: one is made for each row, and a frozen one takes three times as long
class Stretch:
    """Some steps in a row, behind the warm-up of their process. None: it is not known here."""

    steps: int = 0
    seconds: float = 0.0
    """Of training."""

    data_wait: float = 0.0
    """Seconds of that."""

    host: float = 0.0
    """Seconds between steps."""

    caught_up: float | None = None
    """Of the steps, the share at whose end the device had nothing left to do but the update."""

    pairs: bool = False
    """Whether micro-batches hold pairs of documents: layers of those are never replayed."""

    recompiled_steps: int = 0
    """Steps in which graphs were made."""

    graphs: int = 0
    compile: float = 0.0
    """Seconds of making them."""

    nonfinite_steps: int = 0
    fill: float | None = None
    headroom: float | None = None
    """Of the device's memory, the share that is left."""

    headroom_gib: float | None = None
    retries: int = 0
    """Of the allocator, behind the warm-up."""

    samples: int = 0
    """Of the machine."""

    training_samples: int = 0
    """Of those, the ones that tell of training alone: behind the warm-up, no evaluation, checkpoint or compilation."""

    utilisation: float | None = None
    """Of these."""

    utilisation_low: float | None = None
    """Of these, the share in which the device was busy for less than half of the time."""

    throttled: tuple[str, ...] = ()
    sm_mhz: float | None = None
    other_processes: int = 0


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that holds a run back."""

    name: str
    """Stable, in kebab case."""

    figure: str
    """What was measured, as a sentence's end."""

    remedy: str
    """What to do, as a sentence."""

    def sentence(self) -> str:
        return f"{self.name}: {self.figure}. {self.remedy}"
