"""The readers of configurations and rows under atheris, which looks for inputs that reach new lines of ours:
`python -m tests.fuzz.coverage_guided configurations -max_total_time=60`. A finding ends it with a traceback.

atheris has wheels for some systems only, so nothing else needs it.
"""

import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dynotune.config", "dynotune.data.read", "dynotune.data.formats", "yaml"]):
    from dynotune.config.reading.files import read_file
    from dynotune.config.sft import SFTConfig
    from dynotune.data.formats.recognise import FORMATS  # noqa: F401  (instrumented)
    from dynotune.data.read.readers import read_records

from dynotune.data.account.ledger import Ledger
from dynotune.data.ingest import load_examples
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import DynotuneError
from tests.tiny import tiny_tokenizer

PLACE = Path(tempfile.mkdtemp())
CONFIG = SFTConfig(on_bad_row="skip", token_cache="off", dataset_num_proc=1)
ENCODER = Encoder(tiny_tokenizer(), CONFIG)


def configurations(data: bytes) -> None:
    path = PLACE / ("a.json" if data[:1] == b"{" else "a.yaml")
    path.write_bytes(data)
    try:
        SFTConfig(**read_file(path).values)
    except DynotuneError as error:
        assert str(error).strip()  # noqa: PT017
    except TypeError as error:  # a key that is no word cannot be a keyword here; `load_config` says it
        assert "keywords must be strings" in str(error)  # noqa: PT017


def rows(data: bytes) -> None:
    path = PLACE / "a.jsonl"
    path.write_bytes(data)
    try:
        load_examples(read_records(path), CONFIG, ENCODER, quarantine=None, ledger=Ledger())
    except DynotuneError as error:
        assert str(error).strip()  # noqa: PT017


if __name__ == "__main__":
    target = {"configurations": configurations, "rows": rows}[sys.argv[1]]
    corpus = PLACE / "corpus"
    corpus.mkdir()
    from tests.fuzz.targets import Configurations, Rows

    seeds = Configurations().meant.values() if target is configurations else Rows().bases
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)
    os.chdir(PLACE)
    atheris.Setup(
        [sys.argv[0], *sys.argv[2:], "-timeout=20", "-rss_limit_mb=4000", "-max_len=4096", str(corpus)], target
    )
    atheris.Fuzz()
