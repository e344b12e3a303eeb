"""Makes a checkpoint loadable: patches of its config.json, an overlay folder of links, and the ledger that undoes it."""
