from optfair.transforms.duality import dualize as dualize
from optfair.transforms.exactness import Exactness as Exactness
from optfair.transforms.relaxation import relax_integrality as relax_integrality
from optfair.transforms.relaxation import shor as shor
from optfair.transforms.relaxation import soften as soften
