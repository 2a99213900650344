"""The Spark engine: query networks on Structured Streaming, with drops that move while it runs."""
