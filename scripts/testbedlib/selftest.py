def run(only): return 0
