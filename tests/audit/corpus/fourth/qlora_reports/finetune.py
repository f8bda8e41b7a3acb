"""QLoRA on inspection reports: 14B base in 4 bit, one full copy per card (DDP).

The rows have the fields `prompt` and `completion` (plain text). They are long,
2500 tokens in the median and up to 4096.
"""
import os
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import PartialState
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen3-14B-Base"


@dataclass
class RunArguments:
    train_file: str = field(metadata={"help": "JSON lines with `prompt` and `completion`."})
    eval_file: str = field(metadata={"help": "The same, held out."})
    global_batch: int = field(default=32, metadata={"help": "Rows per optimizer update over all cards."})


@dataclass
class ReportsConfig(SFTConfig):
    max_length: int | None = 4096
    completion_only_loss: bool | None = True
    # Packing stays off: the cards have no flash-attn wheel for this torch, and packed
    # rows under SDPA would need a dense block mask. The rows are long enough anyway.
    packing: bool = False
    # sorting by length keeps the padding of the few short reports small
    train_sampling_strategy: str = "group_by_length"
    # 14B does not fit next to its activations in 24 GB without this
    gradient_checkpointing: bool = True
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = field(
        default_factory=lambda: {"use_reentrant": False}
    )
    # every adapter weight gets a gradient in every step, nothing is unused
    ddp_find_unused_parameters: bool | None = False
    optim: str = "paged_adamw_8bit"
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 30
    logging_steps: float = 5
    eval_strategy: str = "steps"
    eval_steps: float | None = 100
    save_strategy: str = "steps"
    save_steps: float = 100
    save_total_limit: int | None = 2
    dataloader_num_workers: int = 2
    dataset_num_proc: int | None = 8
    report_to: str = "none"
    seed: int = 404


def load_quantised():
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=quant,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        # the whole model on the card of this rank; "auto" would spread it over all four
        device_map={"": PartialState().local_process_index},
    )


def main():
    parser = HfArgumentParser((RunArguments, ReportsConfig))
    run, config = parser.parse_args_into_dataclasses()

    # PartialState has read the variables of torchrun, so this is the true number
    world = PartialState().num_processes
    rows = config.per_device_train_batch_size * world
    if run.global_batch % rows:
        raise ValueError(f"global_batch {run.global_batch} is no multiple of {rows}")
    config.gradient_accumulation_steps = run.global_batch // rows

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    data = load_dataset("json", data_files={"train": run.train_file, "eval": run.eval_file})
    model = load_quantised()
    model.config.use_cache = False

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32,
            lora_alpha=64,
            lora_dropout=0.05,
            task_type="CAUSAL_LM",
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ),
    )
    last = get_last_checkpoint(config.output_dir) if os.path.isdir(config.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
