"""An app of Flower whose steps are recorded."""
