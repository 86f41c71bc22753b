"""MariaDB, and MySQL by the same code: the binary log in rows. Read `log.py` first."""
