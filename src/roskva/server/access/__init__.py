"""Who may do what: `authority.py` says what is asked, `keyed.py` answers where there are keys."""
