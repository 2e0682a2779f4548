"""Run the product's launcher and wrapper with real vLLM on lent H100s (README.md says how)."""
