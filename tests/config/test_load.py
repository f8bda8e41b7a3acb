"""Nothing silent: what a file or flag says is taken as meant, or refused with key, value, place and remedy."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.config.load import load_config
from dynotune.config.reading.flags import Words
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError


def load(tmp_path: Path, text: str, name: str = "sft.yaml", **flags: Any) -> SFTConfig:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_config(path, flags)


def fails(tmp_path: Path, text: str, *needles: str, name: str = "sft.yaml", **flags: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, name, **flags)
    for needle in needles:
        assert needle in str(caught.value)
    return str(caught.value)


class TestErrorsNameKeyValuePlaceAndRemedy:
    def test_unknown_key(self, tmp_path: Path) -> None:
        fails(tmp_path, "seed: 1\nlerning_rate: 3\n", "sft.yaml, line 2", "`lerning_rate: 3`", "`learning_rate`?")

    @pytest.mark.parametrize(
        ("name", "ours"),
        [
            ("sequence_len", "`max_length`"),
            ("micro_batch_size", "`per_device_train_batch_size`"),
            ("cutoff_len", "`max_length`"),
            ("base_model", "`model_name_or_path`"),
            ("num_epochs", "`num_train_epochs`"),
            ("lora_rank", "`lora_r`"),
            ("sample_packing", "`packed_execution`"),
            ("finetuning_type", "`use_peft: true`"),
            ("stage", "Remove it"),
        ],
    )
    def test_names_of_other_trainers_are_suggested_not_guessed(self, tmp_path: Path, name: str, ours: str) -> None:
        fails(tmp_path, f"{name}: 8", name, ours, "line 1")

    def test_a_misspelt_name_of_another_trainer_leads_to_ours(self, tmp_path: Path) -> None:
        said = fails(tmp_path, "seqeunce_len: 512", "there is no key `seqeunce_len`", "Did you mean `sequence_len`?")
        assert said.endswith("That is a name of Axolotl. Write `max_length`.")

    @pytest.mark.parametrize("text", ["seed: 1\n\tmax_length: 2\n", "env:\n\tA: b\n"])
    def test_a_tab_is_called_one(self, tmp_path: Path, text: str) -> None:
        fails(tmp_path, text, "line 2", "A tab stands there, and YAML takes none: indent with spaces.")

    def test_type(self, tmp_path: Path) -> None:
        fails(tmp_path, "max_length: long", "line 1", "`max_length: 'long'`", "a whole number or null")

    def test_range(self, tmp_path: Path) -> None:
        fails(tmp_path, "lora_dropout: 1.5\nuse_peft: true", "`lora_dropout: 1.5`", "below 1")

    def test_choice(self, tmp_path: Path) -> None:
        fails(tmp_path, "eval_strategy: step", "`no`, `steps`, `epoch`", "Did you mean `steps`?")

    def test_entry_of_a_mixture(self, tmp_path: Path) -> None:
        text = "datasets:\n- path: a.jsonl\n- path: b.jsonl\n  type: alpaca\n- name: x\n"
        message = fails(tmp_path, text, "datasets[1].type", "line 4", "datasets[2].path", "is missing")
        assert "recognised from the columns" in message

    def test_misspelled_schedule_and_optimizer(self, tmp_path: Path) -> None:
        fails(tmp_path, "lr_scheduler_type: cosin\noptim: adam_torch\n", "`cosine`", "`adamw_torch`")

    def test_all_problems_at_once(self, tmp_path: Path) -> None:
        text = "seed: -1\nload_in_8bit: true\nbase_model: x\nlabel_smoothing_factor: 0.1\nloss_type: dft\n"
        message = fails(tmp_path, text, "4 problems", "line 1", "line 2", "line 3", "line 4")
        assert message.count("\n") == 4

    def test_a_flag_is_named_as_it_was_typed(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"flag --lora-r: .* must be a whole number"):
            load_config(None, {"lora_r": Words(["many"])}, spelled={"lora_r": "--lora-r"})

    def test_secrets_are_not_shown(self, tmp_path: Path) -> None:
        message = fails(tmp_path, "hub_token: [hf_abcdef]\nenv: {WANDB_API_KEY: [s3cret], A: [b]}\n", "(hidden)")
        assert "hf_abcdef" not in message
        assert "s3cret" not in message
        assert "s3cret" not in fails(tmp_path, "wandb_api_key: s3cret", "wandb_api_key")
        assert "s3cret" not in fails(tmp_path, "push_to_hub_token: [s3cret]", "sft.yaml, line 1")

    def test_python_goes_through_the_same_checks(self) -> None:
        with pytest.raises(ConfigError, match=r"`load_in_8bit: true` is refused.*") as caught:
            SFTConfig(load_in_8bit=True, lerning_rate=1)  # type: ignore[call-arg]
        assert isinstance(caught.value, ValueError)
        assert "`learning_rate`" in str(caught.value)
        with pytest.raises(ConfigError, match="must be a number"):
            SFTConfig.model_validate({"learning_rate": "fast"})
        config = SFTConfig()
        with pytest.raises(ConfigError, match="must be 0 or more"):
            config.learning_rate = -1.0

    def test_replace_checks_the_whole(self) -> None:
        config = SFTConfig(loss_type="dft", max_length=512)
        assert config.replace(seed=7).max_length == 512
        with pytest.raises(ConfigError, match="label_smoothing_factor"):
            config.replace(label_smoothing_factor=0.1)


class TestFormsAreTakenAsMeant:
    @pytest.mark.parametrize(
        ("line", "key", "value"),
        [
            ("learning_rate: 1e-5", "learning_rate", 1e-5),
            ("learning_rate: 2.0e-04", "learning_rate", 2e-4),
            ("learning_rate: '1e-5'", "learning_rate", 1e-5),
            ("eval_strategy: no", "eval_strategy", "no"),
            ("eval_strategy: 'no'", "eval_strategy", "no"),
            ("eval_strategy: false", "eval_strategy", "no"),
            ("save_strategy: no", "save_strategy", "no"),
            ("logging_strategy: NO", "logging_strategy", "no"),
            ("report_to: none", "report_to", "none"),
            ("report_to: null", "report_to", "none"),
            ("report_to: [none]", "report_to", "none"),
            ("report_to: tensorboard", "report_to", "tensorboard"),
            ("report_to: [wandb, tensorboard]", "report_to", ["wandb", "tensorboard"]),
            ("packed_execution: off", "packed_execution", "off"),
            ("max_length: null", "max_length", None),
            ("run_name: 2024", "run_name", "2024"),
            ("run_name: 1e3", "run_name", "1e3"),
            ("run_name: 2024-05-01", "run_name", "2024-05-01"),
            ("run_name: no", "run_name", "no"),
            ("model_revision: 1234567", "model_revision", "1234567"),
            ("model_init_kwargs: '{\"a\": 1}'", "model_init_kwargs", {"a": 1}),
            (
                "lr_scheduler_type: cosine\nlr_scheduler_kwargs: '{\"num_cycles\": 1}'",
                "lr_scheduler_kwargs",
                {"num_cycles": 1},
            ),
            ("use_peft: true\nlora_target_modules: all-linear", "lora_target_modules", "all-linear"),
            ("use_peft: true\nlora_target_modules: [all-linear]", "lora_target_modules", "all-linear"),
            ("use_peft: true\nlora_target_modules: [q_proj]", "lora_target_modules", ["q_proj"]),
            ("use_peft: true\nlora_target_modules: ['.*q_proj']", "lora_target_modules", ".*q_proj"),
            ("use_peft: yes\nlora_modules_to_save: lm_head", "lora_modules_to_save", ["lm_head"]),
            ("use_peft: true\ninit_lora_weights: pissa", "init_lora_weights", "pissa"),
            ("use_peft: true\ninit_lora_weights: 'false'", "init_lora_weights", False),
            ("output_dir: a\nresume_from_checkpoint: true", "resume_from_checkpoint", True),
            (
                "resume_from_checkpoint: runs/a/checkpoints/step-1",
                "resume_from_checkpoint",
                "runs/a/checkpoints/step-1",
            ),
            ("loss_type: chunked_nll", "loss_type", "nll"),
            ("max_steps: 0", "max_steps", -1),
            ("warmup_ratio: 0.1", "warmup_steps", 0.1),
            ("torch_dtype: bfloat16", "dtype", "bfloat16"),
            ("evaluation_strategy: no", "eval_strategy", "no"),
            ("max_seq_length: 512", "max_length", 512),
            ("activation_checkpointing: true", "gradient_checkpointing", True),
            ("train_sampling_strategy: batch_rebalance", "train_sampling_strategy", "random"),
            ("eval_dataset_name: {a: x.jsonl}\neval_strategy: epoch", "eval_dataset_name", {"a": "x.jsonl"}),
        ],
    )
    def test_file(self, tmp_path: Path, line: str, key: str, value: Any) -> None:
        found = getattr(load(tmp_path, line), key)
        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize("line", ["seed: true", "learning_rate: no", "max_steps: false", "max_length: yes"])
    def test_a_boolean_is_no_number(self, tmp_path: Path, line: str) -> None:
        fails(tmp_path, line, "true or false")

    @pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", "nan", "inf", "1e999"])
    def test_a_number_is_finite(self, tmp_path: Path, number: str) -> None:
        fails(tmp_path, f"learning_rate: {number}", "learning_rate")

    def test_renames_are_said(self, tmp_path: Path) -> None:
        assert "`warmup_ratio` is the old name" in load(tmp_path, "warmup_ratio: 0.1").notices[0]
        assert load(tmp_path, "warmup_ratio: 0.0\nwarmup_steps: 5").warmup_steps == 5

    def test_two_names_of_one_key_may_not_disagree(self, tmp_path: Path) -> None:
        fails(tmp_path, "warmup_ratio: 0.1\nwarmup_steps: 10", "warmup_ratio", "warmup_steps", "disagree")
        assert load(tmp_path, "torch_dtype: auto\ndtype: auto").dtype == "auto"

    def test_paths_and_enums_of_python(self) -> None:
        from transformers.trainer_utils import IntervalStrategy, SchedulerType

        config = SFTConfig(
            output_dir=Path("runs/a"),  # type: ignore[arg-type]
            eval_strategy=IntervalStrategy.NO,  # type: ignore[arg-type]
            lr_scheduler_type=SchedulerType.COSINE,
        )
        assert (config.output_dir, config.eval_strategy, config.lr_scheduler_type) == ("runs/a", "no", "cosine")


class TestFlags:
    def read(self, **words: list[str]) -> SFTConfig:
        return load_config(None, {key: Words(value) for key, value in words.items()})

    def test_switches_lists_and_mappings(self) -> None:
        config = self.read(
            use_peft=[],
            lora_target_modules=["q_proj", "v_proj"],
            columns=["prompt=question", "completion=answer"],
            model_init_kwargs=['{"a": 1}'],
            env=["{DYNOTUNE_TEST_FLAG: x}"],
            max_length=["none"],
            learning_rate=["1e-5"],
        )
        assert config.use_peft is True
        assert config.lora_target_modules == ["q_proj", "v_proj"]
        assert config.columns == {"prompt": "question", "completion": "answer"}
        assert config.model_init_kwargs == {"a": 1}
        assert config.max_length is None
        assert config.learning_rate == 1e-5
        assert os.environ.pop("DYNOTUNE_TEST_FLAG") == "x"

    @pytest.mark.parametrize("word", ["true", "True", "yes", "1"])
    def test_switch_with_a_word(self, word: str) -> None:
        assert self.read(use_peft=[word]).use_peft is True

    def test_flags_win_over_the_file(self, tmp_path: Path) -> None:
        config = load(tmp_path, "seed: 1\nmax_length: 7", seed=Words(["2"]))
        assert (config.seed, config.max_length) == (2, 7)

    def test_missing_and_surplus_words(self) -> None:
        with pytest.raises(ConfigError, match="2 problems") as caught:
            self.read(seed=[], output_dir=["a", "b"])
        assert "flag --seed: a value is missing" in str(caught.value)
        assert "takes one value, and 2 were given: a b" in str(caught.value)

    def test_the_fate_of_another_key_is_said_for_its_flag(self) -> None:
        assert "dataloader_num_workers" in self.read(dataloader_num_workers=["4"]).notices[0]
        assert self.read(dataloader_num_workers=["0"], load_in_8bit=["False"]).notices == []
        with pytest.raises(ConfigError, match="flag --load_in_8bit: `load_in_8bit: true` is refused"):
            self.read(load_in_8bit=[])


class TestEnvironmentOfAFile:
    def test_is_exported_as_in_trl(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("DT_A", "DT_B", "DT_C"):
            monkeypatch.delenv(name, raising=False)
        config = load(tmp_path, "env:\n  DT_A: 4\n  DT_B: text\n  DT_C: 1.10\n")
        assert (os.environ["DT_A"], os.environ["DT_B"], os.environ["DT_C"]) == ("4", "text", "1.10")
        assert config.env == {"DT_A": "4", "DT_B": "text", "DT_C": "1.10"}

    def test_an_empty_value_is_an_error(self, tmp_path: Path) -> None:
        fails(tmp_path, "env: {DT_D: }", "env.DT_D", "must be text")
        assert "DT_D" not in os.environ


class TestHostileFiles:
    def test_duplicate_key(self, tmp_path: Path) -> None:
        fails(tmp_path, "seed: 1\nmax_length: 3\nseed: 2\n", "line 3", "`seed` is given twice")
        fails(tmp_path, '{"seed": 1, "seed": 2}', "`seed` is given twice", name="sft.json")

    def test_anchors_and_merges_work(self, tmp_path: Path) -> None:
        text = "datasets:\n- &a {path: a.jsonl, split: x}\n- <<: *a\n  path: b.jsonl\n"
        entries = load(tmp_path, text).datasets
        assert [(entry.path, entry.split) for entry in entries] == [("a.jsonl", "x"), ("b.jsonl", "x")]

    def test_billion_laughs(self, tmp_path: Path) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
        fails(tmp_path, "\n".join(lines), "aliases expand")

    def test_an_alias_that_contains_itself(self, tmp_path: Path) -> None:
        fails(tmp_path, "chat_template_kwargs: &a {b: *a}", "contains itself")

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
    def test_deep_nesting(self, tmp_path: Path, opening: str) -> None:
        fails(tmp_path, "columns: \n  " + opening * 3000, "nested too deeply")

    def test_deep_json(self, tmp_path: Path) -> None:
        fails(tmp_path, '{"a": ' + "[" * 100_000, "nested too deeply", name="sft.json")

    def test_size(self, tmp_path: Path) -> None:
        fails(tmp_path, "#" * (1 << 20) + "\nseed: 1", "larger than")

    @pytest.mark.parametrize(
        "text",
        [
            "!!python/object/apply:os.system ['touch pwned']",
            "seed: !!python/name:os.system",
            "- a\n- b\n",
            "just text",
            "a: b: c",
            "seed: 1\n---\nseed: 2\n",
            "\tseed: 1",
            "? [a, b]\n: 1",
            "seed: \x00",
            "seed: *nowhere",
            "x: !!int abc",
        ],
    )
    def test_malformed_yaml(self, tmp_path: Path, text: str) -> None:
        fails(tmp_path, text, "sft.yaml")
        assert not Path("pwned").exists()

    @pytest.mark.parametrize("text", ["[1]", '{"a": NaN}', "{", "3", '{"seed": 1,}'])
    def test_malformed_json(self, tmp_path: Path, text: str) -> None:
        fails(tmp_path, text, "sft.json", name="sft.json")

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_bytes(b"seed: \xff\xfe\xfa")
        with pytest.raises(ConfigError, match=r"a\.yaml"):
            load_config(tmp_path / "a.yaml", {})

    def test_byte_order_mark_and_windows_lines(self, tmp_path: Path) -> None:
        for name, content in (
            ("a.yaml", "seed: 1\r\nmax_length: 9\r\n"),
            ("a.json", '{"seed": 1,\r\n"max_length": 9}'),
        ):
            (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.encode())
            assert load_config(tmp_path / name, {}).max_length == 9

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        for path in (tmp_path / "none.yaml", tmp_path):
            with pytest.raises(ConfigError, match="cannot be read"):
                load_config(path, {})

    def test_empty_file_is_an_empty_configuration(self, tmp_path: Path) -> None:
        assert load(tmp_path, "# nothing\n") == SFTConfig()

    @settings(max_examples=150, deadline=None)
    @given(st.text(max_size=80))
    def test_any_text_loads_or_is_a_config_error(self, tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
        path = tmp_path_factory.mktemp("fuzz") / "sft.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load_config(path, {})
        except ConfigError as error:
            assert "sft.yaml" in str(error)  # noqa: PT017


class TestEnvironmentVariables:
    """A configuration is data: it may tune libraries, and not choose the code that runs."""

    @pytest.mark.parametrize(
        "name",
        ["PATH", "LD_PRELOAD", "PYTHONPATH", "DYLD_INSERT_LIBRARIES", "GIT_SSH_COMMAND", "CC", "Path", "BASH_ENV"],
    )
    def test_what_changes_the_code_that_runs_is_refused(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "before")
        fails(tmp_path, f"env: {{{name}: /evil}}", "line 1", f"`{name}`", f"export {name}=", "in the shell")
        assert os.environ[name] == "before"
        with pytest.raises(ConfigError, match="in the shell"):
            SFTConfig(env={name: "/evil"})

    @pytest.mark.parametrize(
        "env",
        [
            {"": "a"},
            {"  ": "a"},
            {"A=B": "a"},
            {"A\0": "a"},
            {"A": "a\0b"},
            {"A": "\ud800"},
            {"\udcff": "a"},
            {1: "\0"},
        ],
        ids=ascii,
    )
    def test_what_no_variable_can_hold_is_refused(self, env: dict[Any, str]) -> None:
        with pytest.raises(ConfigError, match="`env: "):
            load_config(None, {"env": env})

    @pytest.mark.parametrize(
        "name",
        [
            *("HF_HUB_OFFLINE", "HF_HOME", "WANDB_PROJECT", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM"),
            *("NCCL_DEBUG", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS", "MLFLOW_TRACKING_URI", "HTTPS_PROXY"),
        ],
    )
    def test_what_tunes_libraries_is_set(self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Negative control: TRL's files run unchanged."""
        monkeypatch.setenv(name, "before")
        load(tmp_path, f"env: {{{name}: 1.10}}")
        assert os.environ[name] == "1.10"

    def test_nothing_is_set_by_a_configuration_that_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DT_TEST_A", "before")
        fails(tmp_path, "env: {DT_TEST_A: after}\nseed: x\n", "seed")
        assert os.environ["DT_TEST_A"] == "before"


