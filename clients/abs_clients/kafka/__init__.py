"""Kafka, for sinks and sources: two clients, and which of them is asked for what.

librdkafka (confluent-kafka), whose settings the options ``kafka.*`` are:
- topics and their settings, and a source's offsets (``admin``);
- reading records, by a source (``abs_sources.kafka.reader``) and by the registers;
- writing records one by one (``abs_sinks.kafka.librdkafka``): ``producer=librdkafka``, and rows that
  name their topics;
- whether a password or certificate is accepted (``auth_check``), and settings are valid
  (``settings``): it names what is wrong.

kafka-python (``wire``, over ``private`` parts), for requests that librdkafka does not have:
- transactions and producer ids of other processes: describe, list, end, take over
  (``transactions``, ``producer_ids``);
- what brokers and their API versions are able to do (``cluster_facts``);
- the ends of a register's partition (``abs_sinks.kafka.register.tail``): a librdkafka consumer keeps
  asking a dead leader until its metadata is 15 minutes old;
- whole record batches, made from columns (``abs_sinks.kafka.columnar.transport``).

Both log in by the same settings (``configs``) and tokens (``login``).
"""
