"""Who may do what: credentials, signatures, and the rules about them."""
