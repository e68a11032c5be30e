"""Fair mixtures: responsibilities under rules on the masses of groups."""
