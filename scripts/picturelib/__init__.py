"""The pictures of the documents: one module each, and the canvas that they draw on."""
