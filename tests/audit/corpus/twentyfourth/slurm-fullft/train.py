import json
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    attn_implementation: str = field(default="sdpa")


@dataclass
class DataArguments:
    train_file: str = field(default="data/train.jsonl")
    max_length: int = field(default=4096)


class ChatDataset(Dataset):
    """One conversation a line; only the last answer carries loss."""

    def __init__(self, path, tokenizer, max_length):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]
        self.tok = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        messages = self.rows[i]["messages"]
        prompt = self.tok.apply_chat_template(messages[:-1], add_generation_prompt=True)
        full = self.tok.apply_chat_template(messages)
        labels = [-100] * len(prompt) + full[len(prompt):]
        return {"input_ids": full[: self.max_length], "labels": labels[: self.max_length]}


class PadCollator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = [r["input_ids"] + [self.pad_id] * (width - len(r["input_ids"])) for r in rows]
        labels = [r["labels"] + [-100] * (width - len(r["labels"])) for r in rows]
        mask = [[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in rows]
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "attention_mask": torch.tensor(mask),
        }


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)

    tok = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    if tok.pad_token is None:
        tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation=model_args.attn_implementation,
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=ChatDataset(data_args.train_file, tok, data_args.max_length),
        data_collator=PadCollator(tok.pad_token_id),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
