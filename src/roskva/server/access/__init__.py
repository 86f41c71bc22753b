"""Who may do what. `base.py` says what is asked, `authority.py` answers it for a node with keys."""
