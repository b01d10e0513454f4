"""Sends records column by column, to one topic: what ``producer=auto`` takes where it can.

librdkafka touches every message several times, whoever calls it. For records of about 100 bytes that
is most of what a task costs. Here whole columns become record batches of Kafka's format in a few
vectorised steps (``abs_clients.kafka.format``), and go out over the connections of kafka-python
(``abs_clients.kafka.producer``): about a third of the CPU time.

    encoder        which record goes to which partition, and what was gathered, as batches
    sender         sends batches, and takes their answers
    transactions   a producer with a transactional id, and one without
"""
