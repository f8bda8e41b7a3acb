import logging
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer

from pairs import to_preference

log = logging.getLogger(__name__)


@dataclass
class Options:
    model: str = field(default="allenai/Llama-3.1-Tulu-3-8B-SFT")
    pairs: str = field(default="data/pairs.jsonl")
    out: str = field(default="runs/dpo-tulu")
    beta: float = field(default=0.1)
    lr: float = field(default=5e-6)
    held_out: float = field(default=0.02)
    seed: int = field(default=7)


def build_config(o: Options) -> DPOConfig:
    return DPOConfig(
        output_dir=o.out,
        beta=o.beta,
        loss_type=["sigmoid"],
        learning_rate=o.lr,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=8,
        max_length=2048,
        bf16=True,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        dataset_num_proc=8,
        dataloader_num_workers=4,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        ddp_find_unused_parameters=False,
        report_to="tensorboard",
        seed=o.seed,
    )


def main():
    (o,) = HfArgumentParser(Options).parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO)
    set_seed(o.seed)

    tokenizer = AutoTokenizer.from_pretrained(o.model)
    model = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.bfloat16, attn_implementation="sdpa")

    rows = load_dataset("json", data_files=o.pairs, split="train")
    rows = rows.map(to_preference, num_proc=8, remove_columns=rows.column_names)
    rows = rows.filter(lambda r: r["chosen"] != r["rejected"], num_proc=8)
    parts = rows.train_test_split(test_size=o.held_out, seed=o.seed)

    lora = LoraConfig(
        r=64,
        lora_alpha=64,
        lora_dropout=0.0,
        bias="none",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=None,
        args=build_config(o),
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
        peft_config=lora,
    )
    result = trainer.train(resume_from_checkpoint=get_last_checkpoint(o.out))
    trainer.save_model()
    log.info("final training loss %.4f", result.training_loss)


if __name__ == "__main__":
    main()
