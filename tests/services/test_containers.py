"""Containers of ours end with their session, and only ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from abs_core.errors import ConfigError, UnavailableError
from abs_services.containers import DockerServices, engine
from abs_services.containers.engine import IMAGES, image_of, remove, remove_orphans
from tests.kit.containers import why_unusable


@pytest.fixture(scope="module")
def usable() -> None:
    if reason := why_unusable():
        pytest.skip(reason)


def labelled(owner: str) -> str:
    """A container that was created, never started, and is said to belong to ``owner``."""
    with engine() as client:
        made = client.containers.create(
            IMAGES["s3"].built, command=["version"], labels={"abs-sinks.owner": owner}
        )
        return str(made.id)


def exists(container: str) -> bool:
    with engine() as client:
        return container in {c.id for c in client.containers.list(all=True)}


@pytest.mark.services
@pytest.mark.usefixtures("usable")
def test_a_session_that_is_sigkilled_leaves_no_container() -> None:
    program = (
        "from abs_services.containers import DockerServices\n"
        "server = DockerServices().postgres(); server.start()\n"
        "print(server.running.container, flush=True)\n"
        "input()\n"
    )
    session = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert session.stdout is not None
    assert session.stdin is not None
    container = session.stdout.readline().strip()
    assert exists(container)
    session.kill()
    session.wait()
    session.stdout.close()
    session.stdin.close()

    @retry(retry=retry_if_result(bool), stop=stop_after_delay(30), wait=wait_fixed(0.1))
    def still_there() -> bool:
        return exists(container)

    assert not still_there()


@pytest.mark.services
@pytest.mark.usefixtures("usable")
def test_a_container_is_an_orphan_only_if_its_owner_on_this_host_is_gone() -> None:
    host, me = socket.gethostname(), os.getpid()
    dead = labelled(f"{host}/{me}/1.0")  # this pid, but another start time: a reused pid
    elsewhere = labelled(f"not-{host}/{me}/1.0")
    with engine() as client:
        created = client.containers.list(all=True, filters={"label": "abs-sinks.owner"})
        assert {dead, elsewhere} <= {c.id for c in created}
    try:
        remove_orphans()
        assert not exists(dead)
        assert exists(elsewhere)
    finally:
        remove(elsewhere)


@pytest.mark.services
@pytest.mark.usefixtures("usable")
def test_abs_up_in_containers_is_found_and_ended_by_other_shells(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_CACHE", str(tmp_path))
    monkeypatch.setenv("ABS_SERVICES", "docker")

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "abs_cli", *arguments, "--json"]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    up = run("up", "postgres")["postgres"]
    try:
        assert exists(up["container"])
        assert not run("up", "postgres")["postgres"]["started_now"]
    finally:
        assert run("down") == {"postgres": {"was_up": True}}
    assert not exists(up["container"])


def test_the_environment_names_the_image_and_a_built_one_comes_before_the_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind, image in IMAGES.items():
        monkeypatch.delenv(image.variable, raising=False)
        assert image_of(kind, lambda name: True) == image.built
        assert image_of(kind, lambda name: False) == image.public
        monkeypatch.setenv(image.variable, "mine:1")
        assert image_of(kind, lambda name: True) == "mine:1"


def test_the_file_for_people_has_the_same_images_and_variables() -> None:
    compose = (Path(__file__).parents[2] / "docker" / "compose.yaml").read_text()
    for image in IMAGES.values():
        assert f"image: ${{{image.variable}:-{image.public}}}" in compose


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
def test_where_no_engine_answers_the_error_says_how_to_start_one(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    assert "engine" in why_unusable()
    with pytest.raises(UnavailableError, match=r"docker/engine\.sh start"):
        DockerServices().postgres().start()


@pytest.mark.services
@pytest.mark.usefixtures("usable")
def test_an_image_that_is_nowhere_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_S3_IMAGE", "127.0.0.1:1/abs-sinks/nowhere:0")
    with pytest.raises(ConfigError, match="nowhere:0"):
        DockerServices().s3().start()


def test_why_unusable_names_an_image_that_would_have_to_be_pulled(
    usable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_S3_IMAGE", "abs-sinks/nowhere:0")
    assert "abs-sinks/nowhere:0" in why_unusable()
