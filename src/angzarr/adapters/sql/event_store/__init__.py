"""Event books and rejections in SQL."""
