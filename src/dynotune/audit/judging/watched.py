"""Which rules asked for a setting that could not be followed: saying nothing then is no check that passed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynotune.audit.facts.job import Hole, Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Known, Setting


class WatchedSettings(dict[str, Setting]):
    """Settings of a job with holes, which keep in mind whether one was asked for that may have come through a hole."""

    def __init__(self, settings: Mapping[str, Setting], holes: Sequence[Hole]) -> None:
        super().__init__(settings)
        self.names = frozenset[str]().union(*(hole.names for hole in holes))
        self.asked = False

    def _look(self, name: object) -> None:
        there = super().get(name) if isinstance(name, str) else None
        if there is None or there.known is Known.DEFAULT or not there.is_known:
            self.asked = self.asked or name in self.names

    def __getitem__(self, name: str) -> Setting:
        self._look(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._look(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._look(name)
        return super().get(name, default)


def watched(project: Project) -> Project:
    """The project, its jobs with holes watched."""
    if not any(job.holes for job in project.jobs):
        return project
    return replace(
        project,
        jobs=[
            replace(job, settings=WatchedSettings(job.settings, job.holes)) if job.holes else job
            for job in project.jobs
        ],
    )


def asked_since(project: Project) -> Iterator[Job]:
    """Jobs of which a setting was asked for that is not known, since this was asked last."""
    for job in project.jobs:
        if isinstance(job.settings, WatchedSettings) and job.settings.asked:
            job.settings.asked = False
            yield job
