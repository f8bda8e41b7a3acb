"""What a run is asked for from outside: by signals, by a limit of time. The loop looks once a step."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Orders:
    """What is asked for after the step that is being taken."""

    save: bool = False
    """Write a checkpoint and go on."""

    leave: bool = False
    """Write a checkpoint and end."""


class Outside(Protocol):
    """Where orders come from."""

    def begin(self) -> None:
        """Steps begin: from here to `end` nothing interrupts, and `look` is asked."""
        ...

    def look(self, after_a_step: bool = True) -> Orders:
        """What is asked for now, after a step or after what was done between two.

        An order stands until it is carried out: `save` until `saved`, `leave` for good.
        """
        ...

    def cannot_wait(self) -> bool:
        """Whether an evaluation that is going on has to be left, because the run is to end."""
        ...

    def saved(self, seconds: float) -> None:
        """A checkpoint was saved, for which training stood still so long."""
        ...

    def wrote(self, seconds: float) -> None:
        """A checkpoint is in place; to write it took so long, beside training or not."""
        ...

    def evaluated(self, seconds: float) -> None:
        """An evaluation was made, or left, after so long."""
        ...

    def end(self) -> None:
        """The last step is done, and saved where it has to be."""
        ...

    def writing(self) -> AbstractContextManager[object]:
        """While something is written that nobody should lose, a first signal waits for it."""
        ...

    def why(self) -> str:
        """Who or what asked to leave, for people."""
        ...


class Nobody:
    """Asks for nothing."""

    def begin(self) -> None: ...

    def look(self, after_a_step: bool = True) -> Orders:
        return Orders()

    def cannot_wait(self) -> bool:
        return False

    def saved(self, seconds: float) -> None: ...

    def wrote(self, seconds: float) -> None: ...

    def evaluated(self, seconds: float) -> None: ...

    def end(self) -> None: ...

    def writing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def why(self) -> str:
        return ""
