"""The whole market on one machine, used only through its public interfaces: training, cheating workers, payment."""
