"""The statements by which an epoch's rows get into their table."""
