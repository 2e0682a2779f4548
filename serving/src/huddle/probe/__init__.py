"""Health is forward progress: an engine is healthy while tokens come, whatever it says about its health.

Measured (docs/facts/gpus.md#stalled-engines) and reported (docs/facts/vllm-and-ray.md#health): a frozen worker
leaves `/health` at 200 while every token counter stands still; an engine that dies leaves with exit code 0.

`reading`: what the engine shows; `judge`: what to make of it, pure; `ladder`: what is done about it; `verdict`: what
others read; `cli`: the loop.
"""
