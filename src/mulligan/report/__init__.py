"""Run folders and tables: data first, then readers of it."""
