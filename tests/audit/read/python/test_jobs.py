"""Promise: a script's training job is read with the values it will have, and what cannot be told is unknown."""

import textwrap
from pathlib import Path

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Fate, Job, Method, Trainer
from dynotune.audit.facts.setting import Known, Unknown
from dynotune.audit.place import Place
from dynotune.audit.read.project import read_project
from dynotune.audit.read.python import jobs_of, read_script
from dynotune.audit.schema import Schemas

ROOT = Path("project")
SCHEMAS = Schemas.of()


def jobs(configs: dict[str, ConfigFile] | None = None, **files: str) -> list[Job]:
    """Of the file that is given first; `conf__x` is `conf/x.py`."""
    scripts = {}
    for name, text in files.items():
        path = ROOT / f"{name.replace('__', '/')}.py"
        script = read_script(path, textwrap.dedent(text), ROOT)
        assert not script.unread
        scripts[script.file] = script
    return jobs_of(next(iter(scripts.values())), scripts, SCHEMAS, configs or {})


def test_arguments_through_variables_dictionaries_dataclasses_and_functions() -> None:
    (job,) = jobs(
        train="""
        from dataclasses import dataclass, field
        import torch
        from transformers import AutoModelForCausalLM, HfArgumentParser, BitsAndBytesConfig
        from peft import LoraConfig, prepare_model_for_kbit_training
        from trl import SFTConfig, SFTTrainer

        @dataclass
        class Args:
            lr: float = field(default=1e-4)
            rank: int = 16

        def load(name, four=True):
            quantized = BitsAndBytesConfig(load_in_4bit=four, bnb_4bit_compute_dtype=torch.bfloat16)
            model = AutoModelForCausalLM.from_pretrained(name, quantization_config=quantized, torch_dtype=torch.bfloat16)
            model = prepare_model_for_kbit_training(model)
            return model, 3

        def main():
            (args,) = HfArgumentParser((Args,)).parse_args_into_dataclasses()
            model, tokenizer = load("Qwen/Qwen2.5-0.5B")
            extra = {"packing": True, "logging_steps": 2 * 5}
            config = SFTConfig(output_dir="o", learning_rate=args.lr, max_seq_length=512, **extra)
            config.seed = 5
            SFTTrainer(model, args=config, peft_config=LoraConfig(r=args.rank, target_modules="all-linear")).train()
        main()
        """
    )
    assert (job.trainer, job.method) == (Trainer.TRL, Method.SFT)
    for name, value in {
        "learning_rate": 1e-4,
        "packing": True,
        "logging_steps": 10,
        "max_length": 512,
        "seed": 5,
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "dtype": "bfloat16",
        "load_in_4bit": True,
        "use_peft": True,
        "lora_r": 16,
        "lora_target_modules": "all-linear",
        "gradient_checkpointing": True,
    }.items():
        assert job.get(name) == value, name
    rate = job.settings["learning_rate"]
    assert rate.known is Known.FOLLOWED
    assert any(place.key == "--lr" for place in rate.via)  # which a launcher's flag replaces
    assert job.get("dataloader_num_workers") == 0  # a default of the installed version
    assert not job.is_given("dataloader_num_workers")
    assert job.home.line == 23
    renamed = next(key for key in job.given if key.name == "max_seq_length")
    assert (renamed.fate, renamed.instead) == (Fate.RENAMED, "max_length")


def test_constants_and_functions_of_other_files() -> None:
    (job,) = jobs(
        train="""
        from transformers import Trainer
        from conf.settings import LEARNING_RATE, arguments
        from conf import settings
        trainer = Trainer(model=None, args=arguments(LEARNING_RATE, seed=settings.SEED, bf16=True))
        """,
        conf__settings="""
        from transformers import TrainingArguments
        LEARNING_RATE = 3e-4
        SEED = 11
        def arguments(rate, seed=1, batch=8, **more):
            given = {"output_dir": "out", "learning_rate": rate, "seed": seed}
            given.update(more)
            return TrainingArguments(per_device_train_batch_size=batch // 2, **given)
        """,
    )
    assert job.trainer is Trainer.TRANSFORMERS
    assert (job.get("learning_rate"), job.get("seed"), job.get("per_device_train_batch_size")) == (3e-4, 11, 4)
    assert job.get("bf16") is True
    assert "conf/settings.py" in job.files


def test_arguments_made_in_a_file_that_another_trains_with_are_no_job_of_their_own() -> None:
    files = {
        "settings": "from trl import SFTConfig\ndef make():\n    return SFTConfig('out')\n",
        "train": "from settings import make\nfrom trl import SFTTrainer\nSFTTrainer('m', args=make())\n",
    }
    assert not jobs(**files)
    assert len(jobs(**dict(reversed(files.items())))) == 1
    assert len(jobs(settings=files["settings"])) == 1


