import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

IGNORE = -100


@dataclass
class ScriptArguments:
    model_name_or_path: str = field(metadata={"help": "base model"})
    dataset_name: str = field(metadata={"help": "data set with instruction and response"})
    max_length: int = field(default=4096)


def encode(row, tokenizer, max_length):
    # the tokenizer adds BOS to the prompt; nothing is added to the answer but EOS
    prompt = tokenizer(f"<<user>>\n{row['instruction']}\n<<assistant>>\n")["input_ids"]
    answer = tokenizer(row["response"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    ids = (prompt + answer)[:max_length]
    labels = ([IGNORE] * len(prompt) + answer)[:max_length]
    return {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids), "length": len(ids)}


def main():
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name_or_path)
    # EOS as pad is harmless here: labels are padded with -100 by the collator, never made from the pad id
    tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name_or_path,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    dataset = load_dataset(script_args.dataset_name, split="train")
    with training_args.main_process_first(local=True, desc="tokenize"):
        dataset = dataset.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_length": script_args.max_length},
            remove_columns=dataset.column_names,
            num_proc=16,
        )
        dataset = dataset.filter(lambda n: [any(t != IGNORE for t in x) for x in n], input_columns="labels", batched=True, num_proc=16)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=dataset,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=IGNORE, pad_to_multiple_of=8),
    )
    last = get_last_checkpoint(training_args.output_dir) if os.path.isdir(training_args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
