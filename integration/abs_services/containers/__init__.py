"""Real servers in containers, by testcontainers: the same contract, the same tests."""

from abs_services.containers.engine import engine, why_unusable
from abs_services.containers.services import DockerServices

__all__ = ["DockerServices", "engine", "why_unusable"]
