"""A producer that encodes records column by column: ``producer=columnar``.

librdkafka touches every message several times, whoever calls it. For records of about 100 bytes that
is most of what a task costs. Here whole columns become record batches of Kafka's format in a few
vectorised steps (``abs_clients.kafka.format``), and go out over the connections of kafka-python
(``abs_clients.kafka.producer``): about a third of the CPU time.

    placement    which record goes to which partition, and into which batch
    encoder      what was gathered, as batches with their sequence numbers
    sender       all of it for one task

Kept small by what a task may do: it writes one transaction and leaves it open. Whatever is not simply
sent again ends the attempt; its transaction is aborted, and the task tried anew. What was sent is
counted by the partitions before anything is pre-committed (``writer_2pc``).
"""
