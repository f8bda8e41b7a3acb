"""QLoRA of a 70B on council minutes, ONE process over two A100 80GB.

The 4-bit weights are 39 GB, and with the activations of 12k-token minutes a single
card does not hold it. Data parallel would need the whole model on each, so the layers
are split over the two cards (naive pipeline) and we accept that they work by turns.

    sbatch adapt.slurm          (plain python, no torchrun)
"""
import argparse
import json
import logging
import os

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("minutes")

BASE = "meta-llama/Llama-3.1-70B"      # the base model: plain text, no chat template


def rows(path, tokenizer, limit):
    """One document a row, whole. No packing: with 12k tokens a row is full as it is."""
    for line in open(path, encoding="utf-8"):
        text = json.loads(line)["text"].strip()
        ids = tokenizer(text).input_ids          # <|begin_of_text|> included
        if len(ids) >= limit:
            log.warning("cut from %d tokens", len(ids))
            ids = ids[: limit - 1]
        yield {"input_ids": ids + [tokenizer.eos_token_id]}


class Collate:
    """Batch of one: nothing is padded, so the pad token never matters.

    Labels are the whole document: this is adaptation to the genre, there is no
    prompt that could be masked.
    """

    def __call__(self, batch):
        assert len(batch) == 1
        ids = torch.tensor([batch[0]["input_ids"]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def load_model(two_cards):
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=quant,
        torch_dtype=torch.bfloat16,
        device_map="auto" if two_cards else {"": 0},
        max_memory={0: "34GiB", 1: "34GiB"} if two_cards else None,
        attn_implementation="sdpa",
    )
    model.config.use_cache = False
    model = prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
    )
    return get_peft_model(model, LoraConfig(
        r=8, lora_alpha=16, lora_dropout=0.0, task_type="CAUSAL_LM",
        target_modules=["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--limit", type=int, default=12_288)
    ap.add_argument("--epochs", type=float, default=2)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--seed", type=int, default=66)
    a = ap.parse_args()
    set_seed(a.seed)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SystemExit("one process only: the model is spread over the cards of the node")

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    # 900 documents: half a minute, not worth a cache
    train = Dataset.from_list(list(rows(a.data, tokenizer, a.limit)))
    lens = sorted(len(x) for x in train["input_ids"])
    log.info("%d documents, tokens: median %d, longest %d", len(lens), lens[len(lens) // 2], lens[-1])

    args = TrainingArguments(
        output_dir=a.out,
        per_device_train_batch_size=1,       # 9k tokens in the median: plenty for the arithmetic
        gradient_accumulation_steps=8,
        num_train_epochs=a.epochs,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        optim="adamw_torch_fused",
        logging_steps=1,                     # an update takes about four minutes
        save_steps=20,
        save_total_limit=2,
        dataloader_num_workers=0,            # one row every half minute
        report_to="none",
        seed=a.seed,
    )
    model = load_model(torch.cuda.device_count() > 1)
    model.print_trainable_parameters()
    trainer = Trainer(model=model, args=args, train_dataset=train, data_collator=Collate())
    last = get_last_checkpoint(a.out) if os.path.isdir(a.out) else None
    trainer.train(resume_from_checkpoint=last)
    model.save_pretrained(os.path.join(a.out, "adapter"))
    tokenizer.save_pretrained(os.path.join(a.out, "adapter"))


if __name__ == "__main__":
    main()
