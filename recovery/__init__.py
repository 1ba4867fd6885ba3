"""From a diagnosis to a bounded, approved and audited action; the only wing that may write."""
