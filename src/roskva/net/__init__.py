"""What servers and clients of servers share about networks: addresses, TLS, tasks."""
