"""Models as graph documents: checked JSON, bounded before it runs, run in a confined child. It knows no market."""
