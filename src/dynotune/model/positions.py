"""How many positions a model has, and what becomes of documents that are longer.

Where positions are learned, the next one has no row in the table: an index error in the first long step, on a GPU a fault
of the device that names nothing. Where they are rotary there is an angle that the model has never seen: nothing fails."""

from typing import TYPE_CHECKING, Any

from torch import nn

from dynotune.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OFFSETS = (0, 2)
"""Rows of a table of positions beyond those that can be asked for: OPT and its kin leave the first two unused."""

LEARNED = ("wpe", "pos_emb", "embed_positions", "position_embedding", "position_embeddings", "positions_embed")
"""What such tables are called in transformers."""


def check_positions(model: "PreTrainedModel", longest: int) -> str | None:
    """What is to be said of documents of up to `longest` tokens; None where the model has positions for them all.

    Raises `ConfigError` where positions are learned and end before.
    """
    config = model.config.get_text_config()
    there = getattr(config, "max_position_embeddings", None)
    if not isinstance(there, int) or not 0 < there < longest:
        return None
    if _looked_up(model, there):
        raise ConfigError(
            f"The longest document has {longest:,} tokens, and the model has a table of {there:,} positions and none behind"
            f" them: the step that holds it would fail. Set `max_length: {there}`, or take a model with a longer context."
        )
    if _stretched(config):
        return None
    return (
        f"note: the longest document has {longest:,} tokens, and the model was made for {there:,}"
        f" (`max_position_embeddings`): what stands behind them it has never seen. `max_length: {there}` would cut it"
    )


def _looked_up(model: "PreTrainedModel", there: int) -> bool:
    """Whether a table of so many positions is looked up: trained, or (GPT-J, CodeGen) made once as a buffer."""
    tables = {there + offset for offset in OFFSETS}
    trained = (
        name for name, one in model.named_modules() if isinstance(one, nn.Embedding) and one.num_embeddings in tables
    )
    made = (name for name, one in model.named_buffers() if one.ndim == 2 and one.shape[0] == there)
    return any(name.rpartition(".")[2] in LEARNED for name in (*trained, *made))


def _stretched(config: Any) -> bool:
    """Whether the rotary embedding is scaled: what a model can do then is not told by its number of positions."""
    asked = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    every = [asked, *(one for one in asked.values() if isinstance(one, dict))]  # one for each kind of layer
    return any(one.get("rope_type", one.get("type", "default")) != "default" for one in every)
