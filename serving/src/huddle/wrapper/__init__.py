"""The OpenAI-compatible front of vLLM: checks requests, adds system prompts, judges and relays answers.

A request's way: `http` reads it; `service` checks its head (`routes`, `access`); `exchange` prepares its body (`body`),
sends it and relays the answer (`engine`); its end goes to logs and metrics (`observability`). `server` and `workers`
run all this; `runtime` holds what `config` and the files that it names say, read again at each reload.
"""
