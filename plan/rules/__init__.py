"""Rules that span several settings. Each yields the key at fault and a sentence."""
