"""How this node does: what `huddle-apply` wrote when it last worked, and what the probe says now."""
