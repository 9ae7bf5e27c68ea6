"""Models: GGUF files, their weights made ready for a device, one module for each architecture."""
