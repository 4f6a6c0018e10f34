"""What the service's page and a worker's own page share: rendering, a page's frame, styles, vendored scripts."""
