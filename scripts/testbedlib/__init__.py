"""Many hosts on one machine, made of namespaces that hang below one process: to kill it is to remove all of them."""
