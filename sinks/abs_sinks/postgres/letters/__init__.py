"""Rows that become dead letters, and who finds out.

- The client checks each value before it is sent (``columns.checks``). ``copy_with_letters`` puts such
  rows aside, and so those that the server refuses in a stretch of a COPY, which it then writes again by
  halves under savepoints (``refused_rows``).
- What only applying can tell, a constraint of the target or a change that contradicts another, is
  looked for among staged rows (``refused_staged``): ``dead_search`` says which rows to try, ``trials``
  tries them on the server, ``links`` knows which of them may depend on one another.
- ``held`` compares what staging tables hold with what was counted.
"""
