"""What `gradmarket new` writes: for each kind of data a script that trains, and the job's other fields beside it."""
