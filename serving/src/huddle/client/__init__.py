"""Talking to an endpoint: `huddle.Client`, and the commands chat, ask, bench and batch. Imports nothing by itself."""
