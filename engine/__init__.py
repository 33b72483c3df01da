"""Offramp's engine: two backends, a router between them, and a simulator. No Qt below here."""

__version__ = "0.1.0"
