"""What travels: codecs, compression, trace context, and the messages themselves."""
