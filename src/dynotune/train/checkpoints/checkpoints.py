"""The checkpoints of a run: written, found, checked, restored and removed. Safetensors and JSON, no pickle.

A checkpoint is written into a temporary folder, its manifest last, flushed and renamed: a folder named `step-N` is
complete, and its manifest tells whether it still is what was written.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError

from dynotune.config.keys.saving import SavingConfig
from dynotune.config.whole import WholeConfig
from dynotune.errors import TrainingError
from dynotune.parallel.ranks import Ranks
from dynotune.train.cadence import Every
from dynotune.train.checkpoints import contents, room
from dynotune.train.checkpoints.background import Background
from dynotune.train.checkpoints.contents import damage_of
from dynotune.train.checkpoints.random_states import gpus_of, random_states
from dynotune.train.checkpoints.restore import Restored, restore
from dynotune.train.checkpoints.snapshot import HostCopies, Snapshot, take_snapshot
from dynotune.train.checkpoints.unwritten import UnwrittenError, patiently
from dynotune.train.checkpoints.weights import load_weights
from dynotune.train.checkpoints.whole_folders import put_in_place, recover, remove
from dynotune.train.state import Trainee


class Checkpoints:
    """One run's. Under several ranks each calls `save`, and the first one writes."""

    def __init__(
        self,
        folder: Path,
        config: SavingConfig,
        *,
        ranks: Ranks | None = None,
        gather: Callable[[str], list[str]] = lambda text: [text],
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`gather` brings a text of every rank together, in the order of ranks; on others than the first it may be empty."""
        self.folder, self.limit, self.only_model = folder, config.save_total_limit, config.save_only_model
        self.ranks, self.gather, self.say = ranks or Ranks(), gather, say
        self.in_background = False
        """Whether checkpoints are written while training goes on: decided by `expect`."""

        self.seconds = 0.0
        """How long the last checkpoint took to be written and flushed."""

        self._background, self._copies = Background(), HostCopies()
        self._written: list[Path] = []
        self._checked: set[Path] = set()
        self._damaged: list[Path] = []

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def all(self) -> list[Path]:
        """Checkpoints whose manifest and sizes are right, oldest first; waits for one that is being written."""
        self._background.settle()
        return self._whole()

    def _whole(self) -> list[Path]:
        return [path for path in self._present() if not damage_of(path, contents=False)]

    def _present(self) -> list[Path]:
        return sorted((p for p in self.folder.glob("step-*") if re.fullmatch(r"step-\d+", p.name)), key=step_of)

    def expect(
        self,
        trainee: Trainee,
        config: WholeConfig,
        save: Every,
        evaluate: Every,
        *,
        callbacks_wait: bool,
        with_best: bool,
        replaced: Iterable[Path] = (),
    ) -> list[str]:
        """Before the first step: ask for room on the disk, decide whether training waits for files, and say both.

        callbacks_wait: whether somebody is to be called when a checkpoint is complete; with_best: whether evaluations that
        are the best so far are saved; replaced: what is removed before the first step, and its room with it.

        Raises `TrainingError` where the disk has too little room.
        """
        after, sizes = trainee.progress.step, room.sizes_of(trainee, config)
        replaced = list(replaced)
        present = [path for path in self._whole() if step_of(path) <= after and path.parent not in replaced]
        to_come = room.checkpoints_to_come(save, evaluate, after, with_best)
        at_once = room.most_at_once(to_come, len(present), self.limit, with_best)
        said = room.require_disk(self.folder.parent, config, sizes, at_once, replaced)
        if sizes.checkpoint < room.WORTH_A_THREAD or not to_come:
            return [said] if said else []
        why = room.why_waiting(sizes, callbacks_wait)
        self.in_background = why is None
        how = "are written while training goes on" if why is None else f"are written while training waits: {why}"
        return [*([said] if said else []), f"checkpoints {how}"]

    def save(self, trainee: Trainee, wait: bool = False, patience: float = 0.0) -> Path:
        """Write the checkpoint of the step just done, then remove what `save_total_limit` no longer keeps.

        The state is that of this moment. With `in_background` the files may come later, unless `wait`: `written` tells
        when. Raises `UnwrittenError` where this checkpoint, or the one before it, could not be written; with `wait`, after
        it was tried for `patience` seconds.
        """
        self.wait()
        random = [] if self.only_model else self.gather(random_states(gpus_of(trainee.model)))
        failure: UnwrittenError | None = None
        with self.ranks.first_alone("writing a checkpoint") as mine:
            if mine:
                later = self.in_background and not wait
                snapshot = take_snapshot(
                    trainee, random, only_model=self.only_model, copies=self._copies if later else None
                )
                if later:
                    self._background.begin(lambda: self._write(snapshot))
                else:
                    try:
                        patiently(lambda: self._write(snapshot), patience, self.say)
                    except UnwrittenError as error:
                        failure = error  # the other ranks go on, so they are met first
        if failure is not None:
            raise failure
        return self.path(trainee.progress.step)

    def _write(self, snapshot: Snapshot) -> None:
        target = self.path(snapshot.step)
        half = target.with_name(f".{target.name}.half")
        began = time.perf_counter()
        try:
            contents.write(snapshot, half)
            put_in_place(half, target)
        except (OSError, SafetensorError, TrainingError) as error:
            shutil.rmtree(half, ignore_errors=True)
            with suppress(OSError):
                recover(self.folder)  # one of the same step may have stepped aside
            whole = self._whole()
            kept = f"the newest complete one is {whole[-1]}" if whole else "there is none before it"
            raise UnwrittenError(
                f"The checkpoint of step {snapshot.step} could not be written ({error}); {kept}. Make room on the disk."
            ) from error
        self.seconds = time.perf_counter() - began
        self._written.append(target)
        try:
            self._prune(keep={snapshot.step, snapshot.best_step})
        except OSError as error:
            self.say(f"warning: a checkpoint that `save_total_limit` no longer keeps cannot be removed: {error}")

    def check_background(self) -> None:
        """Raise what stopped the checkpoint that was written beside training, if it has ended."""
        self._background.check()

    def written(self) -> list[Path]:
        """Checkpoints that have come into place since this was last asked."""
        found, self._written = self._written, []
        return found

    def wait(self) -> None:
        """Wait for the checkpoint that is being written; raise `TrainingError` where it failed."""
        self._background.wait()

    def close(self) -> None:
        """The end of the run, also after an error: wait, and say a failure that nobody has seen."""
        failure = self._background.close()
        self._copies.release()
        if failure is not None:
            self.say(f"note: {failure}")

    def _prune(self, keep: set[int | None]) -> None:
        """Only whole ones count: a damaged one never takes the place of one that can be resumed from."""
        if self.limit is None:
            return
        present = self._whole()
        spare = [p for p in present if step_of(p) not in keep]
        for old in spare[: max(0, len(present) - self.limit)]:
            remove(old)

    def find(self, asked: str | bool) -> Path:
        """The checkpoint to resume from: the newest whole one, or the one that was named. Every byte of it is checked."""
        if self.folder.is_dir():
            recover(self.folder)
        if not (isinstance(asked, bool) or asked.lower() == "true"):
            path = Path(asked)
            if not (path / contents.STATE).is_file() and not (path / "manifest.json").is_file():
                raise TrainingError(
                    f"`resume_from_checkpoint: {path}` is not a checkpoint of Dynotune (it has no manifest.json). A"
                    " checkpoint is a folder `checkpoints/step-N` of a run folder."
                )
            self.check(path, "Name another checkpoint, or `true` for the newest whole one.")
            return path
        refused: list[str] = []
        for path in reversed(self._present()):
            wrong = damage_of(path)
            if not wrong:
                self._checked.add(path)
                for sentence in refused:
                    self.say(f"note: {sentence}; the one before it is taken")
                return path
            refused.append(f"{path} is not taken: {_first(wrong)}")
            self._damaged.append(path)
        why = f" ({'; '.join(refused)})" if refused else ""
        raise TrainingError(
            f"`resume_from_checkpoint: true`, but {self.folder} holds no complete checkpoint{why}. Start without it, or"
            " name a checkpoint."
        )

    def check(self, path: Path, remedy: str) -> None:
        """Read every byte of a checkpoint. Raises `TrainingError` where one is not as it was written."""
        if path in self._checked:
            return
        wrong = damage_of(path)
        if wrong:
            raise TrainingError(f"{path} is damaged: {_first(wrong)}. {remedy}")
        self._checked.add(path)

    def abandon_after(self, step: int) -> list[Path]:
        """Set checkpoints of steps that will be done again aside, so that none is taken for the run that goes on.

        Those that `find` saw to be damaged are named so. Returns the new names.
        """
        moved = []
        for path in self._present():
            if step_of(path) > step:
                kind = "damaged" if path in self._damaged or damage_of(path, contents=False) else "abandoned"
                target = path.with_name(f"{kind}-{path.name}")
                if target.exists():
                    remove(target)
                moved.append(path.rename(target))
        return moved

    def restore(self, path: Path, trainee: Trainee) -> Restored:
        """Put everything back as it was when the checkpoint was written; says what was not. Raises `TrainingError`."""
        self.check(path, "Name another checkpoint.")
        done = restore(path, trainee, self.ranks.rank, self.ranks.world)
        best = trainee.progress.best_step
        if best is not None and trainee.settings.get("load_best_model_at_end") and damage_of(self.path(best)):
            # Known only at the end, it would end the run without its model.
            trainee.progress.forget_best()
            done.missing.append(f"the best evaluation so far (step {best}), since {self.path(best)} is not there whole")
        return done

    def load_best(self, step: int, trainee: Trainee) -> None:
        """Take the weights of the checkpoint of `step`, which is checked first. Raises `TrainingError`."""
        self.wait()
        path = self.path(step)
        whole = [str(one) for one in self._whole() if one != path]
        self._checked.discard(path)
        self.check(path, f"It was the best one. Others are {', '.join(whole) or 'none'}.")
        load_weights(trainee.model, path)


def step_of(path: Path) -> int:
    """The step of a checkpoint's folder."""
    return int(path.name.removeprefix("step-"))


def _first(wrong: list[str]) -> str:
    return wrong[0] + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")
