"""The OpenAI-compatible front of vLLM: checks requests, adds system prompts, relays answers byte for byte."""
