"""LoRA linears as few products as possible, in place of PEFT's eager forward. PEFT keeps the modules, names and files.

Legend of shapes: T tokens, I inputs and O outputs of a linear, R rank.
"""

from dynotune.model.lora.install import Engaged, install

__all__ = ["Engaged", "install"]
