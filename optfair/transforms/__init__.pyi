from optfair.transforms.duality import dualize as dualize
from optfair.transforms.exactness import Exactness as Exactness
from optfair.transforms.integrality import relax_integrality as relax_integrality
from optfair.transforms.shor_relaxation import shor as shor
from optfair.transforms.softening import soften as soften
