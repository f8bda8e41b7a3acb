"""Rotary embeddings by Liger's kernel."""

from typing import TYPE_CHECKING

from dynotune.speedups.liger import LigerElementwise
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site

if TYPE_CHECKING:
    from dynotune.model.elementwise import Engaged


@register
class LigerRope(LigerElementwise):
    name = "liger_rope"
    summary = "Rotates queries and keys by Liger's kernel, in place."
    slot = "rotary"
    ours = "rotary_kernel"
    keys = ("rope",)
    module_kind = "rotary embedding"
    functions = "LigerRotary"
    kernels = ("_triton_rope", "_triton_rope")

    def look_at(self, engaged: "Engaged", site: Site) -> None:
        from dynotune.model.liger.tables import why_not_halves

        fused = engaged.fused[self.module_kind]
        if fused:
            for name, reason in why_not_halves(site.model, fused, site.autocast).items():
                engaged.leave(self.module_kind, name, reason)