class TestTargetModules:
    @pytest.mark.parametrize("given", [Words(["q_proj"]), "q_proj", ["q_proj"], ("q_proj",), "[q_proj]"], ids=str)
    def test_one_plain_name_is_a_list_of_one(self, given: Any) -> None:
        """PEFT takes a word for a regular expression of the whole module path, which a plain name never matches."""
        config = load_config(None, {"use_peft": True, "lora_target_modules": given})
        assert config.lora_target_modules == ["q_proj"]

    def test_so_from_a_file_by_assignment_and_as_a_path(self, tmp_path: Path) -> None:
        config = load(tmp_path, "use_peft: true\nlora_target_modules: layers.0.q_proj\n")
        assert config.lora_target_modules == ["layers.0.q_proj"]
        config.lora_target_modules = "v_proj"
        assert config.lora_target_modules == ["v_proj"]

    @pytest.mark.parametrize("word", ["all-linear", "All-Linear", ".*q_proj", "(q|v)_proj", r"layers\.\d{1}\.q"])
    def test_regular_expressions_stay(self, word: str) -> None:
        for form in (word, [word]):
            assert SFTConfig(use_peft=True, lora_target_modules=form).lora_target_modules == word


class TestHostileValues:
    def test_merges_of_nothing_cost_nothing(self, tmp_path: Path) -> None:
        """Each level names the one below nine times; nothing is in the lowest, so no value ever counts."""
        levels = ["a0: &a0 {}"]
        levels += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 13)]
        began = time.process_time()
        fails(tmp_path, "\n".join(levels), "aliases expand")
        assert time.process_time() - began < 5

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            (f"seed: 0x{'f' * 20_000}", "a.yaml"),
            (f"seed: {'9' * 6_000}", "a.yaml"),
            (f"seed: 1{':59' * 6_000}", "a.yaml"),
            (f"max_length: -{'9' * 6_000}", "a.yaml"),
            (f'{{"seed": {"9" * 6_000}}}', "a.json"),
            (f'{{"max_steps": {"9" * 200}}}', "a.json"),
        ],
        ids=lambda text: text[:8],
    )
    def test_endless_numbers_are_named(self, tmp_path: Path, text: str, name: str) -> None:
        assert len(fails(tmp_path, text, name, "digits", name=name)) < 400

    @pytest.mark.parametrize(
        "values",
        [
            *({"max_length": 10**20}, {"lora_r": 10**9, "use_peft": True}, {"lora_alpha": 10**400, "use_peft": True}),
            *({"seed": 10**5000}, {"max_steps": 10**400}, {"save_steps": 10**400}, {"warmup_ratio": 10**400}),
            *({"learning_rate": 10**400}, {"eval_steps": 10**400}, {"gradient_accumulation_steps": str(10**30)}),
            {"env": {"A": 10**5000}},
        ],
        ids=lambda values: next(iter(values)),
    )
    def test_numbers_that_nothing_can_hold(self, values: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as caught:
            SFTConfig(**values)
        assert next(iter(values)).replace("ratio", "") in str(caught.value)
        assert len(str(caught.value)) < 400

    @pytest.mark.parametrize(
        "key",
        [
            *("model_name_or_path", "tokenizer_name_or_path", "dataset_name", "chat_template_path", "output_dir"),
            *("run_name", "eos_token", "pad_token", "model_revision", "resume_from_checkpoint", "dataset_text_field"),
        ],
    )
    def test_empty_paths_and_names(self, tmp_path: Path, key: str) -> None:
        """An empty path is the current folder to most functions that take one."""
        fails(tmp_path, f"{key}: ''", f"`{key}: ''`", "line 1", "empty")
        with pytest.raises(ConfigError, match="empty"):
            load_config(None, {key: Words([""])})

    @pytest.mark.parametrize(
        "values",
        [
            {"datasets": [{"path": " "}]},
            {"added_tokens": ["<a>", ""]},
            {"eval_dataset_name": {"a": ""}, "eval_strategy": "epoch"},
            {"eval_dataset_name": {"": "a"}, "eval_strategy": "epoch"},
            {"lora_target_modules": [""], "use_peft": True},
            {"model_name_or_path": "  "},
        ],
        ids=str,
    )
    def test_empty_entries(self, values: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="empty"):
            SFTConfig(**values)

    @pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a\x00", "\u202eevil", "a\u2028b", "\ud800"], ids=ascii)
    def test_names_of_runs_stay_on_one_line(self, name: str) -> None:
        """They stand in the model card, in trackers and on the terminal."""
        with pytest.raises(ConfigError, match="`run_name: ") as caught:
            SFTConfig(run_name=name)
        assert str(caught.value).isprintable()

    def test_names_of_runs_in_any_language(self) -> None:
        """Negative control."""
        assert SFTConfig(run_name="Versuch 1: größer, 実験").run_name

    @pytest.mark.parametrize(
        "text",
        [
            '"a\\eb": 1',
            '"a\\eb": x\n"a\\eb": y',
            'datasets:\n- {path: x, "a\\eb": 1}',
            'pad_token: "\\e[2J"\nseed: x',
            'output_dir: "\\e[2J"\nseed: x',
            'max_length: ["\\e"]',
            'added_tokens: {"\\e": "\\e"}',
            'model_init_kwargs: {"\\e": 1, device_map: auto}',
        ],
    )
    def test_errors_hold_no_control_characters(self, tmp_path: Path, text: str) -> None:
        for line in fails(tmp_path, text).split("\n"):
            assert line.isprintable()

    @pytest.mark.parametrize("text", [None, "seed: x", "[", "seed: &a [*a]", "- x", "{}{}"])
    def test_nor_does_the_name_of_the_file(self, tmp_path: Path, text: str | None) -> None:
        path = tmp_path / "a\x1b[2J\udcff.yaml"
        if text is not None:
            path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_config(path, {})
        assert "\x1b" not in str(caught.value)
        assert "\udcff" not in str(caught.value)
