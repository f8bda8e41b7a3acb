"""Packed attention by FlashAttention-3."""

import os
from pathlib import Path

from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.contract import Context, No
from dynotune.speedups.registry import register


@register
class AttentionFa3(AttentionBackend):
    name = "attention_fa3"
    summary = "Attends within all documents of a micro-batch in one call of FlashAttention-3, for Hopper."
    backend = "fa3"
    implementation = "flash_attention_3"
    package = "flash-attn 3"

    def trial(self, context: Context) -> No | None:
        from dynotune.model.attention.backends.fa3 import VARIABLE, missing

        if VARIABLE not in os.environ:
            return super().trial(context)
        reason = missing()  # whoever names a library vouches that it can be loaded
        return (
            None if reason is None else No(f"`{VARIABLE}`: {reason}", f"name another module or library in `{VARIABLE}`")
        )

    def build(self) -> str:
        from dynotune.model.attention.backends.fa3 import VARIABLE

        named = os.environ.get(VARIABLE, "")
        if not Path(named).is_file():
            return named
        file = Path(named).stat()
        return f"{Path(named).name} of {file.st_size} bytes, {file.st_mtime_ns}"
