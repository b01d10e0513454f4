"""Birth certificates: a second record of a job's start, outside its register.

``rules`` are pure and decide whether a job may start; ``certificate`` is the value; ``consent`` makes
tokens by which a person overrides a refusal; ``certifier`` does the I/O. A batch write's certificate is
the ``parent`` record of its job (``coordinator.certifier``).
"""
