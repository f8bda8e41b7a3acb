import argparse
import json
import os

import torch
import torch.nn.functional as F
from peft import LoraConfig
from torch.utils.data import Dataset
from transformers import AutoTokenizer, Trainer, TrainingArguments, set_seed

from modeling import RewardModel

BASE = "Qwen/Qwen3-4B"


class Pairs(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        for line in open(path):
            r = json.loads(line)
            enc = {}
            for k in ("chosen", "rejected"):
                text = tok.apply_chat_template(r["prompt"] + [{"role": "assistant", "content": r[k]}], tokenize=False)
                enc[k] = tok(text, truncation=True, max_length=max_len, add_special_tokens=False)["input_ids"]
            enc["length"] = max(len(enc["chosen"]), len(enc["rejected"]))
            self.rows.append(enc)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def make_collate(tok):
    def collate(rows):
        seqs = [r["chosen"] for r in rows] + [r["rejected"] for r in rows]
        return dict(tok.pad({"input_ids": seqs}, padding=True, pad_to_multiple_of=8, return_tensors="pt"))
    return collate


class RMTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        s = model(inputs["input_ids"], inputs["attention_mask"])
        good, bad = s.chunk(2)
        loss = -F.logsigmoid(good - bad).mean()
        return (loss, {"scores": s}) if return_outputs else loss

    def _save(self, output_dir=None, state_dict=None):
        output_dir = output_dir or self.args.output_dir
        os.makedirs(output_dir, exist_ok=True)
        model = self.accelerator.unwrap_model(self.model)
        model.backbone.save_pretrained(output_dir)
        torch.save({"head": model.head.state_dict(), "mean": model.head.mean}, os.path.join(output_dir, "head.bin"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="pairs.jsonl")
    p.add_argument("--out", default="rm-out")
    p.add_argument("--max-len", type=int, default=2048)
    a = p.parse_args()
    set_seed(7)

    tok = AutoTokenizer.from_pretrained(BASE)
    tok.padding_side = "right"
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                      target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    model = RewardModel(BASE, lora)

    args = TrainingArguments(
        output_dir=a.out,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=1,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        ddp_find_unused_parameters=True,
        group_by_length=True,
        length_column_name="length",
        use_liger_kernel=True,      # fused cross entropy = less memory
        remove_unused_columns=False,
        logging_steps=5,
        save_steps=100,
        report_to="none",
    )
    trainer = RMTrainer(model=model, args=args, train_dataset=Pairs(a.data, tok, a.max_len), data_collator=make_collate(tok))
    trainer.train()
    trainer.save_model(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
