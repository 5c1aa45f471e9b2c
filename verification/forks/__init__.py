"""Does anything hang, get lost or doubled when a process with busy threads forks? ``make
forks``."""
