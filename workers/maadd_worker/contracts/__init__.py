"""Host contracts: observation, guarded create, receipt, delivery in pages (spec 05)."""
