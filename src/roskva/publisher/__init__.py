"""Publishing: telling Roskva that an object has a new version."""
