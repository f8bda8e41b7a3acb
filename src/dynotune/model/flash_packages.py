"""`attn_implementation: flash_attention_2` and its like where transformers finds no package for it."""

from dynotune.config.whole import WholeConfig

_NUMBERS = {"flash_attention_2": 2, "flash_attention_3": 3, "flash_attention_4": 4}


def loadable(config: WholeConfig) -> tuple[WholeConfig, list[str]]:
    """`config` as the model can be loaded with, and what to say of it.

    The name asks packed execution for a kernel, which it brings without such a package; transformers needs the package for
    the plain path alone. So it stands in the way only where there is no packed execution.
    """
    asked = config.attn_implementation
    if asked not in _NUMBERS or config.execution[0] == "off" or _is_there(_NUMBERS[asked]):
        return config, []
    note = (
        f"note: `attn_implementation: {asked}`: transformers finds no package for it. Packed execution has a kernel of its"
        " own; generations run the model's own implementation"
    )
    return config.model_copy(update={"attn_implementation": None}), [note]


def _is_there(number: int) -> bool:
    from transformers import utils

    available = getattr(utils, f"is_flash_attn_{number}_available", None)
    return available is not None and bool(available())
