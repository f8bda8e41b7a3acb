"""A push reaches the right repository, an early problem ends the run early, a late one never loses it."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynotune.config.keys.logging import LoggingConfig
from dynotune.errors import ConfigError
from dynotune.train.folder.hub import HubPusher


class FakeHub:
    """The four calls of HfApi that a push makes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.errors: dict[str, Exception] = {}
        self.hold: threading.Event | None = None
        self._pool = ThreadPoolExecutor(1)

    def _do(self, call: str, **arguments: Any) -> Any:
        self.calls.append((call, arguments))
        if self.hold:
            self.hold.wait(600)
        if call in self.errors:
            raise self.errors[call]
        return SimpleNamespace(commit_url="https://hub/commit/1")

    def run_as_future(self, function: Any, *args: Any, **options: Any) -> "Future[Any]":
        return self._pool.submit(function, *args, **options)

    def create_repo(self, name: str, **options: Any) -> Any:
        self._do("create_repo", name=name, **options)
        return SimpleNamespace(repo_id=name if "/" in name else f"me/{name}")

    def create_branch(self, name: str, **options: Any) -> Any:
        return self._do("create_branch", name=name, **options)

    def upload_folder(self, *, run_as_future: bool, **options: Any) -> "Future[Any]":
        assert run_as_future
        return self._pool.submit(self._do, "upload_folder", **options)


def push(hub: FakeHub, said: list[str], output_dir: Path = Path("runs/my-run"), **keys: Any) -> HubPusher:
    config = LoggingConfig(push_to_hub=True, hub_token="hf_secret", **keys)
    return HubPusher(config, output_dir, api=hub, say=said.append)  # type: ignore[arg-type]


def test_the_repository_takes_the_run_folders_name_and_the_asked_privacy_and_branch(tmp_path: Path) -> None:
    hub, said = FakeHub(), []
    pusher = push(hub, said, hub_private_repo=True, hub_revision="v2")
    assert pusher.repository == "me/my-run"
    assert pusher.finish(tmp_path) == "https://hub/commit/1"
    assert hub.calls == [
        ("create_repo", {"name": "my-run", "private": True, "exist_ok": True}),
        ("create_branch", {"name": "me/my-run", "branch": "v2", "exist_ok": True}),
        (
            "upload_folder",
            {"repo_id": "me/my-run", "folder_path": tmp_path, "commit_message": "End of training", "revision": "v2"},
        ),
    ]
    assert said == []


def test_without_a_login_the_run_ends_before_training() -> None:
    hub = FakeHub()
    hub.errors["create_repo"] = OSError("Token is required")
    with pytest.raises(ConfigError, match=r"'org/x' cannot be made: Token is required. Log in with `hf auth login`"):
        push(hub, [], hub_model_id="org/x")


def test_a_failed_last_upload_names_the_command_and_never_the_token(tmp_path: Path) -> None:
    hub, said = FakeHub(), []
    folder = tmp_path / "my model"
    pusher = push(hub, said, hub_model_id="org/x", hub_revision="v2")
    hub.errors["upload_folder"] = TimeoutError("network\nis down")
    assert pusher.finish(folder) is None
    assert len(said) == 1
    assert f"hf upload org/x '{folder}' . --revision v2" in said[0]
    assert "network is down" in said[0]
    assert "hf_secret" not in said[0]


def test_every_save_uploads_in_the_background_and_leaves_out_what_comes_too_soon(tmp_path: Path) -> None:
    hub, said = FakeHub(), []
    pusher = push(hub, said)
    (tmp_path / "step-10" / "adapter").mkdir(parents=True)
    hub.hold = threading.Event()
    pusher.push_checkpoint(tmp_path / "step-10")  # returns although the hub hangs
    pusher.push_checkpoint(tmp_path / "step-20")
    assert "step-20 is not uploaded: step-10 is still on its way" in said[0]
    hub.hold.set()
    assert pusher.finish(tmp_path) is not None
    assert [a["folder_path"] for c, a in hub.calls if c == "upload_folder"] == [
        tmp_path / "step-10" / "adapter",
        tmp_path,
    ]
    assert [a["commit_message"] for c, a in hub.calls if c == "upload_folder"] == [
        "Checkpoint step-10",
        "End of training",
    ]


def test_a_failed_background_upload_is_said_and_training_goes_on(tmp_path: Path) -> None:
    hub, said = FakeHub(), []
    pusher = push(hub, said)
    hub.errors["upload_folder"] = ConnectionError("reset")
    pusher.push_checkpoint(tmp_path / "step-10")
    pusher._uploading[1].exception()  # type: ignore[index]
    pusher.push_checkpoint(tmp_path / "step-20")
    assert said == ["step-10 could not be uploaded to me/my-run: reset. Training goes on."]
    del hub.errors["upload_folder"]
    assert pusher.finish(tmp_path) is not None


def test_strategy_end_uploads_once(tmp_path: Path) -> None:
    hub = FakeHub()
    pusher = push(hub, [], hub_strategy="end")
    pusher.push_checkpoint(tmp_path / "step-10")
    pusher.finish(tmp_path)
    assert [c for c, _ in hub.calls] == ["create_repo", "upload_folder"]


def test_the_fake_has_the_real_clients_signatures() -> None:
    """Negative control for all of the above: a call that HfApi does not know would pass against a fake alone."""
    import inspect

    from huggingface_hub import HfApi

    inspect.signature(HfApi.create_repo).bind(None, "x", private=True, exist_ok=True)
    inspect.signature(HfApi.create_branch).bind(None, "x", branch="b", exist_ok=True)
    inspect.signature(HfApi.upload_folder).bind(
        None, repo_id="x", folder_path="f", commit_message="m", revision=None, run_as_future=True
    )
    inspect.signature(HfApi.run_as_future).bind(None, print, "x", exist_ok=True)
    with pytest.raises(TypeError):
        inspect.signature(HfApi.create_repo).bind(None, "x", is_private=True)
