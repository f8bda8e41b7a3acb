"""What is fuzzed: for each kind its files as they were meant, how each is mutated, and the command that reads them."""

import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from dynotune import SFTConfig, train_sft
from dynotune.config.dpo import DPOConfig
from dynotune.config.load import load_config
from dynotune.config.whole import WholeConfig
from dynotune.data.load import load_train_and_eval
from dynotune.data.tokens.encode import Encoder
from dynotune.model.load import load_model
from dynotune.model.precision import Precision
from dynotune.model.tokenizer import load_tokenizer
from tests.fuzz import mutate
from tests.fuzz.mutate import Chance
from tests.tiny import chats, completions, tiny_model, tiny_tokenizer

Way = Callable[[Chance, bytes], bytes]


class Target(ABC):
    """One kind of input. `meant` are its files by relative path; `ways` how those are mutated that are."""

    name: str
    meant: dict[str, bytes]
    ways: Mapping[str, Way]
    strict = True
    """Whether the files as meant are taken. (Rows are drawn, and not every format has labels for every setting.)"""

    @abstractmethod
    def run(self, folder: Path, chance: Chance) -> Any:
        """Read the files in `folder`. What it writes belongs there, too."""


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


CONFIG = """\
# A configuration as people have them.
model_name_or_path: Qwen/Qwen2.5-0.5B
model_revision: main
eval_dataset_name: {held: data/held.jsonl, other: data/other.jsonl}
columns: {question: prompt, answer: completion}
datasets:
  - path: data/one.jsonl
    fraction: 0.5
  - {path: data/two.jsonl, fraction: 1}
output_dir: runs/one
env:
  WANDB_MODE: offline
model_init_kwargs: {rope_scaling: {rope_type: dynamic, factor: 2.0}}
chat_template_kwargs: {enable_thinking: false}
learning_rate: 2e-4
lr_scheduler_type: cosine
lr_scheduler_kwargs: {num_cycles: 0.5}
warmup_steps: 0.1
optim_args: foreach=false
eval_strategy: steps
per_device_train_batch_size: 4
gradient_accumulation_steps: 8
max_length: 2048
packing: false
bf16: true
use_peft: true
lora_r: 32
lora_target_modules: [q_proj, k_proj, v_proj]
added_tokens: [<think>, </think>]
report_to: [tensorboard, wandb]
logging_steps: 0.01
save_steps: 500
save_total_limit: 2
seed: 42
run_name: 1e3
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: false}
"""


class Configurations(Target):
    """YAML and JSON configurations, and every value of one as a flag."""

    name = "configurations"

    def __init__(self) -> None:
        import yaml

        self.meant = {"a.yaml": CONFIG.encode(), "b.json": json.dumps(yaml.safe_load(CONFIG)).encode()}
        self.ways = {
            "a.yaml": mutate.mixed(mutate.yaml_text, mutate.yaml_text, mutate.yaml_text, mutate.bytes_),
            "b.json": mutate.mixed(mutate.tree, mutate.tree, mutate.bytes_),
        }

    def run(self, folder: Path, chance: Chance) -> Any:
        before = dict(os.environ)
        try:
            changed = [name for name in self.meant if (folder / name).read_bytes() != self.meant[name]]
            for name in changed or self.meant:
                text = load_config(folder / name).to_yaml()
                assert all(c.isprintable() or c == "\n" for c in text), "a raw character in --print_config"
                (folder / "again.yaml").write_text(text, encoding="utf-8")
                again = load_config(folder / "again.yaml").to_yaml()
                assert _without_env(again) == _without_env(text), "the written configuration is another"
        finally:
            os.environ.clear()
            os.environ.update(before)


def _without_env(text: str) -> list[str]:
    """Variables are not written: they may be secrets."""
    return [line for line in text.split("\n") if not line.startswith("env: ")]


ROWS = [
    *chats(4),
    *completions(2),
    {"text": "plain words"},
    {"instruction": "Name it", "input": "x", "output": "y"},
    {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
    {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
            },
            {"role": "tool", "name": "f", "content": "1"},
            {"role": "assistant", "content": "done", "reasoning_content": "because"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    },
    {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]},
    {"prompt": [{"role": "user", "content": "p"}], "completion": [{"role": "assistant", "content": "c"}]},
]


