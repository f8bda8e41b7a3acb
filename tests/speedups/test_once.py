"""Promise: what was found by trying a model out is not found out again while the same stands in it, and only then."""

from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

import torch

from dynotune.config.sft import SFTConfig
from dynotune.model.precision import Precision
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.site import Site
from tests.speedups.toys import Toy, decided
from tests.tiny import tiny_model

MODEL = tiny_model()
FULL = Precision(torch.float32, False)


class Process:
    """In which arms stand one after the other."""

    def __init__(self) -> None:
        self.examined: dict[Hashable, Any] = {}
        self.tried = 0

    def arm(self, *toys: Toy, longest: int = 64, **config: Any) -> Site:
        """What one more arm stands in, with these in it."""
        context = Context(SFTConfig(**config), MODEL, torch.device("cpu"), torch.float32, FULL, longest)
        site = Site(context, nullcontext, examined=self.examined)
        self.installed = Installed(decided(*toys), site)
        return site

    def asks(self, site: Site) -> bool:
        """Whether the model was tried out."""
        before = self.tried

        def examine() -> str:
            self.tried += 1
            return f"finding {self.tried}"

        assert site.once("what", examine) == site.once("what", examine)
        return self.tried > before


def test_the_same_arm_again_is_not_tried_out_again() -> None:
    """Nor another one that has the same beneath and asks for other speed-ups."""
    process = Process()
    assert process.asks(process.arm(Toy("kernel", places=("a",))))
    assert not process.asks(process.arm(Toy("kernel", places=("a",))))
    assert not process.asks(process.arm(Toy("kernel", places=("a",)), speedups={"prefetch": "off"}))


def test_whatever_it_depends_on_has_it_tried_out_again() -> None:
    process = Process()
    assert process.asks(process.arm(Toy("kernel", places=("a",))))
    others = [
        process.arm(Toy("kernel", places=("a", "b"))),
        process.arm(Toy("other", places=("a",))),
        process.arm(),
        process.arm(Toy("kernel", places=("a",)), longest=65),
        process.arm(Toy("kernel", places=("a",)), learning_rate=0.5),
    ]
    assert all(process.asks(site) for site in others)
    changed = process.arm(Toy("kernel", places=("a",)))
    changed.attention = "varlen"
    assert process.asks(changed)
    assert Process().asks(process.arm(Toy("kernel", places=("b", "c")))), "another process knows nothing"


def test_what_is_out_of_the_way_or_taken_out_does_not_stand_beneath() -> None:
    process = Process()
    site = process.arm(Toy("kernel", places=("a",)))
    assert process.asks(site)
    kernel = process.installed.get("kernel")
    assert kernel is not None
    with process.installed.without(kernel):
        assert process.asks(site)
    assert not process.asks(site)
    process.installed.close()
    assert process.asks(site), "with nothing in it, and launched as usual"
