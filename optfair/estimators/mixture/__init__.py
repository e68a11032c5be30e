"""Fair mixtures: components with additive statistics, two kinds of fairness, paths over both."""
