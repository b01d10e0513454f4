"""The columnar producer: whole columns are encoded as record batches and sent by kafka-python.

Kafka's record format (v2), and where its Java client puts a key; without I/O:

varints      numbers in the encoding of records
recordbatch  columns to a record batch, and its header
headers      the headers of records
compression  the codecs of record batches
murmur2      the partition of a key

The producer:

choice       whether a job can be served by it, or by librdkafka
encoder      a batch of rows to record batches, by partition
outbox       what waits to be sent, and what was acknowledged
transport    requests to brokers
sender       the face that a writer uses
"""
