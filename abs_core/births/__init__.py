"""Birth certificates: what a job has begun is noted a second time, outside its register.

``rules`` are pure and say whether a job may start; ``certificate`` is the value; ``consent`` is a
person's token to go on where a rule refuses; ``certifier`` does the I/O. A batch write's certificate
is the ``parent`` record of its job (``parent_certificates``).
"""
