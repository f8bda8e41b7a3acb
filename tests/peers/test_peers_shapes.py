"""Promise: a row trains the shape that it names, and the rows of `sft_mix` that its words say."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from benchmarks.make_model import make, take_rows
from benchmarks.peers.rows import ADAPTED, ROWS
from benchmarks.shapes import SHAPES, config_of
from transformers import AutoConfig, AutoModelForCausalLM

PUBLISHED = {"qwen2.5-7b": 7_615_616_512, "llama-3.1-8b": 8_030_261_248, "qwen2.5-0.5b": 494_032_768}
"""Parameters, by the models' own index files."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shape_has_the_parameters_of_the_published_model(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(SHAPES[name]))
        wrong = AutoModelForCausalLM.from_config(config_of(SHAPES[name], num_hidden_layers=2))
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]
    assert sum(p.numel() for p in wrong.parameters()) != PUBLISHED[name]


def test_every_row_has_a_shape_and_large_ones_are_adapted() -> None:
    assert {row.shape for row in ROWS.values()} <= set(SHAPES)
    assert set(ADAPTED) == {name for name, n in PUBLISHED.items() if n > 1e9}
    assert ROWS["llama-8b-16k"].lora


def test_a_model_folder_is_of_its_own_architecture(shared: Path, tmp_path: Path) -> None:
    make("llama-3.1-8b", shared / "tokenizers" / "dolma2-100k", tmp_path, layers=2)
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.architectures == ["LlamaForCausalLM"]
    assert config.rope_parameters["rope_type"] == "llama3"
    assert (config.num_hidden_layers, config.vocab_size) == (2, 128256)


def test_long_rows_and_rows_with_tools_are_not_taken(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "a"}]
    rows = [
        {"n_tokens": 4096, "messages": said},
        {"n_tokens": 4097, "messages": said},
        {"n_tokens": 5, "messages": said, "tools": []},
        {"n_tokens": 5, "messages": [{**said[0], "tool_calls": []}]},
    ]
    with gzip.open(tmp_path / "all.jsonl.gz", "wt") as to:
        to.writelines(json.dumps(row) + "\n" for row in rows)
    with gzip.open(take_rows(tmp_path / "all.jsonl.gz", tmp_path / "data"), "rt") as taken:
        assert [json.loads(line) for line in taken] == rows[:1]
