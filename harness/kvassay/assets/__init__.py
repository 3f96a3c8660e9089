"""Files that installed packages offer: modules for pages, sites, packs."""
