"""Dialogue summaries with Llama 3.2 1B. Hydra reads conf/."""
import json
import os

import hydra
import torch
from datasets import load_dataset
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

QUESTION = "Summarise this conversation in one or two sentences.\n\n{dialogue}"


def encode(row, tokenizer, max_len):
    user = [{"role": "user", "content": QUESTION.format(dialogue=row["dialogue"])}]
    prompt = tokenizer.apply_chat_template(user, tokenize=False, add_generation_prompt=True)
    answer = row["summary"] + "<|eot_id|>"
    prompt_ids = tokenizer(prompt)["input_ids"]
    answer_ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    return {
        "input_ids": (prompt_ids + answer_ids)[:max_len],
        "attention_mask": [1] * min(max_len, len(prompt_ids) + len(answer_ids)),
        "labels": ([-100] * len(prompt_ids) + answer_ids)[:max_len],
    }


def prepare(cfg, tokenizer):
    raw = load_dataset(cfg.data.name)
    raw = raw.filter(lambda r: r["dialogue"] and r["summary"], num_proc=cfg.data.num_proc)
    data = raw.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_len": cfg.data.max_len},
        remove_columns=raw["train"].column_names,
        num_proc=cfg.data.num_proc,
    )
    return data.filter(lambda r: r["labels"][-1] != -100, num_proc=cfg.data.num_proc)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    set_seed(cfg.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    tokenizer.pad_token = cfg.model.pad_token
    data = prepare(cfg, tokenizer)

    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, dtype=torch.float32, attn_implementation=cfg.model.attn
    )
    model.config.use_cache = False

    args = TrainingArguments(**OmegaConf.to_container(cfg.trainer, resolve=True))
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    result = trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    with open(os.path.join(args.output_dir, "speed.json"), "w") as f:
        json.dump({"batch": args.per_device_train_batch_size, **result.metrics}, f)


if __name__ == "__main__":
    main()
