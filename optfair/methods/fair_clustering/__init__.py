"""Fair clustering: assignments under rules on the masses of groups, and centers."""
