"""The schema and the reference pages follow from the code and are up to date."""

from pathlib import Path

import pytest

from dynotune.config.dpo import DPOConfig
from dynotune.config.fates.table import SFT_FATES
from dynotune.config.keys.topics import topics
from dynotune.config.sft import SFTConfig
from dynotune.handbook.docs import pages
from dynotune.handbook.schema import json_schema

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(pages()))
def test_page_is_up_to_date(name: str) -> None:
    """What is documented is what the code does. Mend with `python -m dynotune.handbook.docs docs`."""
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name]


def test_every_key_is_documented() -> None:
    """A docstring under every field, shown in help, documentation and editors."""
    page = pages()["reference/configuration.md"]
    for key, field in SFTConfig.model_fields.items():
        assert field.description, key
        assert f"### `{key}`" in page
    dpo_page = pages()["reference/dpo-configuration.md"]
    for key in (key for topic in topics(DPOConfig) for key in topic.fields):
        assert DPOConfig.model_fields[key].description, key
        assert f"### `{key}`" in (page if key in SFTConfig.model_fields else dpo_page), key
    fates = pages()["reference/trl-fields.md"]
    assert all(f"| `{key}` |" in fates for key in SFT_FATES)


def test_schema() -> None:
    """Editors describe honoured keys, and strike out the others with the reason."""
    schema = json_schema(SFTConfig)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    for key in SFTConfig.model_fields:
        assert properties[key]["description"]
        assert not properties[key].get("deprecated")
    theirs = ("dataloader_num_workers", "warmup_ratio", "num_processes", "micro_batch_size", "beta")
    for key in ("eval_accumulation_steps", *theirs):
        assert properties[key]["deprecated"] is True
        assert len(properties[key]["description"]) > 20
    assert properties["eval_strategy"]["enum"] == ["no", "steps", "epoch", False]


def test_schema_is_valid_and_judges() -> None:
    """With a real validator: what the loader takes passes, what it refuses does not."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema(SFTConfig)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"learning_rate": 1e-5, "packing": False, "datasets": [{"path": "a"}]})
    for wrong in ({"lerning_rate": 1}, {"seed": -1}, {"micro_batch_size": 2}, {"eval_strategy": "stepp"}):
        assert not validator.is_valid(wrong)
