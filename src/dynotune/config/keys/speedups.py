"""Which speed-ups run."""

from typing import Literal

from pydantic import Field

from dynotune.config.keys.topic import Topic


class SpeedupsConfig(Topic):
    speedups: dict[str, Literal["auto", "on", "off"]] = Field(default_factory=dict)
    """Speed-ups by name: `auto` takes one where it is applicable and was seen to run, `on` stops the run where it is not,
    `off` leaves it out. What is not named has its own default, mostly `auto`."""
