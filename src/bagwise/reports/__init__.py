"""Table -> picture or page."""
