"""Promise: a document that is longer than the model has positions is refused before the first step where that step would
fail, and said where it would not."""

from typing import Any

import pytest

from dynotune.errors import ConfigError
from dynotune.model.positions import check_positions
from tests.tiny import tiny_model

TABLES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": 64, "max_position_embeddings": 64},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "gpt_neo": {"attention_types": [[["global"], 2]], "max_position_embeddings": 64, "num_layers": 2, "num_heads": 4},
    "openai-gpt": {"n_positions": 64, "max_position_embeddings": 64},
    "gptj": {"n_positions": 64, "max_position_embeddings": 64, "rotary_dim": 8},
}


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_table_of_positions_ends_the_run_before_it_begins(kind: str) -> None:
    """The forward pass at that length is the control: it fails, and one token before it does not."""
    import torch

    model = tiny_model(kind, **TABLES[kind])
    assert check_positions(model, 64) is None
    model(input_ids=torch.ones(1, 64, dtype=torch.long))
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.ones(1, 65, dtype=torch.long))
    with pytest.raises(ConfigError, match=r"65 tokens.* 64 positions .*`max_length: 64`"):
        check_positions(model, 65)


def test_rotary_positions_go_on_and_that_is_said() -> None:
    model = tiny_model("llama", max_position_embeddings=64)
    assert check_positions(model, 64) is None
    said = check_positions(model, 1_065)
    assert said is not None
    assert said.startswith("note: the longest document has 1,065 tokens, and the model was made for 64")


def test_a_stretched_rotary_embedding_is_not_judged() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 64}
    assert check_positions(tiny_model("llama", max_position_embeddings=64, rope_parameters=yarn), 200) is None
