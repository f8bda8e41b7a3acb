"""What a run is asked for from outside: by signals, by a limit of time. The loop looks once a step."""

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

    def look(self) -> Orders:
        """What is asked for now; each order is given once."""
        ...

    def why(self) -> str:
        """Who or what asked to leave, for people."""
        ...


class Nobody:
    """Asks for nothing."""

    def look(self) -> Orders:
        return Orders()

    def why(self) -> str:
        return ""
