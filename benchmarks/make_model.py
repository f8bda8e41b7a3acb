"""A model folder with a shape and no weights, for configurations with `random_weights: true`, and rows for them.

    python benchmarks/make_model.py qwen2.5-7b --tokenizer FOLDER --out FOLDER [--layers 28]
    python benchmarks/make_model.py qwen2.5-7b --tokenizer FOLDER --out FOLDER --rows SHARED/data/sft/sft_mix.jsonl.gz data

Speed does not depend on what the weights are; memory and time to load do not either, once they are there. `--rows` writes
the rows of `sft_mix` that the peers' row `sft-mix` takes: at most 4,096 tokens, without tools.
"""

import argparse
import gzip
import json
import shutil
import sys
from pathlib import Path

from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.peers.work import is_taken
from benchmarks.shapes import SHAPES, config_of

ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}


def make(shape: str, tokenizer: Path, out: Path, layers: int | None = None) -> Path:
    """Write `config.json` and the tokenizer's files."""
    out.mkdir(parents=True, exist_ok=True)
    values = dict(SHAPES[shape])
    if layers:
        values["num_hidden_layers"] = layers
    known = AutoTokenizer.from_pretrained(tokenizer)
    values["vocab_size"] = max(int(values["vocab_size"]), len(known))
    config = config_of(values, eos_token_id=known.eos_token_id, bos_token_id=known.bos_token_id, pad_token_id=None)
    config.architectures = [ARCHITECTURES[values["model_type"]]]
    config.save_pretrained(out)
    for file in tokenizer.iterdir():
        if file.is_file() and file.name != "config.json":
            shutil.copyfile(file, out / file.name)
    return out


def take_rows(source: Path, folder: Path) -> Path:
    """Write `sft_mix_4096.jsonl.gz`: the rows of `source` that are taken, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "sft_mix_4096.jsonl.gz"
    with (
        gzip.open(source, "rt", encoding="utf-8") as rows,
        gzip.open(out, "wt", encoding="utf-8", compresslevel=1) as to,
    ):
        to.writelines(line for line in rows if is_taken(json.loads(line)))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--rows", type=Path, nargs=2, metavar=("SOURCE", "FOLDER"))
    args = parser.parse_args()
    print(make(args.shape, args.tokenizer, args.out, args.layers))
    if args.rows:
        print(take_rows(*args.rows))


if __name__ == "__main__":
    main()
