"""Run folders, tables, charts and pages: data first, then readers of it."""