def test_files_that_the_script_names() -> None:
    values = {"training": {"learning_rate": 5e-5}, "bf16": True}
    places = {"training.learning_rate": Place("conf/run.yaml", 2, key="training.learning_rate")}
    config = ConfigFile("conf/run.yaml", "unknown", values, places, {})
    text = """
    import yaml
    from pathlib import Path
    from trl import SFTConfig
    PATH = Path(__file__).parent / "conf" / "run.yaml"
    with open(PATH) as f:
        cfg = yaml.safe_load(f)
    SFTConfig("out", **cfg["training"], bf16=cfg["bf16"])
    """
    (job,) = jobs({"conf/run.yaml": config}, train=text)
    assert job.get("learning_rate") == 5e-5
    assert job.place("learning_rate").file == "conf/run.yaml"
    assert job.get("bf16") is True
    (without,) = jobs(train=text)
    assert isinstance(without.settings["learning_rate"].value, Unknown)


def test_a_subclass_of_a_trainer_and_of_its_arguments_is_one() -> None:
    (job,) = jobs(
        train="""
        from dataclasses import dataclass
        from transformers import Trainer, TrainingArguments, HfArgumentParser
        class Mine(Trainer):
            def compute_loss(self, model, inputs, **kwargs):
                return model(**inputs).loss
        @dataclass
        class MyArguments(TrainingArguments):
            learning_rate: float = 7e-5
            own: int = 3
        args, = HfArgumentParser(MyArguments).parse_args_into_dataclasses()
        Mine(model=None, args=args)
        """
    )
    assert job.trainer is Trainer.TRANSFORMERS
    assert job.get("learning_rate") == 7e-5
    # Whatever the command line gives cannot be known from the script.
    assert isinstance(job.settings["dataloader_num_workers"].value, Unknown)


def test_unsloth() -> None:
    (job,) = jobs(
        train="""
        from unsloth import FastLanguageModel
        from trl import SFTTrainer
        from transformers import TrainingArguments
        model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/x", max_seq_length=2048)
        model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, use_gradient_checkpointing="unsloth")
        arguments = TrainingArguments(output_dir="o", optim="adamw_8bit")
        SFTTrainer(model=model, max_seq_length=2048, packing=False, args=arguments)
        """
    )
    assert (job.trainer, job.method) == (Trainer.UNSLOTH, Method.SFT)
    assert job.get("load_in_4bit") is True
    assert (job.get("lora_r"), job.get("gradient_checkpointing"), job.get("max_length")) == (16, True, 2048)
    assert job.get("optim") == "adamw_8bit"


def test_a_loop_of_ones_own() -> None:
    (job,) = jobs(
        train="""
        import os
        import torch
        from torch.utils.data import DataLoader
        from accelerate import Accelerator
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
        train_loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
        eval_loader = DataLoader(other, batch_size=32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
        """
    )
    assert job.trainer is Trainer.TORCH
    assert job.get("per_device_train_batch_size") == 8
    assert (job.called("dataloader_num_workers"), job.get("dataloader_num_workers")) == ("num_workers", 2)
    assert (job.get("mixed_precision"), job.get("gradient_accumulation_steps"), job.get("learning_rate")) == (
        "bf16",
        4,
        1e-5,
    )
    assert job.get("dataloader_pin_memory") is False
    assert not job.is_given("dataloader_pin_memory")
    assert job.environment["TOKENIZERS_PARALLELISM"].value == "false"


def test_no_job_where_nothing_trains() -> None:
    assert not jobs(a="import torch\nfor x in y:\n    print(x)\n")
    assert not jobs(a="from peft import LoraConfig\nLoraConfig(r=8)\n")
    # Of the same name, but nobody's that we know.
    assert not jobs(a="class Trainer:\n    pass\nTrainer(model=1)\n")


def test_a_model_is_followed_through_what_wraps_it_and_a_field_is_its_own_place() -> None:
    (job,) = jobs(
        train="""
        from dataclasses import dataclass, field
        from transformers import HfArgumentParser, LlamaForCausalLM, Trainer, TrainingArguments
        from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training
        @dataclass
        class Arguments(TrainingArguments):
            learning_rate: float = 2e-4
            optim: str = field(default="adamw_hf", metadata={"help": "which"})
        model = LlamaForCausalLM.from_pretrained("a/b", load_in_8bit=True, device_map="auto")
        model = prepare_model_for_int8_training(model)
        model = get_peft_model(model, LoraConfig(r=4))
        (arguments,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
        Trainer(model=model, args=arguments)
        """
    )
    assert (job.get("model_name_or_path"), job.get("load_in_8bit"), job.get("lora_r")) == ("a/b", True, 4)
    assert (job.place("learning_rate").line, job.place("optim").line) == (7, 8)
    assert job.place("learning_rate").end_line == 7
    assert job.place("optim").end_line == 0  # no assignment of a value: nothing that could be edited


def test_a_flag_that_stores_false_does_so_from_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import argparse
            from transformers import TrainingArguments
            parser = argparse.ArgumentParser()
            parser.add_argument("--no-bf16", dest="bf16", action="store_false")
            parser.add_argument("--fast", action="store_true")
            parser.add_argument("--batch-size", dest="rows", type=int, default=4)
            args = parser.parse_args()
            TrainingArguments("o", bf16=args.bf16, tf32=args.fast, per_device_train_batch_size=args.rows)
            """
        )
    )
    (tmp_path / "run.sh").write_text("python train.py --no-bf16 --fast --batch-size 16\n")
    (job,) = read_project(tmp_path, schemas=SCHEMAS).jobs
    assert (job.get("bf16"), job.get("tf32"), job.get("per_device_train_batch_size")) == (False, True, 16)
