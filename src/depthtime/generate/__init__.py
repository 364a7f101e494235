"""Text from trained models: exact cached decoding, sampling, and how fast and how exact the decoding is."""
