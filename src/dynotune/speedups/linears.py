"""What the declarations of fused linears share: where they stand, for the registry."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dynotune.speedups.contract import Installation
from dynotune.speedups.left_out import excepted_of, left_out_of

if TYPE_CHECKING:
    from dynotune.model import linears, lora


def standing(engaged: "linears.Engaged | lora.Engaged", uninstall: Callable[[], None]) -> Installation:
    """uninstall: takes it out, with whatever else came with it."""
    return Installation(
        uninstall,
        places=tuple(engaged.leaders()),  # linears that share an input are computed in the first one's call
        left_out=left_out_of(engaged.others),
        excepted=excepted_of(engaged.others),
        lines=tuple(engaged.lines()),
        aside=engaged.aside,
        forwards=engaged.forwards,
        detail=engaged,
    )
