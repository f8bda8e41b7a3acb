"""Write the shipped tables from the packages that are here, or from given sources.

    python -m dynotune.audit.schema.generate axolotl=path/of/its/sources llamafactory=path src/dynotune/audit/schema/tables

Everything that is read is read as text; a wheel that is unpacked in a folder does. Its `*.dist-info` gives the version.
"""

import json
import sys
from pathlib import Path
from typing import Any

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.schema import CLASSES, Schemas, names_of
from dynotune.audit.schema.classes import Key
from dynotune.audit.schema.shipped import COMPUTED, file_of

_PIECE = "-"


def _entry(key: Key) -> list[Any]:
    default = COMPUTED if isinstance(key.default, Unknown) else key.default
    entry = [key.type, default, int(key.required), key.deprecated]
    while len(entry) > 1 and not entry[-1]:
        entry.pop()
    return entry


def _version(schemas: Schemas, package: str) -> str:
    if package in schemas.given:
        for folder in schemas.given[package].parent.glob(f"{package}-*.dist-info"):
            return folder.name.removesuffix(".dist-info").rpartition(_PIECE)[2]
    return schemas.version(package)


def generate(schemas: Schemas, folder: Path) -> list[Path]:
    """One table for each trainer and method whose sources are here. Returns the files."""
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for (trainer, method), classes in CLASSES.items():
        main = classes[0][0]
        if main not in schemas.packages.folders:
            continue
        fields: dict[str, Key] = {}
        for class_ in classes:
            fields |= schemas.fields(*class_)
        packages = [main] if main == "axolotl" else sorted({main, "transformers"})
        versions = {package: _version(schemas, package) for package in packages}
        entries = {name: _entry(key) for name, key in sorted(fields.items())}
        lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
        text = f'{{"versions": {json.dumps(versions)},\n"keys": {{\n' + ",\n".join(lines) + "\n}"
        if (trainer, method) == (Trainer.TRL, Method.OTHER):
            others = {
                name: sorted(set(fields) - names_of(schemas, classes, name))
                for _, module, name in classes
                if module.startswith("trainer.") and name not in ("ModelConfig", "DatasetMixtureConfig")
            }
            rows = [f"{json.dumps(name)}: {json.dumps(lacks)}" for name, lacks in others.items()]
            text += ',\n"not_of": {\n' + ",\n".join(rows) + "\n}"
        text += "}\n"
        path = folder / file_of(trainer, method)
        path.write_text(text, "utf-8")
        written.append(path)
    return written


def main(words: list[str]) -> None:
    *given, folder = words
    pairs = [word.partition("=") for word in given]
    for path in generate(Schemas.of({name: Path(place) for name, _, place in pairs}), Path(folder)):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
