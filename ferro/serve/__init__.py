"""Serving over HTTP: an engine that owns the device, and the OpenAI protocol before it."""
