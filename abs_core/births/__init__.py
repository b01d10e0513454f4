"""Birth certificates: a second record of a job's start, outside its register.

``rules`` are pure and decide whether a job may start; ``parent`` is the record of its job that a batch
write has in place of a certificate. ``abs_core.certificate`` is the value, ``abs_core.consent`` makes
tokens by which a person overrides a refusal, and ``coordinator.certifier`` does the I/O.
"""
