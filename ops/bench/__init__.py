"""``magicrl bench``: ratios against a limit or a peer, both sides measured in the same run."""
