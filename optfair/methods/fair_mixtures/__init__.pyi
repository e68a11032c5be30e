from optfair.methods.fair_mixtures.fair_mixture import FairMixture as FairMixture
from optfair.methods.fair_mixtures.fair_mixture import MixturePath as MixturePath
from optfair.methods.fair_mixtures.fair_mixture import eps_path as eps_path
from optfair.methods.fair_mixtures.fair_mixture import lambda_path as lambda_path
from optfair.methods.fair_mixtures.problems import FairMixtureLikelihood as FairMixtureLikelihood
from optfair.methods.fair_mixtures.problems import FairResponsibilities as FairResponsibilities
