"""Run folders as pages: an index and JSON first, then a server and files that show them."""
