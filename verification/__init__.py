"""What proves the code beyond its tests: every state of tiny clusters, and planted bugs.

It comes with the source and not with the package; `roskva sim` loads it from there.
"""
