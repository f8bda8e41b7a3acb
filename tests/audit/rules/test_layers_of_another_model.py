"""Promise: layers that adapters or FSDP are told to look for are those of the model, encoders among them."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from dynotune.audit.models import OF_READERS
from dynotune.audit.shapes.wrapped_layer_of_another_model import LAYERS
from tests.audit.made_up import audited


def found(folder: Path, code: str, files: dict[str, str]) -> list[str]:
    return [one.message for one in audited(folder, files, select=(code,)).findings]


ADAPTS = """from peft import LoraConfig, get_peft_model
from transformers import {what}, Trainer, TrainingArguments

model = {what}.from_pretrained("{name}")
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules={modules}))
Trainer(model=model, args=TrainingArguments(output_dir="out", bf16=True), train_dataset=data).train()
"""
CLASSIFIES, WRITES = "AutoModelForSequenceClassification", "AutoModelForSeq2SeqLM"


@pytest.mark.parametrize(
    ("what", "name", "modules", "right"),
    [
        (CLASSIFIES, "roberta-large", ["q_proj", "v_proj"], False),
        (CLASSIFIES, "roberta-large", ["query", "value"], True),
        (CLASSIFIES, "distilbert-base-uncased", ["query", "value"], False),
        (CLASSIFIES, "distilbert-base-uncased", ["q_lin", "v_lin", "pre_classifier"], True),
        (WRITES, "google/flan-t5-large", ["q_proj", "v_proj"], False),
        (WRITES, "google/flan-t5-large", ["q", "v", "wi_0"], True),
        (WRITES, "facebook/bart-large-cnn", ["q_proj", "v_proj"], True),
        (CLASSIFIES, "someone/encoder", ["q_proj"], True),
    ],
)
def test_adapters_on_encoders(tmp_path: Path, what: str, name: str, modules: list[str], right: bool) -> None:
    text = ADAPTS.format(what=what, name=name, modules=modules)
    assert bool(found(tmp_path, "LOR001", {"train.py": text})) is not right


@pytest.mark.parametrize("kind", sorted(OF_READERS))
def test_names_are_those_of_transformers(kind: str) -> None:
    """Every linear layer in a block, on no device, is in the table."""
    config = AutoConfig.for_model(kind)
    for name in ("num_hidden_layers", "num_layers", "n_layers", "encoder_layers", "decoder_layers"):
        if hasattr(config, name):
            setattr(config, name, 1)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    inside = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and ".0." in name
    }
    assert inside <= OF_READERS[kind]
    assert inside


SFT = """from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("{name}")
args = SFTConfig(output_dir="out", bf16=True{more})
SFTTrainer(model=model, args=args, train_dataset=data).train()
"""
FSDP = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: {}\n"
)
RUN = "accelerate launch --config_file fsdp.yaml sft.py\n"


@pytest.mark.parametrize(
    ("name", "layer", "right"),
    [
        ("Qwen/Qwen2.5-7B", "LlamaDecoderLayer", False),
        ("Qwen/Qwen2.5-7B", "Qwen2DecoderLayer", True),
        ("mistralai/Mistral-7B-v0.3", "LlamaDecoderLayer", False),
        ("Qwen/Qwen2.5-7B", "MyOwnLayer", True),
        ("someone/model", "LlamaDecoderLayer", True),
    ],
)
def test_the_launcher_s_file_wraps(tmp_path: Path, name: str, layer: str, right: bool) -> None:
    files = {"sft.py": SFT.format(name=name, more=""), "fsdp.yaml": FSDP.format(layer), "run.sh": RUN}
    assert bool(found(tmp_path, "CFG013", files)) is not right
    silenced = {**files, "fsdp.yaml": "# dynotune: ignore-file[CFG013] known\n" + files["fsdp.yaml"]}
    assert not found(tmp_path / "silenced", "CFG013", silenced)


@pytest.mark.parametrize(("layer", "right"), [("LlamaDecoderLayer", False), ("Qwen2DecoderLayer", True)])
def test_the_arguments_wrap(tmp_path: Path, layer: str, right: bool) -> None:
    more = f', fsdp="full_shard auto_wrap", fsdp_config={{"transformer_layer_cls_to_wrap": ["{layer}"]}}'
    files = {"sft.py": SFT.format(name="Qwen/Qwen2.5-7B", more=more), "run.sh": "torchrun --nproc_per_node 8 sft.py\n"}
    assert bool(found(tmp_path, "CFG013", files)) is not right


def test_axolotl_wraps(tmp_path: Path) -> None:
    text = (
        "base_model: Qwen/Qwen2.5-7B\ndatasets:\n  - path: d.jsonl\n    type: alpaca\nsequence_len: 2048\nbf16: true\n"
        "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_transformer_layer_cls_to_wrap: {}\n"
    )
    assert found(tmp_path, "CFG013", {"a.yml": text.format("LlamaDecoderLayer")})
    assert not found(tmp_path / "right", "CFG013", {"a.yml": text.format("Qwen2DecoderLayer")})


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_layers_are_those_of_transformers(kind: str) -> None:
    config = AutoConfig.for_model(kind)
    config.num_hidden_layers = 1
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    assert LAYERS[kind] in {type(module).__name__ for module in model.modules()}
