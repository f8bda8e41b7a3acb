"""Promise: the fuzz's, by hypothesis, which builds values from the keys up and makes a finding small."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dynotune import SFTConfig
from dynotune.config.load import load_config
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import DynotuneError
from tests.fuzz.mutate import WORDS
from tests.fuzz.targets import told
from tests.tiny import tiny_tokenizer

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from([w for w in WORDS if len(w) < 100])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
configurations = st.dictionaries(
    st.sampled_from(sorted(SFTConfig.model_fields)) | st.text(max_size=10), values, min_size=1, max_size=5
)
many = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def refused_in_words(error: DynotuneError) -> None:
    text = str(error)
    assert text.strip()
    assert not {c for c in text if not c.isprintable() and c != "\n"}, repr(text)


@pytest.mark.long
@many
@example({"loss_type": {}}, "json")  # was a TypeError
@given(configurations, st.sampled_from(["json", "yaml", "flags"]))
def test_any_configuration_is_taken_or_refused_in_words(tmp_path: Path, given_: dict[str, Any], form: str) -> None:
    before = dict(os.environ)
    try:
        if form == "flags":
            load_config(None, given_)
        else:
            path = tmp_path / f"a.{form}"
            text = json.dumps(given_) if form == "json" else yaml.safe_dump(given_, allow_unicode=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            assert load_config(path).to_yaml()
    except DynotuneError as error:
        refused_in_words(error)
    finally:
        os.environ.clear()
        os.environ.update(before)


names = st.sampled_from(
    ["messages", "prompt", "completion", "text", "conversations", "role", "content", "from", "value", "tools", "tool_calls",
     "input_ids", "labels", "instruction", "input", "output", "chosen", "rejected", "system", "type", "function", "name",
     "arguments"]
)  # fmt: skip
message = st.dictionaries(names, scalars | st.sampled_from(["user", "assistant", "system", "tool"]), max_size=4)
rows = st.dictionaries(names, values | st.lists(message | values, max_size=4), max_size=4)


@pytest.mark.long
@many
@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from(["error", "skip"]), st.booleans())
def test_any_rows_are_taken_or_refused_in_words(
    tmp_path: Path, given_: list[Any], policy: Any, assistant: bool
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join(json.dumps(row).encode("utf-8", "surrogatepass") for row in given_))
    config = SFTConfig(
        dataset_name=str(path), on_bad_row=policy, token_cache="off", assistant_only_loss=assistant, dataset_num_proc=1
    )
    try:
        told(tmp_path, config, Encoder(tiny_tokenizer(), config))
    except DynotuneError as error:
        refused_in_words(error)
