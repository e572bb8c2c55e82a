"""The desk: everything one may ask about kept tasks, answered for the HTTP API and for the system actions alike."""
