"""Servers in containers, by testcontainers, with the same contract and tests."""

from abs_services.containers.engine import engine
from abs_services.containers.services import DockerServices

__all__ = ["DockerServices", "engine"]
