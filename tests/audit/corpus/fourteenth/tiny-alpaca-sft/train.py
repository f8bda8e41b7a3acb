import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

PROMPT = (
    "Below is an instruction that describes a task. Write a response.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="EleutherAI/pythia-1.4b")
    parser.add_argument("--data", default="data/train.jsonl")
    parser.add_argument("--output_dir", default="out/pythia-alpaca")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")
    model.config.use_cache = False

    def to_text(row):
        prompt = PROMPT.format(instruction=row["instruction"])
        return {"text": prompt + row["output"] + tokenizer.eos_token}

    dataset = load_dataset("json", data_files=args.data, split="train")
    dataset = dataset.map(to_text, remove_columns=dataset.column_names)

    config = SFTConfig(
        output_dir=args.output_dir,
        dataset_text_field="text",
        max_seq_length=2048,
        max_prompt_length=512,
        packing=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=16,
        num_train_epochs=3,
        learning_rate=2e-5,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        bf16=True,
        optim="adamw_torch_fused",
        logging_steps=5,
        save_strategy="epoch",
        save_safetensors=False,
        report_to="none",
        seed=args.seed,
    )

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.output_dir)
    tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
