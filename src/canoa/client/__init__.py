"""Submitting from a program: sessions, handles, streams of results, and the face without asyncio."""
