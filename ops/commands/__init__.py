"""The command line, one noun per file; light to import: each loads what it needs when it runs."""
