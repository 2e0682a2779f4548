"""`ask.py METHOD URL [JSON-BODY]`: one HTTP request; prints status, headers and body as JSON. The key is on stdin."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

method, url, *body = sys.argv[1:]
headers = {"Content-Type": "application/json"} if body else {}
if key := sys.stdin.read().strip():
    headers["X-Backend-Key"] = key
request = urllib.request.Request(url, method=method, headers=headers, data=body[0].encode() if body else None)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request, timeout=60) as response:
        answer = {"status": response.status, "headers": dict(response.headers), "body": response.read().decode()}
except urllib.error.HTTPError as error:
    answer = {"status": error.code, "headers": dict(error.headers), "body": error.read().decode(errors="replace")}
except OSError as error:
    answer = {"status": None, "headers": {}, "body": str(getattr(error, "reason", error))}
print(json.dumps(answer))  # noqa: T201
