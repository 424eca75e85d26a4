"""Record batch v2: header, builder, reader, compression, columns. Pure."""
