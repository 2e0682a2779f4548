"""What no single key can tell: rules that span several settings. Each yields the key at fault and a sentence."""
