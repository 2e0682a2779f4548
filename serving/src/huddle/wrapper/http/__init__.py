"""Messages, connections and the client side of HTTP/1.1, without a framework."""
