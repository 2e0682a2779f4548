"""Names of the HTTP headers that wrapper, gateway and clients agree on. HTTP does not look at their case."""

from typing import Final

SUBSCRIPTION_KEY_HEADER: Final = "Ocp-Apim-Subscription-Key"
"""Where Azure API Management looks for a subscriber's key by default; the wrapper reads the bearer token."""

# What the gateway sets and the wrapper believes (huddle.wrapper.access.auth).
BACKEND_KEY_HEADER: Final = "x-backend-key"
PRODUCT_HEADER: Final = "x-huddle-product"
TENANT_HEADER: Final = "x-huddle-tenant"

REQUEST_ID_HEADER: Final = "x-request-id"

# What the wrapper tells about an answer.
PROMPT_ID_HEADER: Final = "x-huddle-prompt-id"
PROMPT_HASH_HEADER: Final = "x-huddle-prompt-sha256"
OVERHEAD_HEADER: Final = "x-huddle-overhead-ms"
QUEUE_HEADER: Final = "x-huddle-queue-ms"
