"""Kafka's record format (v2), column by column, and where its Java client puts a key. No I/O.

varints      numbers in the encoding of records
recordbatch  columns to a record batch, and its header
headers      the headers of records
compression  the codecs of record batches
murmur2      the partition of a key
"""
