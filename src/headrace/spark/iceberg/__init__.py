"""A topic as an Apache Iceberg table: columns, data files, and the commit that holds the offsets. Written with pyiceberg, read by anybody."""
