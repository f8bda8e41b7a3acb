"""Supervised fine-tuning of an 8B chat model on contract question answering.

    bash scripts/train.sh configs/sft_8b.yaml
"""
import argparse
import dataclasses
import logging
import os
import sys

import torch
import yaml
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

log = logging.getLogger("contract-sft")

SYSTEM = (
    "You are a paralegal assistant. Answer only from the clause that is quoted. "
    "Say 'not stated' if the clause does not settle the question."
)


@dataclasses.dataclass
class ProjectArgs:
    model_name: str = "meta-llama/Llama-3.1-8B-Instruct"
    attn: str = "sdpa"
    train_file: str = "data/train.jsonl"
    eval_file: str = "data/dev.jsonl"
    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    lora_targets: list = dataclasses.field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj"]
    )


def read_config(path):
    """Split one flat YAML into what is ours and what belongs to SFTConfig."""
    with open(path) as fh:
        raw = yaml.safe_load(fh)
    own_names = {f.name for f in dataclasses.fields(ProjectArgs)}
    sft_names = {f.name for f in dataclasses.fields(SFTConfig) if f.init}
    own = {k: v for k, v in raw.items() if k in own_names}
    sft = {k: v for k, v in raw.items() if k in sft_names and k not in own_names}
    return ProjectArgs(**own), sft


def to_text(tokenizer):
    def fn(row):
        msgs = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"Clause:\n{row['clause']}\n\nQuestion: {row['question']}"},
            {"role": "assistant", "content": row["answer"]},
        ]
        text = tokenizer.apply_chat_template(msgs, tokenize=False)
        # the tokenizer adds <|begin_of_text|> itself
        text = text.removeprefix(tokenizer.bos_token)
        # the template already closes the turn, SFTTrainer must not double it
        return {"text": text}

    return fn


def build_datasets(args, tokenizer):
    files = {"train": args.train_file, "eval": args.eval_file}
    ds = load_dataset("json", data_files=files)
    cols = ds["train"].column_names
    ds = ds.map(to_text(tokenizer), remove_columns=cols, desc="chat template")
    return ds["train"], ds["eval"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    ap.add_argument("--output_dir", default=None)
    ap.add_argument("--resume", action="store_true")
    cli = ap.parse_args()

    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    args, sft_kw = read_config(cli.config)
    if cli.output_dir:
        sft_kw["output_dir"] = cli.output_dir

    cfg = SFTConfig(
        **sft_kw,
        dataset_text_field="text",
        completion_only_loss=True,      # only the answers are learned
        gradient_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=False,
    )
    set_seed(cfg.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        args.model_name,
        dtype=torch.bfloat16,
        attn_implementation=args.attn,
    )
    model.config.use_cache = False

    train, dev = build_datasets(args, tokenizer)
    log.info("train rows %d, dev rows %d", len(train), len(dev))
    if int(os.environ.get("RANK", 0)) == 0:
        log.info("first row:\n%s", train[0]["text"])

    peft_config = LoraConfig(
        r=args.lora_r,
        lora_alpha=args.lora_alpha,
        lora_dropout=args.lora_dropout,
        target_modules=args.lora_targets,
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train(resume_from_checkpoint=cli.resume or None)
    trainer.save_model()


if __name__ == "__main__":
    main()
