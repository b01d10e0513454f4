"""What tables of the lake have in common: data files first, then one commit of the table's log."""
