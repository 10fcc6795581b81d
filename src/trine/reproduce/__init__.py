"""Published experiments run again: published, reference and our figures side by side. One module per paper."""
