"""PostgreSQL: logical replication with `pgoutput`. Read `log.py` first."""
