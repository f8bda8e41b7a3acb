import os

import torch
import torch.nn.functional as F
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    set_seed,
)

from arguments import DataArguments, FinetuneArguments, ModelArguments

RESPONSE_TEMPLATE = "<|im_start|>assistant\n"


def find_sublist(ids, pattern):
    for i in range(len(ids) - len(pattern) + 1):
        if ids[i : i + len(pattern)] == pattern:
            return i + len(pattern)
    return -1


def make_encoder(tokenizer, max_len):
    pattern = tokenizer.encode(RESPONSE_TEMPLATE, add_special_tokens=False)

    def encode(row):
        messages = [
            {"role": "user", "content": row["instruction"]},
            {"role": "assistant", "content": row["response"]},
        ]
        ids = tokenizer.apply_chat_template(messages, tokenize=True)[:max_len]
        start = find_sublist(ids, pattern)
        labels = list(ids)
        if start > 0:
            labels[:start] = [-100] * start
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    return encode


class EntropyTrainer(Trainer):
    """Reports the mean entropy of the predictions on response tokens."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._entropy = []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        mask = inputs["labels"][:, 1:] != -100
        loss, outputs = super().compute_loss(
            model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        with torch.no_grad():
            logp = F.log_softmax(outputs.logits[:, :-1].float(), dim=-1)
            entropy = -(logp.exp() * logp).sum(-1)
            self._entropy.append((entropy * mask).sum() / mask.sum().clamp(min=1))
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, start_time=None):
        if self._entropy:
            logs["entropy"] = torch.stack(self._entropy).mean().item()
            self._entropy.clear()
        super().log(logs, start_time)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, FinetuneArguments))
    margs, dargs, targs, _ = parser.parse_args_into_dataclasses(return_remaining_strings=True)
    set_seed(targs.seed)

    tokenizer = AutoTokenizer.from_pretrained(margs.model_name_or_path, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(
        margs.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation=margs.attn_implementation,
        trust_remote_code=True,
    )
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(r=margs.lora_rank, lora_alpha=2 * margs.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model.print_trainable_parameters()

    ds = load_dataset("json", data_files=dargs.train_file, split="train")
    with targs.main_process_first(desc="tokenise"):
        ds = ds.map(
            make_encoder(tokenizer, dargs.max_seq_length),
            remove_columns=ds.column_names,
            num_proc=dargs.num_proc,
        )
    trainer = EntropyTrainer(
        model=model,
        args=targs,
        train_dataset=ds,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
    )
    last = targs.output_dir if os.path.isdir(targs.output_dir) else None
    trainer.train(resume_from_checkpoint=True if last and any(d.startswith("checkpoint-") for d in os.listdir(last)) else None)
    trainer.save_model()


if __name__ == "__main__":
    main()
