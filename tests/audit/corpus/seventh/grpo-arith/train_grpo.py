"""GRPO on generated arithmetic word problems (TRL 1.x).

    accelerate launch --config_file ddp.yaml train_grpo.py --config grpo.yaml
"""
import random
from dataclasses import dataclass, field

from datasets import Dataset
from transformers import AutoTokenizer, set_seed
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config

from rewards import correct, short_enough, well_formed

SYSTEM = "Work the problem out, then write the result as <answer>NUMBER</answer>."
NAMES = ["Ada", "Bo", "Cleo", "Dov", "Esi", "Finn"]
THINGS = ["apples", "stamps", "marbles", "tickets", "books"]


@dataclass
class DataArguments:
    problems: int = field(default=20_000, metadata={"help": "how many problems to generate"})
    max_terms: int = field(default=5, metadata={"help": "terms in a problem"})


def problem(rng, max_terms):
    who, what = rng.choice(NAMES), rng.choice(THINGS)
    total = rng.randint(5, 60)
    parts = [f"{who} has {total} {what}."]
    for _ in range(rng.randint(1, max_terms - 1)):
        n = rng.randint(2, 20)
        kind = rng.choice(("gets", "loses", "times"))
        if kind == "gets":
            total += n
            parts.append(f"{who} gets {n} more.")
        elif kind == "loses" and total > n:
            total -= n
            parts.append(f"{who} gives {n} away.")
        else:
            k = rng.randint(2, 4)
            total *= k
            parts.append(f"A friend makes it {k} times as many.")
    parts.append(f"How many {what} does {who} have now?")
    return " ".join(parts), total


def build(n, max_terms, seed):
    rng = random.Random(seed)
    rows = {"prompt": [], "target": []}
    for _ in range(n):
        text, total = problem(rng, max_terms)
        rows["prompt"].append([{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}])
        rows["target"].append(total)
    return Dataset.from_dict(rows)


def main():
    parser = TrlParser((DataArguments, GRPOConfig, ModelConfig))
    data_args, args, model_args = parser.parse_args_and_config()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, padding_side="left")
    args.model_init_kwargs = {
        "dtype": model_args.dtype,
        "attn_implementation": model_args.attn_implementation,
    }
    trainer = GRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=[correct, well_formed, short_enough],
        args=args,
        train_dataset=build(data_args.problems, data_args.max_terms, args.seed),
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
