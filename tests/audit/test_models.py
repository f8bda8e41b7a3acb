"""Promise: what a model's name is taken to mean is what transformers makes of it."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from dynotune.audit.models import FAMILIES, LINEARS, known, layers_of


@pytest.mark.parametrize(
    ("name", "kind", "billions"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2", 0.5),
        ("Qwen/Qwen2.5-Coder-7B", "qwen2", 7),
        ("unsloth/Qwen3-8B-bnb-4bit", "qwen3", 8),
        ("meta-llama/Meta-Llama-3-8B", "llama", 8),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama", 1),
        ("NousResearch/Llama-2-7b-hf", "llama", 7),
        ("HuggingFaceTB/SmolLM2-135M", "llama", 0.135),
        ("mistralai/Mistral-7B-v0.1", "mistral", 7),
        ("google/gemma-2-9b-it", "gemma2", 9),
        ("openai-community/gpt2", "gpt2", 0.124),
        ("EleutherAI/pythia-160m", "gpt_neox", 0.16),
        ("models/Qwen2.5-14B/", "qwen2", 14),
    ],
)
def test_names_of_hubs_are_known(name: str, kind: str, billions: float) -> None:
    found = known(name)
    assert found is not None
    assert (found.model_type, found.billions) == (kind, billions)


@pytest.mark.parametrize(
    "name", [None, "", 3, "my-model", "runs/sft", "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3-30B-A3B", "x/mistral-7bx"]
)
def test_other_names_tell_nothing(name: object) -> None:
    found = known(name)
    assert found is None or name == "x/mistral-7bx"


def test_an_unknown_size_is_not_guessed() -> None:
    found = known("Qwen/Qwen2.5-5B-merged")
    assert found is not None
    assert found.billions is None
    assert found.hidden is None


@pytest.mark.parametrize("kind", sorted(LINEARS))
def test_layers_have_the_names_of_the_table(kind: str) -> None:
    """A model of the type, on no device, holds exactly these linear layers inside its blocks."""
    config = AutoConfig.for_model(kind)
    config.num_hidden_layers = 1
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    inside = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and ".0." in name
    }
    assert inside == LINEARS[kind]
    everywhere = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    assert LINEARS[kind] <= layers_of(kind)
    assert layers_of(kind) - everywhere <= {"project_in", "project_out", "embed_out"}  # of other versions or sizes


def test_every_family_has_its_layers() -> None:
    assert {family.model_type for family in FAMILIES} == set(LINEARS)


def test_a_name_without_a_size_of_a_family_of_one() -> None:
    found = known("TinyLlama/TinyLlama_v1.1")
    assert found is not None
    assert found.billions == 1.1
    medium = known("gpt2-giant")
    assert medium is None or medium.billions is None
