"""What this program assumes of Azure and only Azure can settle: a table, how each is asked, and the answers."""
