from optfair.convexity.proof import CurvatureProof as CurvatureProof
from optfair.convexity.proof import CurvatureWitness as CurvatureWitness
from optfair.convexity.proof import Undecided as Undecided
