"""The whole market on one machine, from its doors: strangers train a model, cheats are voted down, money moves."""
