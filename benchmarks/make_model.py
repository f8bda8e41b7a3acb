"""A model folder with a shape and no weights, for configurations with `random_weights: true`.

    python benchmarks/make_model.py qwen2.5-7b --tokenizer FOLDER --out FOLDER [--layers 28]

Speed does not depend on what the weights are; memory and time to load do not either, once they are there.
"""

import argparse
import shutil
from pathlib import Path

from transformers import AutoTokenizer, Qwen2Config

SHAPES = {
    "qwen2.5-7b": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    },
    "qwen2.5-0.5b": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 152064, "tie_word_embeddings": True,
    },
    "23m": {
        "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 6,
        "num_key_value_heads": 6, "vocab_size": 1024, "tie_word_embeddings": True,
    },
}  # fmt: skip


def make(shape: str, tokenizer: Path, out: Path, layers: int | None = None) -> Path:
    """Write `config.json` and the tokenizer's files."""
    out.mkdir(parents=True, exist_ok=True)
    values = dict(SHAPES[shape])
    if layers:
        values["num_hidden_layers"] = layers
    known = AutoTokenizer.from_pretrained(tokenizer)
    values["vocab_size"] = max(int(values["vocab_size"]), len(known))
    config = Qwen2Config(
        **values, max_position_embeddings=32768, rms_norm_eps=1e-6, eos_token_id=known.eos_token_id, pad_token_id=None
    )
    config.architectures = ["Qwen2ForCausalLM"]
    config.save_pretrained(out)
    for file in tokenizer.iterdir():
        if file.is_file() and file.name != "config.json":
            shutil.copyfile(file, out / file.name)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    print(make(args.shape, args.tokenizer, args.out, args.layers))


if __name__ == "__main__":
    main()
