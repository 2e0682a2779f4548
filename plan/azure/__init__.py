"""The plan of a stack on Azure: its model, how it is built, and the names, rules and listeners that only Azure has."""
