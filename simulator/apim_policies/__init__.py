"""A laboratory for API Management policies: it reads the policies that the program sends to Azure, and runs them.

It knows exactly the elements and expressions that our policies use; anything else is an error with file, line and
column before the first request. What it imitates, from which page, and what it assumes stands at the head of each
module: `gateway` (pipeline, keys, errors), `counters` (rates and quotas), `tokens` (estimates and usage), `limits`
(the counting elements), `flow` and `edits` (the others), `pool` (backends and circuit breakers), `expressions`.

It is no Azure: it has one process where a gateway has many (so its counters are exact), no TLS, no diagnostics but a
log line for each request, and it has never been compared with a real service. It proves that our policies say what we
mean; that Azure hears the same is what the quoted pages say.
"""
