from optfair.convexity.proof import CurvatureProof as CurvatureProof
from optfair.convexity.proof import CurvatureWitness as CurvatureWitness
from optfair.convexity.proof import Undecided as Undecided
from optfair.convexity.prove import prove_terms as prove_terms
