"""Parts of scripts/package and scripts/build-client."""
