"""Which rows are read, how their columns are named, how they become tokens and labels."""

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from dynotune.config.keys.topic import Topic


class DatasetEntry(Topic):
    """One data set of a mixture (`datasets:`), with TRL's names."""

    path: str
    """A file, folder, glob or hub id."""

    name: str | None = None
    """The hub data set's configuration name."""

    data_dir: str | None = None
    """A folder inside the hub data set."""

    data_files: str | list[str] | dict[str, str] | None = None
    """Files inside the hub data set or below `path`."""

    split: str = "train"
    """Which split to take, where the source has splits."""

    columns: dict[str, str] | list[str] | None = None
    """A mapping of our names to the file's (`{prompt: question, completion: answer}`), or the columns to keep."""

    fraction: float | None = Field(default=None, ge=0)
    """Target share in the mixture. Shares are normalised; the mixture is as large as it can be without repeating a
    row, and the first rows of each data set are taken. Give it for every data set or for none."""


class DataConfig(Topic):
    per_example: ClassVar[int] = 1
    """Documents that an example consists of. No key: 2 where rows are pairs of a chosen and a rejected answer."""

    dataset_name: str | None = None
    """Training data: a file, a folder, a glob of shards or a hub id."""

    dataset_config: str | None = None
    """The hub data set's configuration name."""

    dataset_train_split: str = "train"
    """The split that is trained on, where the source has splits."""

    dataset_test_split: str = "test"
    """The split that is evaluated on, where the source has splits."""

    datasets: list[DatasetEntry] = Field(default_factory=list)
    """Several data sets, instead of `dataset_name`."""

    test_split_size: float | None = Field(default=None, gt=0)
    """Hold out this share (below 1) or number of rows of the training data for evaluation, chosen by `seed`."""

    eval_dataset_name: str | dict[str, str] | None = None
    """Held-out data: a file, folder, glob or hub id, or several by name (`{gsm8k: a.jsonl, chat: b.jsonl}`)."""

    @field_validator("eval_dataset_name", mode="after")
    @classmethod
    def _names_data(cls, value: str | dict[str, str] | None) -> str | dict[str, str] | None:
        if isinstance(value, dict) and any(not text.strip() for pair in value.items() for text in pair):
            raise ValueError("a name or a path in it is empty. Write `{name: path}`.")
        return value

    columns: dict[str, str] = Field(default_factory=dict)
    """Our column names to the file's: `{prompt: question, completion: answer}`. Holds for evaluation data too."""

    dataset_text_field: str = "text"
    """The column that holds plain text."""

    max_length: int | None = Field(default=1024, gt=1, lt=2**31)
    """Longest example in tokens; what is cut is counted. `null` cuts nothing."""

    truncation_mode: Literal["keep_start", "keep_end"] = "keep_start"
    """Which end of a long example is kept."""

    shuffle_dataset: bool = False
    """Shuffle the rows once before the plan is made, as TRL does. Matters with `train_sampling_strategy:
    sequential`."""

    on_bad_row: Literal["error", "skip"] = "error"
    """A row that cannot be decoded, parsed, rendered or given a label: `error` stops and names it, `skip` writes it to
    `quarantine.jsonl` in the run folder and counts it."""

    dataset_num_proc: int | None = Field(default=None, ge=1)
    """Processes that render and tokenise. Default: whatever keeps all cores busy that this process may use; threads for
    little data or one core, else one process a core. 1 stays in this process."""

    token_cache: Literal["auto", "off"] = "auto"  # noqa: S105  (tokens of text)
    """Where tokens are kept: `auto` keeps them in `token_cache_dir` and takes them from there while nothing has changed;
    `off` tokenises in memory at every start."""

    token_cache_dir: str | None = None
    """The folder of the token store. Default: `$DYNOTUNE_CACHE/tokens`, else `dynotune/tokens` in the user's cache
    folder (`$XDG_CACHE_HOME`, `~/.cache`)."""

    load_in_memory: bool | Literal["auto"] = "auto"
    """Read stored tokens into memory instead of mapping them. `auto`: where the store lies on a slow mount (a network,
    Windows' drives under WSL), which is said."""

    chat_template_path: str | None = None
    """A file (`.jinja`, `.j2`) with the chat template to use, or a tokenizer (folder or hub id) to take it from."""

    completion_only_loss: bool | None = None
    """Loss on the completion only. Default: yes for prompt/completion rows, as in TRL."""

    assistant_only_loss: bool = False
    """Loss on assistant turns only, by the template's `{% generation %}` blocks or a verified prefix difference."""

    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More variables for the chat template (`{enable_thinking: false}`). A row's own column of this name wins."""


class PreferenceDataConfig(DataConfig):
    """Rows are pairs: a prompt with a chosen and a rejected answer. The keys are the same."""

    per_example: ClassVar[int] = 2
