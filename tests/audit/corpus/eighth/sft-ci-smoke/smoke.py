import argparse
import json

import torch
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from recipe import END, ROLES, encode

LENGTH = 96


def tiny_tokenizer(path):
    """A tokenizer from the sample itself, so that the job needs no network."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<unk>", "<pad>", END, *ROLES.values()]
    with open(path) as fh:
        texts = [m["content"] for line in fh for m in json.loads(line)["messages"]]
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1000, special_tokens=special,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=tok, unk_token="<unk>", pad_token="<pad>", eos_token=END,
                                   additional_special_tokens=list(ROLES.values()))


def tiny_model(tok):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tok), hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=LENGTH, pad_token_id=tok.pad_token_id,
        bos_token_id=None, eos_token_id=tok.eos_token_id, attn_implementation="eager",
    ))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--steps", type=int, default=6)
    a = ap.parse_args()

    tok = tiny_tokenizer(a.data)
    ds = load_dataset("json", data_files=a.data, split="train")
    ds = ds.map(encode, fn_kwargs={"tokenizer": tok, "length": LENGTH}, remove_columns=ds.column_names, load_from_cache_file=False)

    args = TrainingArguments(
        output_dir=a.out,
        max_steps=a.steps,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        report_to="none",
        seed=0,
    )
    trainer = Trainer(model=tiny_model(tok), args=args, train_dataset=ds, data_collator=default_data_collator, processing_class=tok)
    trainer.train()
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print("losses", losses)
    assert len(losses) == a.steps and losses[-1] < losses[0], "the loss does not fall"
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
