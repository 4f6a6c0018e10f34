"""The files that `gradmarket new` writes: for each kind of data a training script, and the job's other fields beside
it.
"""
