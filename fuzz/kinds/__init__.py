"""One file for each format that strangers send; its name is the kind's. See `fuzz.case.Kind`."""
