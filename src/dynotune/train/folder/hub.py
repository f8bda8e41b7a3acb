"""Uploading to the hub (`push_to_hub`): at the end, and at each save in the background.

The repository is made before training, so that a missing login ends the run in its first seconds and not in its last.
After that no failure of the hub stops or loses anything: it is said, with the command that uploads by hand.
"""

import shlex
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dynotune.config.keys.logging import LoggingConfig
from dynotune.errors import ConfigError

if TYPE_CHECKING:
    from huggingface_hub import HfApi


class HubPusher:
    """One repository that receives a run. Construct on the main process only, before training.

    Args:
        config: the `hub_*` keys.
        output_dir: names the repository where `hub_model_id` does not.
        api: the hub's client; made from `hub_token` or the login of this machine where it is not given.
        say: receives one sentence per event that a person should know of.

    Raises:
        ConfigError: the repository or branch cannot be made: no login, no right to write, no network.
    """

    def __init__(
        self,
        config: LoggingConfig,
        output_dir: Path,
        *,
        api: "HfApi | None" = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        from huggingface_hub import HfApi

        self._config = config
        self._api = api or HfApi(token=config.hub_token)
        self._say = say or Console(stderr=True).print
        self._uploading: tuple[str, Future[Any]] | None = None
        name = config.hub_model_id or output_dir.resolve().name
        # Futures carry whatever the client raises (its own errors, the network's), so nothing has to be guessed here.
        made = self._settle(
            self._api.run_as_future(self._api.create_repo, name, private=config.hub_private_repo, exist_ok=True),
            f"push_to_hub: the repository {name!r} cannot be made",
        )
        self.repository = str(made.repo_id)
        """Full name, with the owner."""
        if config.hub_revision:
            self._settle(
                self._api.run_as_future(
                    self._api.create_branch, self.repository, branch=config.hub_revision, exist_ok=True
                ),
                f"hub_revision: the branch {config.hub_revision!r} of {self.repository} cannot be made",
            )

    def _settle(self, future: "Future[Any]", what: str) -> Any:
        if error := future.exception():
            raise ConfigError(
                f"{what}: {_reason(error)}. Log in with `hf auth login` or give `hub_token`, check `hub_model_id`, or "
                "leave `push_to_hub` out."
            ) from error
        return future.result()

    def push_checkpoint(self, checkpoint: Path) -> None:
        """With `hub_strategy: every_save`, begin to upload the model or adapter in a checkpoint; return at once.

        A save during an upload is left out (and said): the hub would only receive what the next save replaces.
        """
        if self._config.hub_strategy != "every_save":
            return
        if self._uploading and not self._uploading[1].done():
            self._say(f"{checkpoint.name} is not uploaded: {self._uploading[0]} is still on its way to the hub.")
            return
        self._report_background()
        adapter = checkpoint / "adapter"
        folder = adapter if adapter.is_dir() else checkpoint / "model"
        self._uploading = (checkpoint.name, self._upload(folder, f"Checkpoint {checkpoint.name}"))

    def finish(self, folder: Path) -> str | None:
        """Upload the final model or adapter and its card; wait for it.

        Returns:
            The commit's address, or None where the upload failed (which has then been said).
        """
        if self._uploading:
            self._uploading[1].exception()  # wait: two commits at once would make one of them fail
            self._report_background()
        done = self._upload(folder, "End of training")
        if error := done.exception():
            command = ["hf", "upload", self.repository, str(folder), "."]
            if self._config.hub_revision:
                command += ["--revision", self._config.hub_revision]
            self._say(
                f"The upload to {self.repository} failed: {_reason(error)}. The run is complete in {folder}. "
                f"To upload it by hand: {shlex.join(command)}"
            )
            return None
        return str(done.result().commit_url)

    def _upload(self, folder: Path, message: str) -> "Future[Any]":
        return self._api.upload_folder(
            repo_id=self.repository,
            folder_path=folder,
            commit_message=message,
            revision=self._config.hub_revision,
            run_as_future=True,
        )

    def _report_background(self) -> None:
        if self._uploading is None:
            return
        name, future = self._uploading
        self._uploading = None
        if error := future.exception():
            self._say(f"{name} could not be uploaded to {self.repository}: {_reason(error)}. Training goes on.")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:300] if text else type(error).__name__