def told(folder: Path, config: WholeConfig, encoder: Encoder) -> Any:
    """Load the data of a configuration; everything that is said and shown must be fit for a terminal."""
    said: list[str] = []
    train, _ = load_train_and_eval(config, encoder, folder / "run", say=said.append)
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=False)
    for line in (*said, *train.lines(), *encoder.report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(train.ledger.summary("training data"))
    raw = {c for c in shown.getvalue() if not c.isprintable() and c != "\n"}
    assert not raw, f"raw {raw!r} on the terminal: {shown.getvalue()[:500]!r}"
    return train


class Rows(Target):
    """JSON lines: rows of every format, one file for each."""

    name = "rows"
    strict = False
    rows: ClassVar[list[dict[str, Any]]] = ROWS

    def __init__(self) -> None:
        self.tokenizer = tiny_tokenizer()
        # A file has one format; which is drawn, so the mutations need a base for each.
        self.bases = [b"\n".join(json.dumps(row).encode() for row in (one, one, one)) for one in self.rows]
        self.meant = {"data.jsonl": b""}
        self.ways = {"data.jsonl": self._mutated}

    def _mutated(self, chance: Chance, _: bytes) -> bytes:
        return mutate.lines_of(mutate.mixed(mutate.tree, mutate.tree, mutate.bytes_))(chance, chance.choice(self.bases))

    def run(self, folder: Path, chance: Chance) -> Any:
        if chance.random() < 0.1:
            (folder / "data.jsonl").rename(folder / "data.json")
        config = self._config(
            chance,
            dataset_name=str(next(folder.glob("data.*"))),
            on_bad_row=chance.choice(("error", "skip")),
            token_cache="off",
            max_length=chance.choice((16, 1024)),
            dataset_num_proc=1,
        )
        return told(folder, config, Encoder(self.tokenizer, config))

    def _config(self, chance: Chance, **keys: Any) -> WholeConfig:
        return SFTConfig(assistant_only_loss=chance.random() < 0.3, **keys)


_ASKED, _GOOD, _BAD = (
    {"role": r, "content": c} for r, c in (("user", "q"), ("assistant", "good"), ("assistant", "bad"))
)

PAIRS: list[dict[str, Any]] = [
    {"prompt": [_ASKED], "chosen": [_GOOD], "rejected": [_BAD], "margin": 1.5},
    {"prompt": "q ", "chosen": "good", "rejected": "bad"},
    {"prompt": "q", "chosen": [_ASKED, _GOOD], "rejected": [_ASKED, _BAD]},
    {"chosen": [_ASKED, _GOOD], "rejected": [_ASKED, _BAD], "tools": "[]"},
    {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"},
    {"chosen": "say good", "rejected": "say bad"},
    {
        "conversations": [{"from": "human", "value": "q"}],
        "chosen": {"from": "gpt", "value": "good"},
        "rejected": {"from": "gpt", "value": "bad"},
        "system": "s",
    },
    {"messages": [_ASKED], "chosen": _GOOD, "rejected": _BAD},
    {"instruction": "q", "input": "i", "history": [["a", "b"]], "chosen": "good", "rejected": "bad"},
]


class PairRows(Rows):
    """JSON lines: preference rows of every format."""

    name = "pairs"
    rows = PAIRS

    def _config(self, chance: Chance, **keys: Any) -> WholeConfig:
        return DPOConfig(truncation_mode=chance.choice(("keep_start", "keep_end")), **keys)


TEMPLATES = (
    b"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    b"{{ 7 ** 99999999 }}",
    b"{{ 'a' * 10**10 }}",
    b"{{ ''.__class__.__mro__ }}{{ messages }}",
    b"{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    b"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    b"{{ raise_exception('\x1b[31mno') }}",
    b"{{ messages.append(1) }}",
    b"{% include '/etc/passwd' %}",
    b"{{ messages[0]['content'].format.__globals__ }}",
    b"{{ '%099999999999d' % 3 }}{{ 'x'.ljust(99999999999) }}",
    b"{% for m in messages %}{{ m.content | center(9999999999) }}{% endfor %}",
)


class Tokenizers(Target):
    """A tokenizer's folder: tokenizer.json, its configuration, the chat template; then rows through it."""

    name = "tokenizers"

    def __init__(self, made: Path) -> None:
        tokenizer = tiny_tokenizer()
        tokenizer.save_pretrained(made)
        self.meant = files_of(made) | {
            "special_tokens_map.json": json.dumps({"eos_token": "<eos>", "pad_token": "<pad>"}).encode(),
            "config.json": json.dumps({"model_type": "llama", "vocab_size": 352}).encode(),
            "data.jsonl": b"\n".join(json.dumps(row).encode() for row in chats(3)),
        }
        tree = mutate.mixed(mutate.tree, mutate.tree, mutate.tree, mutate.bytes_)
        self.ways = {
            "tokenizer.json": tree,
            "tokenizer_config.json": self._configuration,
            "special_tokens_map.json": tree,
            "config.json": tree,
            "chat_template.jinja": self._template,
        }

    @staticmethod
    def _template(chance: Chance, content: bytes) -> bytes:
        if chance.random() < 0.2:
            return chance.choice(TEMPLATES)
        cut = content.split(b"}")
        at = chance.randrange(len(cut))
        if chance.random() < 0.5:
            cut.insert(at, cut[chance.randrange(len(cut))])
            return b"}".join(cut)
        return mutate.bytes_(chance, content)

    @staticmethod
    def _configuration(chance: Chance, content: bytes) -> bytes:
        told = json.loads(content)
        for _ in range(chance.randrange(3)):
            told |= chance.choice(
                (
                    {
                        "tokenizer_class": chance.choice(
                            ("LlamaTokenizer", "T5Tokenizer", "NoSuch", "../x", "\x1b[2J", 3, None)
                        )
                    },
                    {"auto_map": {"AutoTokenizer": [chance.choice(("a.B", "../../x.y", "evil/repo--a.B")), None]}},
                    {"chat_template": [{"name": chance.choice(mutate.PATHS), "template": "x"}]},
                    {"chat_template": chance.choice((None, 3, [], [{}], {"default": 3}, ["x"]))},
                    {"model_max_length": chance.choice((*mutate.NUMBERS, "512", None))},
                    {"eos_token": chance.choice(({"content": "<eos>", "__type": "AddedToken"}, {}, 3, "<none>", None))},
                    {
                        "added_tokens_decoder": chance.choice(
                            ({"x": {}}, {"5": {"content": ""}}, [], {"-1": {"content": "q"}})
                        )
                    },
                    {"extra_special_tokens": chance.choice(([], {"a": "b"}, {"__class__": "b"}, 3, ["<pad>", 4]))},
                )
            )
        return mutate.tree(chance, json.dumps(told).encode()) if chance.random() < 0.7 else json.dumps(told).encode()

    def run(self, folder: Path, chance: Chance) -> Any:
        config = SFTConfig(
            model_name_or_path=str(folder), dataset_name=str(folder / "data.jsonl"), on_bad_row="skip", token_cache="off",
            dataset_num_proc=1, assistant_only_loss=chance.random() < 0.3,
        )  # fmt: skip
        tokenizer = load_tokenizer(config, config)
        told(folder, config, Encoder(tokenizer, config))
        tokenizer.save_pretrained(folder / "saved")


class Stores(Target):
    """A token store: its manifest, with and without a checksum that fits, and its arrays."""

    name = "token stores"

    def __init__(self, made: Path) -> None:
        self.tokenizer = tiny_tokenizer()
        (made / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(5)))
        self.data = made / "data.jsonl"
        config = self._config(made)
        self.truth = load_train_and_eval(config, Encoder(self.tokenizer, config), made / "run")[0].examples
        self.meant = {k: v for k, v in files_of(made / "cache").items() if not k.endswith((".lock", "used"))}
        self.ways = {name: self._manifest if name.endswith("manifest.json") else mutate.bytes_ for name in self.meant}

    def _config(self, folder: Path) -> SFTConfig:
        return SFTConfig(dataset_name=str(self.data), token_cache_dir=str(folder / "cache"), dataset_num_proc=1)

    @staticmethod
    def _manifest(chance: Chance, content: bytes) -> bytes:
        if chance.random() < 0.3:
            return mutate.bytes_(chance, content)
        mutated = mutate.tree(chance, content)
        if chance.random() < 0.5:
            return mutated
        try:  # whoever can write a manifest can write its checksum
            from dynotune.data.store.layout import _checksum

            body = json.loads(mutated)
            body.pop("checksum", None)
            return json.dumps({**body, "checksum": _checksum(body)}).encode()
        except (ValueError, AttributeError, RecursionError, TypeError):
            return mutated

    def run(self, folder: Path, chance: Chance) -> Any:
        cache = folder / "cache"
        cache.mkdir(exist_ok=True)
        for name in self.meant:
            (cache / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).rename(cache / name)
        config = self._config(folder)
        train = told(folder, config, Encoder(self.tokenizer, config))
        assert np.array_equal(train.examples.ids, self.truth.ids), "a damaged store gave other tokens"
        assert np.array_equal(train.examples.labels, self.truth.labels), "a damaged store gave other labels"


class Checkpoints(Target):
    """A checkpoint with its adapter, optimizer and counters: the run that resumes from it."""

    name = "checkpoints"

    SETTINGS: ClassVar[dict[str, Any]] = {
        "per_device_train_batch_size": 2, "max_steps": 2, "logging_steps": 1, "save_steps": 1, "use_cpu": True,
        "use_peft": True, "lora_r": 2, "lora_target_modules": "q_proj", "learning_rate": 1e-2, "disable_tqdm": True,
        "dataset_num_proc": 1, "token_cache": "off",
    }  # fmt: skip

    def __init__(self, made: Path) -> None:
        from dynotune.train.start import assemble
        from dynotune.train.state import Trainee

        kept: list[Trainee] = []

        class Kept(Trainee):
            def __init__(self, *values: Any, **named: Any) -> None:
                super().__init__(*values, **named)
                kept.append(self)

        before, assemble.Trainee = assemble.Trainee, Kept  # type: ignore[misc, assignment]
        try:
            self.config = SFTConfig(output_dir=str(made / "run"), **self.SETTINGS)
            train_sft(
                self.config, model=tiny_model(), tokenizer=tiny_tokenizer(), train_dataset=chats(6),
                console=Console(quiet=True),
            )  # fmt: skip
        finally:
            assemble.Trainee = before  # type: ignore[misc]
        self.trainee = kept[0]
        self.meant = {f"checkpoints/{k}": v for k, v in files_of(made / "run" / "checkpoints").items()}
        tree = mutate.mixed(mutate.tree, mutate.tree, mutate.bytes_)
        # The newest one, which is taken before those that are older.
        self.ways = {
            name: tree if name.endswith(".json") else self._tensors if name.endswith(".safetensors") else mutate.bytes_
            for name in self.meant
            if "step-2" in name and "tokenizer" not in name and not name.endswith((".jinja", ".md"))
        }

    @staticmethod
    def _tensors(chance: Chance, content: bytes) -> bytes:
        if chance.random() < 0.4:
            return mutate.bytes_(chance, content)
        length = int.from_bytes(content[:8], "little")
        header = mutate.tree(chance, content[8 : 8 + length])
        said = chance.choice((len(header), len(header), len(header), 2**63, 0, length, 10**9))
        return said.to_bytes(8, "little") + header + content[8 + length :]

    def run(self, folder: Path, chance: Chance) -> Any:
        from dynotune.manifest import DamagedError, Manifest, below, seal
        from dynotune.train.checkpoints.checkpoints import Checkpoints as Real

        if chance.random() < 0.6:  # whoever can write a checkpoint can write its checksums
            for step in (folder / "checkpoints").iterdir():
                try:
                    seal(step, "checkpoint", Manifest.read(step).about, below(step))
                except DamagedError:
                    continue
        checkpoints = Real(folder / "checkpoints", self.config)
        checkpoints.restore(checkpoints.find(True), self.trainee)


class Models(Target):
    """A model's folder: configuration, index of its parts, headers of safetensors."""

    name = "models"

    def __init__(self, made: Path) -> None:
        tiny_model(hidden_size=16, num_hidden_layers=1, intermediate_size=16).save_pretrained(
            made, max_shard_size="20KB"
        )
        self.meant = files_of(made)
        assert "model.safetensors.index.json" in self.meant
        tree = mutate.mixed(mutate.tree, mutate.tree, mutate.tree, mutate.bytes_)
        self.ways = {
            name: Checkpoints._tensors if name.endswith(".safetensors") else tree
            for name in self.meant
            if "generation" not in name
        }
        self.ways |= {"config.json": self._configuration}

    @staticmethod
    def _configuration(chance: Chance, content: bytes) -> bytes:
        told = json.loads(content)
        if chance.random() < 0.4:
            told |= chance.choice(
                (
                    {"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil/repo--evil.M"}},
                    {"attn_implementation": chance.choice(("evil/kernel", "evil/kernel:f", "sdpa", 3))},
                    {"_attn_implementation": "evil/kernel"},
                    {"experts_implementation": "evil/kernel"},
                    {"transformers_weights": chance.choice(("../../x.bin", "x.bin", "/etc/passwd"))},
                    {"model_type": chance.choice(("llama", "nosuch", "../x", "\x1b[2J", None, 3, "bert"))},
                    {
                        "quantization_config": chance.choice(
                            ({"quant_method": "x"}, {"quant_method": "bitsandbytes"}, 3)
                        )
                    },
                    {"num_hidden_layers": chance.choice((0, 2, -1, "1"))},
                    {"architectures": chance.choice((["os"], [], 3, ["\x1b[2J"]))},
                    {"dtype": chance.choice(("float8_e4m3fn", "os", "bfloat16", 3))},
                )
            )
        return mutate.tree(chance, json.dumps(told).encode()) if chance.random() < 0.6 else json.dumps(told).encode()

    def run(self, folder: Path, chance: Chance) -> Any:
        import torch

        config = SFTConfig(model_name_or_path=str(folder))
        load_model(config, Precision(torch.float32, compute_bf16=False), torch.device("cpu"))
