"""The last epochs of a job, by its register: what is where, waiting for one, and reading up to one."""
