"""Real servers for tests, demos and people: PostgreSQL, Kafka, S3; and a stand-in for a registry.

with services().postgres() as server:   # native, docker or external: $ABS_SERVICES
    psycopg.connect(server.url)
"""

from abs_clients.extras import importing

with importing("The package abs_services"):
    from abs_services.contracts import (
        KINDS,
        REGISTRY,
        KafkaService,
        Kind,
        PostgresService,
        Provider,
        S3Service,
        Service,
        Services,
    )
    from abs_services.databases import fresh_database, in_database
    from abs_services.providers import chosen_provider, services

__all__ = [
    "KINDS",
    "REGISTRY",
    "KafkaService",
    "Kind",
    "PostgresService",
    "Provider",
    "S3Service",
    "Service",
    "Services",
    "chosen_provider",
    "fresh_database",
    "in_database",
    "services",
]
