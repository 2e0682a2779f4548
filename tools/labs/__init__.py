"""Deep labs: the tests that `make test` leaves out, when they run, and how a run that was cut off goes on."""
