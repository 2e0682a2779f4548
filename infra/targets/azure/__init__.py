"""The stack on Azure."""
