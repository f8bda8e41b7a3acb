"""The base of a whole configuration: from a file, flags or Python alike, fully checked, or one `ConfigError`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, PrivateAttr, ValidationError

from dynotune.config.checking.check import build, resolve
from dynotune.config.checking.problems import Origins, Problem, raise_problems, type_problems
from dynotune.config.keys.topic import Topic
from dynotune.config.method import Method
from dynotune.config.secrets import hidden, is_secret, public


class CheckedConfig(Topic):
    """A configuration whose every key has found its fate."""

    method: ClassVar[Method]
    """What is this method's own; set by each whole configuration."""

    _notices: list[str] = PrivateAttr(default_factory=list)

    if not TYPE_CHECKING:  # type checkers and editors see the fields that pydantic derives

        def __init__(self, **given: Any) -> None:
            """Take the keys of TRL and our own.

            Raises:
                ConfigError: unknown keys, wrong types or ranges, refused values, impossible combinations; all at once.
            """
            self._fill(given, Origins())

    @classmethod
    def from_origins(cls, given: Mapping[str, Any], origins: Origins, problems: Sequence[Problem] = ()) -> Self:
        """As the constructor, with errors that name where each key was given, after `problems` found before."""
        config = cls.__new__(cls)
        config._fill(given, origins, problems)
        return config

    def _fill(self, given: Mapping[str, Any], origins: Origins, found: Sequence[Problem] = ()) -> None:
        resolved = resolve(type(self), self.method, given, origins)
        origins = replace(origins, given_as=resolved.given_as)
        checked, problems = build(type(self), resolved.values, origins)
        problems = [*found, *resolved.problems, *problems]
        notices = list(resolved.notices)
        broken = {key for problem in problems for key in problem.keys}
        if checked is not None:
            given_keys = frozenset(resolved.values)
            for finding in (one for check in self.method.checks for one in check(checked, given_keys)):
                if broken & set(finding.keys):
                    continue
                if finding.is_error:
                    key = next((key for key in finding.keys if key in resolved.given_as), None)
                    problems.append(Problem(finding.keys, finding.text, origins.place(key) if key else ""))
                else:
                    notices.append(finding.text)
        raise_problems(problems)
        BaseModel.__init__(self, **resolved.values)
        self._notices = list(dict.fromkeys(notices))

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Build from a mapping, with every check. pydantic's options are not needed and refused."""
        if options:
            raise TypeError(f"{cls.__name__}.model_validate takes a mapping only")
        return obj if isinstance(obj, cls) else cls(**obj)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.method.without:
            raise_problems([Problem((name,), f"`{name}` is no key of {type(self).__name__}. Leave it.")])
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise_problems(type_problems(error.errors(include_url=False), type(self), Origins()))

    def __eq__(self, other: object) -> bool:
        # Two configurations that say the same are equal, whichever keys their authors wrote out.
        if not isinstance(other, CheckedConfig):
            return NotImplemented
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # fields can be assigned

    @property
    def notices(self) -> list[str]:
        """What to say once at the start: keys that were accepted and not needed, or that have no effect."""
        return list(self._notices)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, checked as a whole (pydantic's `model_copy` checks nothing)."""
        given = {key: getattr(self, key) for key in self.model_fields_set}
        return type(self)(**{**given, **changes})

    def public_dict(self) -> dict[str, Any]:
        """Every key, its value without secrets and fit for JSON: what trackers and the model card may hold."""
        return {
            key: None if is_secret(key) else public(key, value)
            for key, value in self.model_dump(mode="json", exclude=set(self.method.without)).items()
        }

    # Callbacks that are written for transformers ask `args` for itself in these three ways.
    def to_dict(self) -> dict[str, Any]:
        """As transformers' TrainingArguments: every key with its value, without secrets."""
        return self.public_dict()

    def to_sanitized_dict(self) -> dict[str, Any]:
        """As transformers' TrainingArguments: values that trackers take, others as text."""
        return {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in self.public_dict().items()}

    def to_json_string(self) -> str:
        """As transformers' TrainingArguments."""
        return json.dumps(self.public_dict(), indent=2)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from ((key, value and hidden(key, value)) for key, value in self.model_dump().items())

    def to_yaml(self, *, nested_secrets: bool = False) -> str:
        """Every key with its value, those that differ from the default marked; loads again to an equal configuration.

        Secrets are left out and named in a comment. nested_secrets: write those within other keys, which a model or data may
        need; for a process of this user, through a file that nobody else can read.
        """
        from dynotune.config.yaml_text import to_yaml

        return to_yaml(self, nested_secrets=nested_secrets)
