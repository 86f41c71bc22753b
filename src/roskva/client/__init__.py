"""The client library: registering for objects, and being told what changed."""
