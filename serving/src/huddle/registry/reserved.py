"""What the launcher computes from the node and the command line, so that a registry entry must not say it as well.

A test checks that every flag and variable the launcher emits is either here or a key of the entry.
"""

import re

FLAGS = frozenset(
    {
        *(
            "--host",
            "--port",
            "--uds",
            "--root-path",
            "--ssl-keyfile",
            "--ssl-certfile",
            "--allowed-origins",
            "--api-key",
        ),
        *("--served-model-name", "--api-server-count", "--shutdown-timeout", "--distributed-executor-backend"),
        "--structured-outputs-config",
        "--no-enable-prefix-caching",  # `enable-prefix-caching: false`
        *("--allowed-media-domains", "--allowed-local-media-path"),
        *("--nnodes", "--node-rank", "--master-addr", "--master-port", "--headless"),
        *("-tp", "-pp", "-n", "-r"),
    }
)

ENV = frozenset(
    {
        *(
            "VLLM_HOST_IP",
            "VLLM_PORT",
            "NCCL_SOCKET_IFNAME",
            "GLOO_SOCKET_IFNAME",
            "TP_SOCKET_IFNAME",
            "NCCL_IB_DISABLE",
            "RAY_ADDRESS",
            "RAY_AUTH_MODE",
            "RAY_AUTH_TOKEN_PATH",
        ),
        *("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "FLASHINFER_WORKSPACE_BASE", "HF_HOME"),
        *(
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "VLLM_NO_USAGE_STATS",
            "DO_NOT_TRACK",
            "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
        ),
        *("VLLM_RAY_EXTRA_ENV_VARS_TO_COPY", "HUDDLE_LAUNCH_ID", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"),
    }
)

# vLLM switches that open it up (development routes, pickled RPC, adapters by URL): never from a registry or a shell.
DANGEROUS_ENV = frozenset(
    {"VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}
)

SECRET_ENV = re.compile(r"(?i)(token|secret|passw|api_?key|credential)")
